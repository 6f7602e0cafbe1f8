// Rotary frequencies, as transformers' modeling_rope_utils computes them (in float32).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace dovetail::models {

// kLinear divides all frequencies by `factor`; kLlama3 only the low ones, with a smooth step between.
enum class RotaryScaling : uint8_t { kNone, kLinear, kLlama3 };

// Literal type: part of the constant of a compiled library.
struct RotaryConfig {
  double theta = 10000.0;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0;  // kLlama3
  double high_frequency_factor = 4.0;
  double original_context = 8192;
};

// One frequency for each pair (i, i + head_dim / 2).
inline std::vector<float> rotary_frequencies(const RotaryConfig& c, int32_t head_dim) {
  std::vector<float> out;
  for (int32_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float frequency = 1.0f / static_cast<float>(std::pow(c.theta, static_cast<double>(exponent)));
    if (c.scaling == RotaryScaling::kLinear) frequency = static_cast<float>(frequency / c.factor);
    if (c.scaling == RotaryScaling::kLlama3) {
      const double wavelength = 2.0 * std::numbers::pi / frequency;
      const double low = c.original_context / c.low_frequency_factor,
                   high = c.original_context / c.high_frequency_factor;
      if (wavelength > low) {
        frequency = static_cast<float>(frequency / c.factor);
      } else if (wavelength >= high) {
        const double smooth = (c.original_context / wavelength - c.low_frequency_factor) /
                              (c.high_frequency_factor - c.low_frequency_factor);
        frequency = static_cast<float>((1.0 - smooth) * frequency / c.factor + smooth * frequency);
      }
    }
    out.push_back(frequency);
  }
  return out;
}

}  // namespace dovetail::models
