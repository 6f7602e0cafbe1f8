// Any bytes given as a recording are decoded within the limits or refused.
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "media/audio.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const media::AudioTarget& target :
       {media::AudioTarget{16000, 161, 48000}, media::AudioTarget{44100, 1, 2000}}) {
    try {
      const media::Audio audio = media::decode_audio(bytes, target);
      const auto count = static_cast<int64_t>(audio.samples.size());
      if (count < target.min_samples || count > target.max_samples) std::abort();
      for (float sample : audio.samples) {
        if (!std::isfinite(sample)) std::abort();
      }
    } catch (const Error&) {
    }
  }
  try {
    media::decode_audio_base64({reinterpret_cast<const char*>(data), size}, {16000, 161, 48000});
  } catch (const Error&) {
  }
  return 0;
}
