// Sample rate conversion by a Kaiser-windowed sinc in double precision, for any pair of rates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dovetail::media {

// `count` when the rates are equal, otherwise max(1, count × target / source rounded half up).
// nullopt on overflow. Rates must be positive, count >= 0.
std::optional<int64_t> resampled_length(int64_t count, int32_t source_hz, int32_t target_hz);

// Sample i of the result lies at i × source / target of the input. Flat to 0.001 dB up to 90 % of the lower
// Nyquist frequency, at least 96 dB down from that Nyquist frequency on. At the edges the kernel's taps
// outside the recording are dropped and the rest is scaled to a gain of 1, so that a constant stays constant.
// `samples` must not be empty. Equal rates return a copy.
std::vector<float> resample(std::span<const float> samples, int32_t source_hz, int32_t target_hz);

}  // namespace dovetail::media
