// RIFF/WAVE: the chunks of a file and its samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::media {

// A checked view of the sample data inside the bytes given to parse_wav.
struct Wav {
  std::span<const std::byte> data;  // whole frames
  int32_t sample_rate_hz = 0;
  int32_t channels = 0;
  int32_t bits = 0;       // of one sample: 8, 16, 24, 32, 64
  bool is_float = false;  // IEEE float, otherwise integer PCM (8 bits unsigned, the others signed)
  int64_t frames = 0;
  std::vector<std::string> notes;
};

// Chunks are walked from byte 12; unknown ones are skipped and of several fmt or data chunks the last counts.
// Throws Error kMalformed or kUnsupported. `hint` tells how to convert an unsupported file.
Wav parse_wav(std::span<const std::byte> bytes, std::string_view name, const std::string& hint);

// Mean of the channels, at the file's rate. Throws kMalformed when a sample is not finite.
std::vector<float> read_mono(const Wav& wav, std::string_view name);

}  // namespace dovetail::media
