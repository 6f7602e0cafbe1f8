#include "models/gemma4_audio_constants.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace dovetail::models {

void fill_dft_matrix(std::span<float> out) {
  const double two_pi = 2.0 * std::numbers::pi;
  for (int n = 0; n < kAudioFrameLength; ++n) {
    // The original multiplies frames by a float32 window.
    const auto window =
        static_cast<double>(static_cast<float>(0.5 - 0.5 * std::cos(two_pi * n / kAudioFrameLength)));
    float* row = out.data() + static_cast<size_t>(n) * 2 * kAudioBins;
    for (int k = 0; k < kAudioBins; ++k) {
      const double angle = two_pi * ((n * k) % kAudioFftLength) / kAudioFftLength;
      row[k] = static_cast<float>(window * std::cos(angle));
      row[kAudioBins + k] = static_cast<float>(-window * std::sin(angle));
    }
  }
}

void fill_mel_filters(std::span<float> out) {
  const auto to_mel = [](double hz) { return 2595.0 * std::log10(1.0 + hz / 700.0); };
  const auto to_hz = [](double mel) { return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0); };
  std::vector<double> edges(kAudioMelBands + 2);
  for (size_t i = 0; i < edges.size(); ++i) {
    edges[i] = to_hz(to_mel(kAudioSampleRate / 2.0) * static_cast<double>(i) / (kAudioMelBands + 1));
  }
  for (size_t k = 0; k < kAudioBins; ++k) {
    const double hz = kAudioSampleRate / 2.0 * static_cast<double>(k) / (kAudioBins - 1);
    for (size_t band = 0; band < kAudioMelBands; ++band) {
      const double rise = (hz - edges[band]) / (edges[band + 1] - edges[band]);
      const double fall = (edges[band + 2] - hz) / (edges[band + 2] - edges[band + 1]);
      out[k * kAudioMelBands + band] = static_cast<float>(std::max(0.0, std::min(rise, fall)));
    }
  }
}

void fill_relative_positions(int32_t window, int32_t hidden, std::span<float> out) {
  const int32_t half = hidden / 2;
  const double step = std::log(10000.0) / std::max(half - 1, 1);
  for (int32_t row = 0; row <= window; ++row) {
    const auto distance = static_cast<float>(window - row);
    float* values = out.data() + static_cast<size_t>(row) * static_cast<size_t>(hidden);
    for (int32_t i = 0; i < half; ++i) {
      // In float32, as the original computes it.
      const float angle = distance * std::exp(static_cast<float>(i) * static_cast<float>(-step));
      values[i] = std::sin(angle);
      values[half + i] = std::cos(angle);
    }
  }
}

}  // namespace dovetail::models
