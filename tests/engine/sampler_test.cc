#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace dovetail::engine {
namespace {

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler sampler({.temperature = 0}, 4);
  EXPECT_EQ(sampler.next(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{-5, -4, -3, -2}), 3);
}

TEST(Sampler, PaddingOfTheVocabularyIsNeverChosen) {
  Sampler greedy({.temperature = 0}, 2);
  const std::vector<float> logits = {1, 2, 1e9f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(greedy.next(logits), 1);
  Sampler random({.temperature = 1, .seed = 3}, 2);
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.next(logits), 2);
}

TEST(Sampler, NonFiniteLogitsAreNamed) {
  Sampler sampler({.temperature = 0}, 4);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    try {
      sampler.next(std::vector<float>{1, 2, bad, 0});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNumeric);
      EXPECT_NE(std::string(error.what()).find("logits[2]"), std::string::npos);
    }
  }
}

std::vector<double> frequencies(const SamplingOptions& options, const std::vector<float>& logits) {
  constexpr int kDraws = 20000;
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  std::vector<double> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) counts[sampler.next(logits)] += 1.0 / kDraws;
  return counts;
}

TEST(Sampler, FollowsTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
  const std::vector<double> plain = frequencies({.temperature = 1, .seed = 1}, logits);
  EXPECT_NEAR(plain[0], 0.5, 0.02);
  EXPECT_NEAR(plain[1], 0.25, 0.02);
  EXPECT_NEAR(plain[3], 0.125, 0.02);
  // Temperature 1/2 squares the probabilities: 16 : 4 : 1 : 1.
  const std::vector<double> cold = frequencies({.temperature = 0.5, .seed = 1}, logits);
  EXPECT_NEAR(cold[0], 16.0 / 22, 0.02);
  EXPECT_NEAR(cold[2], 1.0 / 22, 0.02);
}

TEST(Sampler, TopPKeepsTheSmallestSufficientSet) {
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};
  const std::vector<double> nucleus = frequencies({.temperature = 1, .top_p = 0.7, .seed = 5}, logits);
  EXPECT_NEAR(nucleus[1], 2.0 / 3, 0.02);
  EXPECT_NEAR(nucleus[3], 1.0 / 3, 0.02);
  EXPECT_EQ(nucleus[0], 0);
  EXPECT_EQ(nucleus[2], 0);
  // Of equal ones the lower id is kept.
  const std::vector<double> tie = frequencies({.temperature = 1, .top_p = 0.8, .seed = 5}, logits);
  EXPECT_GT(tie[0], 0);
  EXPECT_EQ(tie[2], 0);
  EXPECT_NEAR(frequencies({.temperature = 1, .top_p = 1e-9, .seed = 5}, logits)[1], 1.0, 1e-9);
}

TEST(Sampler, SeedDecides) {
  const std::vector<float> logits(100, 0.0f);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed}, 100);
    std::vector<int32_t> ids;
    for (int i = 0; i < 8; ++i) ids.push_back(sampler.next(logits));
    return ids;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
  // Fixed by the documented algorithm: floor(100 * (mt19937_64 >> 11) / 2^53).
  std::mt19937_64 generator(7);
  for (const int32_t id : draw(7)) {
    EXPECT_EQ(id,
              static_cast<int32_t>(std::floor(100.0 * (static_cast<double>(generator() >> 11) * 0x1p-53))));
  }
}

TEST(Sampler, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(Sampler({.temperature = -1}, 4), Error);
  EXPECT_THROW(Sampler({.temperature = std::nan("")}, 4), Error);
  EXPECT_THROW(Sampler({.top_p = 0}, 4), Error);
  EXPECT_THROW(Sampler({.top_p = 1.1}, 4), Error);
}

TEST(Sampler, ExtremeLogitsDoNotOverflow) {
  Sampler sampler({.temperature = 0.01, .seed = 1}, 3);
  EXPECT_EQ(sampler.next(std::vector<float>{-3e38f, 3e38f, 0}), 1);
}

}  // namespace
}  // namespace dovetail::engine
