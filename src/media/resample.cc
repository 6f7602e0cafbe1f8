#include "media/resample.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/checked.h"

namespace dovetail::media {
namespace {

// The kernel in units of samples at the lower of the two rates: cut off in the middle of the transition band
// (90 % to 100 % of Nyquist), and as long and as strongly windowed as 100 dB over that band need.
constexpr int kHalfWidth = 64;
constexpr double kCutoff = 0.95;
constexpr double kKaiserBeta = 10.06;
constexpr int kStepsPerSample = 1024;  // linear interpolation between them errs by less than -125 dB
// Kernel rows for all phases are kept when they fit in 8 MiB, and computed again for each sample otherwise.
constexpr int64_t kMaxCachedTaps = int64_t{1} << 20;

double bessel_i0(double x) {
  double sum = 1.0;
  double term = 1.0;
  for (int k = 1; term > sum * 1e-17; ++k) {
    term *= (x / (2.0 * k)) * (x / (2.0 * k));
    sum += term;
  }
  return sum;
}

// The right half of the kernel, with one step more for the interpolation.
std::vector<double> make_kernel() {
  constexpr int kSteps = kHalfWidth * kStepsPerSample;
  std::vector<double> kernel(kSteps + 2, 0.0);
  const double scale = 1.0 / bessel_i0(kKaiserBeta);
  for (int i = 0; i < kSteps; ++i) {
    const double x = static_cast<double>(i) / kStepsPerSample;
    const double angle = std::numbers::pi * kCutoff * x;
    const double sinc = i == 0 ? 1.0 : std::sin(angle) / angle;
    const double ratio = x / kHalfWidth;
    kernel[static_cast<size_t>(i)] =
        kCutoff * sinc * scale * bessel_i0(kKaiserBeta * std::sqrt(1.0 - ratio * ratio));
  }
  return kernel;
}

double kernel_at(const std::vector<double>& kernel, double distance) {
  const double position = distance * kStepsPerSample;
  if (position >= kHalfWidth * kStepsPerSample) return 0.0;
  const auto index = static_cast<size_t>(position);
  const double fraction = position - static_cast<double>(index);
  return kernel[index] + fraction * (kernel[index + 1] - kernel[index]);
}

// Taps for a sample that lies `fraction` behind source sample 0: tap j belongs to source sample j - half + 1.
void fill_row(const std::vector<double>& kernel, double fraction, double scale, std::span<double> row) {
  const auto half = static_cast<int64_t>(row.size() / 2);
  double sum = 0.0;
  for (int64_t j = 0; j < static_cast<int64_t>(row.size()); ++j) {
    const double distance = std::abs(static_cast<double>(j - half + 1) - fraction);
    row[static_cast<size_t>(j)] = kernel_at(kernel, distance * scale);
    sum += row[static_cast<size_t>(j)];
  }
  for (double& tap : row) tap /= sum;
}

double dot(const double* taps, const float* samples, size_t count) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += taps[i + lane] * static_cast<double>(samples[i + lane]);
    }
  }
  double sum = 0.0;
  for (double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += taps[i] * static_cast<double>(samples[i]);
  return sum;
}

}  // namespace

std::optional<int64_t> resampled_length(int64_t count, int32_t source_hz, int32_t target_hz) {
  if (source_hz == target_hz) return count;
  const std::optional<int64_t> doubled = try_mul(count, int64_t{2} * target_hz);
  const std::optional<int64_t> rounded = doubled ? try_add(*doubled, source_hz) : std::nullopt;
  if (!rounded) return std::nullopt;
  return std::max<int64_t>(1, *rounded / (int64_t{2} * source_hz));
}

std::vector<float> resample(std::span<const float> samples, int32_t source_hz, int32_t target_hz) {
  const auto count = static_cast<int64_t>(samples.size());
  if (source_hz == target_hz) return {samples.begin(), samples.end()};
  static const std::vector<double> kernel = make_kernel();

  const int32_t divisor = std::gcd(source_hz, target_hz);
  const int64_t step = source_hz / divisor;    // source samples for every
  const int64_t phases = target_hz / divisor;  // result samples
  const double scale = std::min(1.0, static_cast<double>(target_hz) / source_hz);
  // Taps further away than the recording is long can never be used.
  const int64_t half = std::min(static_cast<int64_t>(std::ceil(kHalfWidth / scale)), count);
  const int64_t taps = 2 * half;
  const int64_t length = resampled_length(count, source_hz, target_hz).value();

  const bool cached = length >= phases && phases * taps <= kMaxCachedTaps;
  std::vector<double> rows(static_cast<size_t>(cached ? phases * taps : taps));
  if (cached) {
    for (int64_t phase = 0; phase < phases; ++phase) {
      fill_row(kernel, static_cast<double>(phase) / static_cast<double>(phases), scale,
               std::span(rows).subspan(static_cast<size_t>(phase * taps), static_cast<size_t>(taps)));
    }
  }

  std::vector<float> result(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    int64_t index = i * step / phases;
    int64_t phase = i * step % phases;
    if (index >= count - 1) {  // behind the last sample: hold it
      index = count - 1;
      phase = 0;
    }
    const double* row = rows.data();
    if (cached) {
      row += phase * taps;
    } else {
      fill_row(kernel, static_cast<double>(phase) / static_cast<double>(phases), scale, rows);
    }
    const int64_t first = index - half + 1;
    const int64_t from = std::max<int64_t>(first, 0);
    const int64_t to = std::min<int64_t>(first + taps, count);
    double value = dot(row + (from - first), samples.data() + from, static_cast<size_t>(to - from));
    if (to - from < taps) value /= std::accumulate(row + (from - first), row + (to - first), 0.0);
    result[static_cast<size_t>(i)] = static_cast<float>(value);
  }
  return result;
}

}  // namespace dovetail::media
