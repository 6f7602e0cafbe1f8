#include "engine/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "fake_package.h"

namespace dovetail::engine {
namespace {

// The fake model says, outside of a turn, that the turn ends: logit 10 for that token and 0 for the others.
class EvaluateTest : public ::testing::Test {
 protected:
  EvaluateTest() {
    test::write_fake_package(dir_.path() / "a");
    test::write_fake_package(dir_.path() / "b");
    model_ = std::make_unique<Engine>(library::open_model(dir_.path() / "a"));
    reference_ = std::make_unique<Engine>(library::open_model(dir_.path() / "b"));
  }

  std::vector<int32_t> text(const std::string& text) const { return model_->model().tokenizer.encode(text); }

  double nll(bool expected) const {
    const auto others = static_cast<double>(model_->active_vocab() - 1);
    return std::log(std::exp(10.0) + others) - (expected ? 10.0 : 0.0);
  }

  ErrorCode failure(const std::string& of, const EvaluateOptions& options) {
    try {
      perplexity(*model_, text(of), options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  }

  test::TemporaryDirectory dir_;
  std::unique_ptr<Engine> model_, reference_;
};

TEST_F(EvaluateTest, ScoresEveryTokenButTheFirstOnce) {
  const std::string letters(100, 'a');
  for (const int64_t context : {8, 17, 64, 101, 256}) {
    for (const int64_t stride : {int64_t{1}, int64_t{3}, context - 2}) {
      const Perplexity result = perplexity(*model_, text(letters), {.context = context, .stride = stride});
      EXPECT_EQ(result.tokens, 99) << context << " " << stride;
      EXPECT_NEAR(result.mean_nll, nll(false), 1e-6);
      EXPECT_NEAR(result.perplexity, std::exp(nll(false)), 1e-3);
      EXPECT_NEAR(result.standard_error, 0.0, 1e-3);
      // A leading BOS takes one place of the window.
      const int64_t width = context - 1;
      EXPECT_EQ(result.windows, width >= 100 ? 1 : 1 + (100 - width + stride - 1) / stride);
    }
  }
}

TEST_F(EvaluateTest, WhatIsSaidCounts) {
  const Perplexity result = perplexity(*model_, text("aa<turn|>a"), {.context = 64, .stride = 32});
  EXPECT_EQ(result.tokens, 3);
  EXPECT_NEAR(result.mean_nll, (2 * nll(false) + nll(true)) / 3, 1e-6);
  EXPECT_GT(result.standard_error, 1.0);
}

TEST_F(EvaluateTest, AModelDoesNotDivergeFromItself) {
  const Divergence result = divergence(*model_, *reference_, text("some text"), {.context = 6, .stride = 2});
  EXPECT_EQ(result.model.tokens, 8);
  EXPECT_EQ(result.mean, 0.0);
  EXPECT_EQ(result.largest, 0.0);
  EXPECT_EQ(result.same_top, 1.0);
  EXPECT_EQ(result.model.mean_nll, result.reference.mean_nll);
}

TEST_F(EvaluateTest, RefusesWhatCannotBeMeasured) {
  EXPECT_EQ(failure("a", {.context = 16, .stride = 8}), ErrorCode::kUsage);
  EXPECT_EQ(failure("aa", {.context = 257, .stride = 8}), ErrorCode::kUsage);
  EXPECT_EQ(failure("aa", {.context = 2, .stride = 1}), ErrorCode::kUsage);
  EXPECT_EQ(failure("aa", {.context = 16, .stride = 0}), ErrorCode::kUsage);
  EXPECT_EQ(failure("aa", {.context = 16, .stride = 15}), ErrorCode::kUsage);
}

TEST_F(EvaluateTest, AppendsUpToTheContextWindow) {
  model_->restart();
  const std::vector<int32_t> ids(256, 300);
  EXPECT_EQ(model_->append(ids).rows, 256);
  EXPECT_THROW(model_->append(std::span(ids).first(1)), Error);
  model_->restart();
  EXPECT_EQ(model_->append(std::span(ids).first(1)).rows, 1);
  EXPECT_THROW(model_->append(std::vector<int32_t>{-1}), Error);
}

}  // namespace
}  // namespace dovetail::engine
