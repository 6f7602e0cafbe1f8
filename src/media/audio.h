// Recordings of any common format → canonical audio: mono float32 samples at the rate a processor asks for.
// The bytes decide what a recording is, never its name. Limits are applied before anything is decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::media {

// What an audio processor declares. 1 <= sample_rate_hz <= 384000, 1 <= min_samples <= max_samples.
struct AudioTarget {
  int32_t sample_rate_hz = 0;
  int64_t min_samples = 0;
  int64_t max_samples = 0;
};

struct AudioSource {
  std::string format;  // for example "WAV, 16-bit PCM" or "MP3"
  int32_t sample_rate_hz = 0;
  int32_t channels = 0;
  int64_t frames = 0;  // samples of each channel
  std::vector<std::string>
      notes;  // what the user should know, for example a missing length that was inferred

  double seconds() const { return static_cast<double>(frames) / sample_rate_hz; }
};

struct Audio {
  std::vector<float> samples;  // min_samples <= size <= max_samples, all finite
  AudioSource source;
};

// WAV (8 to 32-bit integer, 32 and 64-bit float PCM), FLAC, MP3, Ogg Vorbis, Ogg FLAC. Channels are averaged,
// then the mean is resampled. `name` stands in front of messages.
// Throws Error kUnsupported (another format, named), kMalformed, kLimit (too short or long, with both
// numbers), kUsage (the target is out of bounds).
Audio decode_audio(std::span<const std::byte> bytes, const AudioTarget& target,
                   std::string_view name = "audio");

// The same for samples that are already decoded. Throws kUsage, kLimit, kMalformed (a sample is not finite).
Audio canonical_audio(std::span<const float> mono, int32_t sample_rate_hz, const AudioTarget& target,
                      std::string_view name = "audio");

// The same for base64 text, or a data URL (data:audio/wav;base64,…). Spaces and line breaks are skipped and
// the padding may be missing; the declared type must name audio but the bytes decide.
Audio decode_audio_base64(std::string_view text, const AudioTarget& target, std::string_view name = "audio");

}  // namespace dovetail::media
