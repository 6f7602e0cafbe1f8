// Makes WAV files byte by byte, right and wrong ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <span>
#include <string>
#include <vector>

namespace dovetail::media {

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct WavFormat {
  uint16_t codec = 1;
  uint16_t channels = 1;
  uint32_t rate = 16000;
  uint16_t bits = 16;
  // The wrapper WAVE_FORMAT_EXTENSIBLE around `codec`, with this many valid bits (0: no wrapper).
  uint16_t valid_bits = 0;
};

inline std::string chunk(const std::string& id, const std::string& content) {
  std::string out = id;
  append(out, static_cast<uint32_t>(content.size()));
  out += content;
  if (content.size() % 2) out += '\0';
  return out;
}

inline std::string fmt_chunk(const WavFormat& format) {
  const auto block = static_cast<uint16_t>(format.channels * (format.bits / 8));
  std::string out;
  append(out, static_cast<uint16_t>(format.valid_bits ? 0xFFFE : format.codec));
  append(out, format.channels);
  append(out, format.rate);
  append(out, format.rate * block);
  append(out, block);
  append(out, format.bits);
  if (format.valid_bits) {
    append(out, uint16_t{22});
    append(out, format.valid_bits);
    append(out, uint32_t{0});
    append(out, format.codec);
    out += std::string("\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 14);
  }
  return chunk("fmt ", out);
}

inline std::string riff(const std::string& chunks) {
  std::string out = "RIFF";
  append(out, static_cast<uint32_t>(chunks.size() + 4));
  return out + "WAVE" + chunks;
}

// Samples from -1 to 1 in the format's encoding, interleaved.
inline std::string encode(const WavFormat& format, const std::vector<double>& samples) {
  std::string out;
  for (double x : samples) {
    if (format.codec == 3 && format.bits == 32) append(out, static_cast<float>(x));
    if (format.codec == 3 && format.bits == 64) append(out, x);
    if (format.codec != 1) continue;
    const double scale = std::ldexp(1.0, format.bits - 1);
    const auto value = static_cast<int64_t>(std::clamp(std::round(x * scale), -scale, scale - 1));
    if (format.bits == 8) append(out, static_cast<uint8_t>(value + 128));
    if (format.bits == 16) append(out, static_cast<int16_t>(value));
    if (format.bits == 24) {
      const auto little = static_cast<uint32_t>(value);
      out.append(reinterpret_cast<const char*>(&little), 3);
    }
    if (format.bits == 32) append(out, static_cast<int32_t>(value));
  }
  return out;
}

inline std::string wav(const WavFormat& format, const std::vector<double>& samples) {
  return riff(fmt_chunk(format) + chunk("data", encode(format, samples)));
}

inline std::vector<double> sine(double hz, double rate, size_t count, double amplitude = 0.5) {
  std::vector<double> samples(count);
  for (size_t i = 0; i < count; ++i) {
    samples[i] = amplitude * std::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate);
  }
  return samples;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace dovetail::media
