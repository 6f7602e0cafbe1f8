#include "media/audio.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "dovetail_rust.h"
#include "media/base64.h"
#include "media/resample.h"
#include "media/rust_text.h"
#include "media/sniff.h"
#include "media/wav.h"

namespace dovetail::media {
namespace {

constexpr int32_t kMaxSampleRate = 384000;
constexpr int64_t kMaxSamples = int64_t{1} << 31;

std::string conversion_hint(const AudioTarget& target) {
  return "convert it: ffmpeg -i INPUT -ac 1 -ar " + std::to_string(target.sample_rate_hz) + " speech.wav";
}

std::string samples_and_seconds(int64_t samples, int32_t rate) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3f s", static_cast<double>(samples) / rate);
  return std::to_string(samples) + " samples (" + seconds + ")";
}

[[noreturn]] void fail(ErrorCode code, std::string_view name, std::string message, std::string hint) {
  throw Error(code,
              Problem{.message = std::move(message), .source = std::string(name), .hint = std::move(hint)});
}

void check_target(const AudioTarget& target) {
  if (target.sample_rate_hz < 1 || target.sample_rate_hz > kMaxSampleRate || target.min_samples < 1 ||
      target.max_samples < target.min_samples || target.max_samples > kMaxSamples) {
    throw Error(ErrorCode::kUsage,
                Problem{.message = "audio processor is out of bounds",
                        .expected = "1..384000 Hz, 1 <= min_samples <= max_samples <= 2^31",
                        .actual = std::to_string(target.sample_rate_hz) + " Hz, " +
                                  std::to_string(target.min_samples) + ".." +
                                  std::to_string(target.max_samples) + " samples"});
  }
}

// `frames` of the source may be a lower bound when it is `at_least`.
void check_length(int64_t frames, int32_t source_hz, const AudioTarget& target, std::string_view name,
                  bool at_least = false) {
  // A number of frames that overflows is too long, whatever it is exactly.
  const int64_t length =
      frames == 0 ? 0 : resampled_length(frames, source_hz, target.sample_rate_hz).value_or(INT64_MAX);
  if (!at_least && length >= target.min_samples && length <= target.max_samples) return;
  const bool too_long = at_least || length > target.max_samples;
  const std::string range = std::to_string(target.min_samples) + ".." + std::to_string(target.max_samples);
  throw Error(ErrorCode::kLimit,
              Problem{.message = "canonical audio must contain " + range + " samples; got " +
                                 (at_least ? "at least " : "") + std::to_string(length),
                      .source = std::string(name),
                      .expected = (too_long ? "at most " : "at least ") +
                                  samples_and_seconds(too_long ? target.max_samples : target.min_samples,
                                                      target.sample_rate_hz),
                      .actual = samples_and_seconds(length, target.sample_rate_hz),
                      .hint = too_long ? "send it in shorter pieces; nothing is cut off silently"
                                       : "the recording is too short to hold speech; record it again"});
}

Audio finish(std::vector<float> mono, AudioSource source, const AudioTarget& target, std::string_view name) {
  check_length(source.frames, source.sample_rate_hz, target, name);
  Audio audio{.samples = {}, .source = std::move(source)};
  if (audio.source.sample_rate_hz == target.sample_rate_hz) {
    audio.samples = std::move(mono);
  } else {
    audio.samples = resample(mono, audio.source.sample_rate_hz, target.sample_rate_hz);
  }
  const bool finite = std::all_of(audio.samples.begin(), audio.samples.end(),
                                  [](float sample) { return std::isfinite(sample); });
  if (!finite)
    fail(ErrorCode::kMalformed, name, "audio contains a non-finite sample", "record or export it again");
  return audio;
}

Audio decode_wav(std::span<const std::byte> bytes, const AudioTarget& target, std::string_view name) {
  Wav wav = parse_wav(bytes, name, conversion_hint(target));
  check_length(wav.frames, wav.sample_rate_hz, target, name);
  AudioSource source{
      .format = "WAV, " + std::to_string(wav.bits) + "-bit " + (wav.is_float ? "float" : "PCM"),
      .sample_rate_hz = wav.sample_rate_hz,
      .channels = wav.channels,
      .frames = wav.frames,
      .notes = std::move(wav.notes)};
  return finish(read_mono(wav, name), std::move(source), target, name);
}

Audio decode_compressed(std::span<const std::byte> bytes, const Sniffed& kind, const AudioTarget& target,
                        std::string_view name) {
  const uint32_t container = kind.format == Format::kFlac  ? DOVETAIL_AUDIO_FLAC
                             : kind.format == Format::kMp3 ? DOVETAIL_AUDIO_MP3
                                                           : DOVETAIL_AUDIO_OGG;
  DovetailAudio decoded{};
  DovetailRustText error{};
  if (!dovetail_audio_decode(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), container,
                             static_cast<uint32_t>(target.sample_rate_hz),
                             static_cast<uint64_t>(target.max_samples), &decoded, &error)) {
    fail(ErrorCode::kMalformed, name, kind.description + " can't be decoded: " + printable(take(error)),
         "play it to see whether it is whole; " + conversion_hint(target));
  }
  std::vector<float> mono(decoded.samples.data, decoded.samples.data + decoded.samples.size);
  dovetail_rust_free_samples(decoded.samples);
  AudioSource source{
      .format = kind.description,
      .sample_rate_hz = static_cast<int32_t>(std::min<uint32_t>(decoded.sample_rate, INT32_MAX)),
      .channels = static_cast<int32_t>(decoded.channels),
      .frames = static_cast<int64_t>(std::min<uint64_t>(decoded.frames, INT64_MAX)),
      .notes = {}};
  dovetail_rust_free_text(decoded.codec);
  if (std::string notes = take(decoded.notes); !notes.empty()) source.notes.push_back(std::move(notes));
  if (source.sample_rate_hz < 1 || source.sample_rate_hz > kMaxSampleRate) {
    fail(ErrorCode::kUnsupported, name,
         "sample rate must be 1..384000 Hz; got " + std::to_string(decoded.sample_rate),
         conversion_hint(target));
  }
  if (decoded.over_limit) check_length(source.frames, source.sample_rate_hz, target, name, true);
  return finish(std::move(mono), std::move(source), target, name);
}

}  // namespace

Audio decode_audio(std::span<const std::byte> bytes, const AudioTarget& target, std::string_view name) {
  check_target(target);
  const Sniffed kind = sniff(bytes);
  switch (kind.format) {
    case Format::kWav:
      return decode_wav(bytes, target, name);
    case Format::kFlac:
    case Format::kMp3:
    case Format::kOgg:
      return decode_compressed(bytes, kind, target, name);
    default:
      break;
  }
  std::string hint = conversion_hint(target);
  if (kind.description == "data of an unknown kind") {
    hint = "raw samples have no header; say what they are: ffmpeg -f s16le -ar " +
           std::to_string(target.sample_rate_hz) + " -ac 1 -i INPUT speech.wav";
  } else if (kind.kind != Kind::kAudio) {
    hint = "give the name of a recording";
  }
  fail(ErrorCode::kUnsupported, name,
       "this is " + kind.description + "; WAV, FLAC, MP3, Ogg Vorbis and Ogg FLAC are supported",
       std::move(hint));
}

Audio canonical_audio(std::span<const float> mono, int32_t sample_rate_hz, const AudioTarget& target,
                      std::string_view name) {
  check_target(target);
  if (sample_rate_hz < 1 || sample_rate_hz > kMaxSampleRate) {
    fail(ErrorCode::kUsage, name, "sample rate must be 1..384000 Hz; got " + std::to_string(sample_rate_hz),
         "resample the recording first");
  }
  AudioSource source{.format = "samples",
                     .sample_rate_hz = sample_rate_hz,
                     .channels = 1,
                     .frames = static_cast<int64_t>(mono.size()),
                     .notes = {}};
  check_length(source.frames, sample_rate_hz, target, name);
  return finish({mono.begin(), mono.end()}, std::move(source), target, name);
}

Audio decode_audio_base64(std::string_view text, const AudioTarget& target, std::string_view name) {
  const std::vector<std::byte> bytes = decode_base64_or_data_url(text, "audio", name);
  return decode_audio(bytes, target, name);
}

}  // namespace dovetail::media
