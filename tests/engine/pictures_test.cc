// LLaVA and Gemma 3 through the whole engine, converted and compiled: prompt ids, logits and replies of every
// reference case. Pixels are the reference's; tests/media compares decoding and resizing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "compile/compile.h"
#include "convert/convert.h"
#include "engine/engine.h"
#include "library/model.h"
#include "support/npz.h"

namespace dovetail::engine {
namespace {

namespace fs = std::filesystem;

// The reference's rotary frequencies were rounded to bfloat16, which moves its logits by up to 1e-2.
constexpr float kTolerance = 2e-2f;

class Pictures : public ::testing::TestWithParam<const char*> {
 protected:
  static fs::path folder() {
    return fs::path(::testing::TempDir()) / ("dovetail pictures " + std::to_string(::getpid()));
  }
  static fs::path package() {
    const fs::path path = folder() / GetParam();
    if (!fs::exists(path)) {
      fs::create_directories(folder());
      // As the references were.
      convert::convert({.checkpoint = example(),
                        .output = path,
                        .quantization = &models::find_quantization("q4f16_1"),
                        .rounding = convert::Rounding::kMlc});
      const models::ModelPlan plan = compile::plan_package(path);
      const fs::path library = compile::default_library_path(path, plan);
      fs::create_directories(library.parent_path());
      compile::compile_library(plan, {ops::Level::kAvx2}, library);
    }
    return path;
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  static fs::path example() { return fs::path(DOVETAIL_EXAMPLES) / GetParam(); }
  static Json cases() { return read_json(example() / "reference" / "cases.json")["cases"]; }

  static Conversation ask(const Engine& engine, const Json& entry,
                          const std::map<std::string, test::Array>& arrays) {
    Turn turn{.role = Role::kUser};
    if (entry.contains("picture")) {
      turn.parts.emplace_back(engine.image(arrays.at(entry["pixels"].get<std::string>()).bytes));
    }
    turn.parts.emplace_back(entry["message"].get<std::string>());
    return {.turns = {turn}};
  }

  // Replies that differ; `undecided` says how many of them begin to differ where the reference's two best
  // logits are closer than the tolerance. Prompt ids must be equal.
  void compare(bool exact, int& total, int& differing, int& undecided) {
    Engine engine(library::open_model(package()), {.exact = exact});
    const auto arrays = test::read_npz(example() / "reference" / "logits.npz");
    for (const Json& entry : cases()) {
      SCOPED_TRACE(entry["message"].get<std::string>());
      const Json& expected = entry["q4f16_1"];
      const auto reply = expected["reply_token_ids"].get<std::vector<int32_t>>();
      const Conversation conversation = ask(engine, entry, arrays);
      const Engine::Logits logits = engine.logits(conversation, reply);
      EXPECT_EQ(logits.prompt_ids, entry["prompt_token_ids"].get<std::vector<int32_t>>());
      const std::vector<float>& reference = arrays.at(expected["logits"].get<std::string>()).values;
      ASSERT_EQ(logits.values.size(), reference.size());
      if (exact) {
        float largest = 0;
        for (size_t i = 0; i < reference.size(); ++i)
          largest = std::max(largest, std::abs(reference[i] - logits.values[i]));
        EXPECT_LE(largest, kTolerance);
      }
      ++total;
      const Reply actual = engine.generate(conversation, {.sampling = {.temperature = 0}, .max_tokens = 64});
      if (actual.token_ids == reply) continue;
      ++differing;
      const auto at = static_cast<size_t>(std::ranges::mismatch(actual.token_ids, reply).in2 - reply.begin());
      std::vector<float> row(reference.begin() + static_cast<int64_t>(at) * logits.vocab,
                             reference.begin() + static_cast<int64_t>(at + 1) * logits.vocab);
      std::ranges::nth_element(row, row.begin() + 1, std::greater<>());
      undecided += row[0] - row[1] < kTolerance ? 1 : 0;
    }
  }
};

TEST_P(Pictures, ExactModeGivesTheReferenceReplies) {
  int total = 0, differing = 0, undecided = 0;
  compare(true, total, differing, undecided);
  EXPECT_GE(total, 10);
  EXPECT_EQ(differing, undecided);
}

TEST_P(Pictures, DefaultModeDiffersInAtMostOneReplyOfTen) {
  int total = 0, differing = 0, undecided = 0;
  compare(false, total, differing, undecided);
  EXPECT_LE(differing * 10, total);
}

TEST_P(Pictures, SecondTurnAboutAPictureRunsNoAdapter) {
  Engine engine(library::open_model(package()));
  const auto arrays = test::read_npz(example() / "reference" / "logits.npz");
  const std::vector<uint8_t>& pixels = arrays.at("0_pixels").bytes;
  int looks = 0;
  const Callbacks callbacks = {
      .status = [&](std::string_view s) { looks += s.starts_with("looking") ? 1 : 0; }};
  const GenerateOptions options = {.sampling = {.temperature = 0}, .max_tokens = 8};
  Conversation conversation{.turns = {{.parts = {engine.image(pixels), "Describe the picture."}}}};
  const Reply first = engine.generate(conversation, options, callbacks);
  EXPECT_EQ(looks, 1);
  EXPECT_GT(first.timings.adapter_seconds, 0);
  conversation.turns.push_back({.role = Role::kAssistant, .parts = {first.text}});
  // The same picture again, decoded anew.
  conversation.turns.push_back({.parts = {engine.image(pixels), "What is the background?"}});
  const Reply second = engine.generate(conversation, options, callbacks);
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(second.timings.adapter_seconds, 0);
  EXPECT_EQ(second.usage.media_tokens, 2 * first.usage.media_tokens);
  std::vector<uint8_t> other = pixels;
  other[0] ^= 1;
  engine.generate({.turns = {{.parts = {engine.image(other), "Describe the picture."}}}}, options, callbacks);
  EXPECT_EQ(looks, 2);
}

TEST_P(Pictures, WhatThePackageDoesNotTakeIsRefusedByName) {
  const Engine engine(library::open_model(package()));
  try {
    engine.audio(std::vector<float>(16000));
    FAIL() << "audio was taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("does not take audio"), std::string::npos) << text;
    EXPECT_NE(text.find("image"), std::string::npos) << text;
  }
  EXPECT_THROW(engine.image({}), Error);
  EXPECT_THROW(engine.image(std::vector<uint8_t>(56 * 55 * 3)), Error);
}

INSTANTIATE_TEST_SUITE_P(Families, Pictures, ::testing::Values("llava-tiny-shapes", "gemma3-tiny-shapes"),
                         [](const auto& info) { return std::string(info.param).substr(0, 5); });

}  // namespace
}  // namespace dovetail::engine
