// Properties of the rate conversion, measured with tones.
#include "media/resample.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numbers>
#include <utility>

namespace dovetail::media {
namespace {

constexpr std::pair<int32_t, int32_t> kRates[] = {
    {8000, 16000},  {11025, 16000}, {22050, 16000},  {32000, 16000}, {44056, 16000}, {44100, 16000},
    {48000, 16000}, {96000, 16000}, {192000, 16000}, {44101, 16000}, {16000, 8000},  {16000, 44100},
    {16000, 48000}, {8000, 192000}, {44100, 48000},  {48000, 44100}, {15999, 16000},
};

std::vector<float> tone(double hz, double rate, double seconds) {
  std::vector<float> samples(static_cast<size_t>(rate * seconds));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<float>(std::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate));
  }
  return samples;
}

struct Fit {
  double amplitude;  // of the tone in the middle of the samples
  double residual;   // RMS of everything else there, relative to a tone of amplitude 1
};

Fit fit(const std::vector<float>& samples, double hz, double rate, size_t margin) {
  double ss = 0, sc = 0, cc = 0, xs = 0, xc = 0;
  for (size_t i = margin; i + margin < samples.size(); ++i) {
    const double angle = 2 * std::numbers::pi * hz * static_cast<double>(i) / rate;
    const double s = std::sin(angle), c = std::cos(angle);
    ss += s * s, sc += s * c, cc += c * c, xs += samples[i] * s, xc += samples[i] * c;
  }
  const double det = ss * cc - sc * sc;
  const double a = (xs * cc - xc * sc) / det, b = (xc * ss - xs * sc) / det;
  double rest = 0;
  size_t count = 0;
  for (size_t i = margin; i + margin < samples.size(); ++i, ++count) {
    const double angle = 2 * std::numbers::pi * hz * static_cast<double>(i) / rate;
    const double e = samples[i] - a * std::sin(angle) - b * std::cos(angle);
    rest += e * e;
  }
  return {std::hypot(a, b), std::sqrt(2 * rest / static_cast<double>(count))};
}

double db(double ratio) { return 20 * std::log10(std::max(ratio, 1e-12)); }

// Samples at the edges of a result that the whole kernel does not cover.
size_t margin(int32_t source, int32_t target) {
  return static_cast<size_t>(std::ceil(65.0 * std::max(1.0, static_cast<double>(target) / source)));
}

TEST(Resample, PassBandIsFlatAndClean) {
  double worst_gain = 0, worst_residual = -200;
  for (const auto& [source, target] : kRates) {
    const double nyquist = std::min(source, target) / 2.0;
    for (double part : {0.01, 0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9}) {
      const double hz = nyquist * part;
      const Fit result =
          fit(resample(tone(hz, source, 0.25), source, target), hz, target, margin(source, target));
      worst_gain = std::max(worst_gain, std::abs(db(result.amplitude)));
      worst_residual = std::max(worst_residual, db(result.residual));
      EXPECT_LT(std::abs(db(result.amplitude)), 0.001) << source << " to " << target << ", " << hz << " Hz";
      EXPECT_LT(db(result.residual), -96) << source << " to " << target << ", " << hz << " Hz";
    }
  }
  std::printf("largest pass band deviation %.6f dB, strongest image %.1f dB\n", worst_gain, worst_residual);
}

TEST(Resample, TonesAboveTheNewNyquistVanish) {
  double worst = -200;
  for (const auto& [source, target] : kRates) {
    if (source <= target) continue;
    const double from = target / 2.0, to = source / 2.0;
    for (double part : {0.0, 0.001, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.99}) {
      const double hz = from + (to - from) * part;
      const std::vector<float> result = resample(tone(hz, source, 0.25), source, target);
      double sum = 0;
      size_t count = 0;
      for (size_t i = margin(source, target); i + margin(source, target) < result.size(); ++i, ++count) {
        sum += static_cast<double>(result[i]) * result[i];
      }
      const double level = db(std::sqrt(2 * sum / static_cast<double>(count)));
      worst = std::max(worst, level);
      EXPECT_LT(level, -96) << source << " to " << target << ", " << hz << " Hz";
    }
  }
  std::printf("strongest alias %.1f dB\n", worst);
}

TEST(Resample, ATenKilohertzToneAt48kVanishesAt16k) {
  const std::vector<float> result = resample(tone(10000, 48000, 1), 48000, 16000);
  ASSERT_EQ(result.size(), 16000u);
  for (size_t i = 65; i + 65 < result.size(); ++i) ASSERT_LT(std::abs(result[i]), 1e-4f);
  // At the ends the tone starts and stops, which is no longer a pure tone.
  for (float x : result) EXPECT_LT(std::abs(x), 0.5f);
}

TEST(Resample, Lengths) {
  EXPECT_EQ(resampled_length(48000, 48000, 16000), 16000);
  EXPECT_EQ(resampled_length(1, 48000, 16000), 1);
  EXPECT_EQ(resampled_length(0, 48000, 16000), 1);
  EXPECT_EQ(resampled_length(0, 16000, 16000), 0);
  EXPECT_EQ(resampled_length(4, 48000, 16000), 1);
  EXPECT_EQ(resampled_length(5, 48000, 16000), 2);
  EXPECT_EQ(resampled_length(3, 32000, 16000), 2);  // one half is rounded up
  EXPECT_EQ(resampled_length(1323001, 44100, 16000), 480000);
  EXPECT_EQ(resampled_length(1323002, 44100, 16000), 480001);
  EXPECT_EQ(resampled_length(INT64_MAX / 100, 8000, 16000), std::nullopt);
  EXPECT_EQ(resampled_length(INT64_MAX, 16000, 16000), INT64_MAX);
}

TEST(Resample, ConstantsStayConstantToTheEdges) {
  for (const auto& [source, target] : kRates) {
    for (size_t count : {1, 2, 3, 10, 500, 5000}) {
      const std::vector<float> result = resample(std::vector<float>(count, 0.25f), source, target);
      ASSERT_EQ(static_cast<int64_t>(result.size()),
                resampled_length(static_cast<int64_t>(count), source, target).value());
      for (float x : result) ASSERT_NEAR(x, 0.25f, 1e-6f) << source << " to " << target << ", " << count;
    }
  }
}

TEST(Resample, ExtremeRatios) {
  EXPECT_EQ(resample(std::vector<float>(1000, 1.0f), 384000, 1).size(), 1u);
  EXPECT_EQ(resample(std::vector<float>(2, 1.0f), 1, 384000).size(), 768000u);
  EXPECT_EQ(resample(std::vector<float>(100, 1.0f), 384000, 383999).size(), 100u);
  for (float x : resample(std::vector<float>{1.0f, -1.0f, 1.0f}, 1, 1000)) ASSERT_LT(std::abs(x), 1.5f);
}

TEST(Resample, EqualRatesCopy) {
  const std::vector<float> samples = tone(440, 16000, 0.1);
  EXPECT_EQ(resample(samples, 16000, 16000), samples);
}

TEST(Resample, MuchFasterThanRealTime) {
  for (const auto& [source, target] : kRates) {
    const std::vector<float> samples = tone(440, source, 10);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<float> result = resample(samples, source, target);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%6d to %6d Hz: %.0f times real time\n", source, target, 10 / seconds);
#ifdef NDEBUG
    // A floor far below the usual rate, so that a busy machine does not fail it.
    EXPECT_GT(10 / seconds, 10) << source << " to " << target;
#endif
    ASSERT_FALSE(result.empty());
  }
}

}  // namespace
}  // namespace dovetail::media
