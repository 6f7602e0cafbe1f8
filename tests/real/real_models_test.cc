// Two published models, from their GGUF files to logits, against references that the original implementation
// computed in float32 from the weights in the same files (tests/data/real-models/README.md).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "compile/compile.h"
#include "convert/convert.h"
#include "engine/engine.h"
#include "engine/evaluate.h"
#include "library/model.h"
#include "support/npz.h"

namespace dovetail {
namespace {

namespace fs = std::filesystem;
const fs::path kReference = fs::path(DOVETAIL_TEST_DATA) / "real-models";

// Bounds of the mean divergence from the reference.
struct Case {
  const char* file;
  const char* reference;
  const char* quantization;
  double bound;
  bool greedy;  // every token must be the reference's
};

fs::path model_folder() {
  if (const char* folder = std::getenv("DOVETAIL_REAL_MODELS")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return fs::path(cache) / "dovetail" / "real-models";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : ".") / ".cache" / "dovetail" / "real-models";
}

Json read_json(const fs::path& path) { return parse_json(read_file(path), path.filename().string()); }

// Natural-log probabilities of one row of logits, as a function of the token.
class LogProbabilities {
 public:
  explicit LogProbabilities(std::span<const float> logits) : logits_(logits) {
    const float top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float value : logits) sum += std::exp(static_cast<double>(value) - top);
    log_sum_ = top + std::log(sum);
  }
  double operator()(int64_t id) const {
    return static_cast<double>(logits_[static_cast<size_t>(id)]) - log_sum_;
  }
  int64_t best() const { return std::max_element(logits_.begin(), logits_.end()) - logits_.begin(); }

 private:
  std::span<const float> logits_;
  double log_sum_ = 0;
};

// Of the reference from ours, in nats: its most likely tokens one by one and all others together.
double divergence(std::span<const int64_t> ids, std::span<const float> expected,
                  const LogProbabilities& actual) {
  double sum = 0, p_known = 0, q_known = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double p = std::exp(static_cast<double>(expected[i])), q = actual(ids[i]);
    sum += p * (static_cast<double>(expected[i]) - q);
    p_known += p;
    q_known += std::exp(q);
  }
  const double p_rest = std::max(1 - p_known, 1e-12), q_rest = std::max(1 - q_known, 1e-12);
  return sum + p_rest * std::log(p_rest / q_rest);
}

std::span<const int64_t> row(const std::vector<int64_t>& values, int64_t width, int64_t index) {
  return std::span(values).subspan(static_cast<size_t>(index * width), static_cast<size_t>(width));
}
std::span<const float> row(const std::vector<float>& values, int64_t width, int64_t index) {
  return std::span(values).subspan(static_cast<size_t>(index * width), static_cast<size_t>(width));
}

// Converts and compiles; the folder lives as long as the test program.
class Packages {
 public:
  ~Packages() {
    std::error_code ec;
    fs::remove_all(folder_, ec);
  }
  fs::path package(const std::string& file, const std::string& quantization) {
    const fs::path path = folder_ / (file + "-" + quantization);
    if (fs::exists(path)) return path;
    fs::create_directories(folder_);
    convert::convert({.checkpoint = model_folder() / file,
                      .output = path,
                      .quantization = &models::find_quantization(quantization)});
    const models::ModelPlan plan = compile::plan_package(path);
    const fs::path library = compile::default_library_path(path, plan);
    fs::create_directories(library.parent_path());
    compile::compile_library(plan, {ops::Level::kAvx2}, library);
    return path;
  }

 private:
  fs::path folder_ = fs::path(::testing::TempDir()) / ("dovetail real models " + std::to_string(::getpid()));
};

Packages& packages() {
  static Packages instance;
  return instance;
}

engine::Conversation conversation_of(const Json& turns) {
  engine::Conversation out;
  for (const Json& turn : turns) {
    const auto role = turn[0].get<std::string>(), text = turn[1].get<std::string>();
    if (role == "system") {
      out.system = text;
    } else {
      out.turns.push_back(
          {.role = role == "user" ? engine::Role::kUser : engine::Role::kAssistant, .parts = {text}});
    }
  }
  return out;
}

class RealModels : public ::testing::TestWithParam<Case> {};

TEST_P(RealModels, AnswerAsTheReference) {
  const Case& c = GetParam();
  if (!fs::exists(model_folder() / c.file)) {
    GTEST_SKIP() << (model_folder() / c.file).string()
                 << " is not there; scripts/fetch-real-models.sh brings it";
  }
  engine::Engine engine(library::open_model(packages().package(c.file, c.quantization)));
  const auto arrays = test::read_npz(kReference / (std::string(c.reference) + ".npz"));
  double sum = 0, worst = 0;
  int64_t steps = 0, same = 0;
  for (const Json& entry : read_json(kReference / (std::string(c.reference) + ".json"))) {
    const auto name = entry["arrays"].get<std::string>();
    SCOPED_TRACE("prompt " + name);
    const auto prompt_ids = entry["prompt_token_ids"].get<std::vector<int32_t>>();
    const auto reply = entry["greedy_token_ids"].get<std::vector<int32_t>>();
    engine::Prompt prompt;
    if (entry["input"].is_array()) {
      prompt = engine.prompt(conversation_of(entry["input"]));
    } else {
      prompt.ids = engine.model().tokenizer.encode(entry["input"].get<std::string>(), true);
      prompt.modality_ids.assign(prompt.ids.size(), 0);
    }
    ASSERT_EQ(prompt.ids, prompt_ids);
    EXPECT_EQ(engine.model().tokenizer.decode(reply, false), entry["greedy_text"].get<std::string>());
    const test::Array& ids = arrays.at(name + "_ids");
    const test::Array& expected = arrays.at(name + "_logprobs");
    const int64_t width = ids.shape[1];
    library::Rows logits = engine.prefill(prompt);
    for (int64_t step = 0; step < ids.shape[0]; ++step) {
      if (step > 0) logits = engine.decode(reply[static_cast<size_t>(step - 1)]);
      const LogProbabilities actual(logits.row(0));
      const std::span<const float> reference = row(expected.values, width, step);
      const double distance = divergence(row(ids.integers, width, step), reference, actual);
      sum += distance;
      worst = std::max(worst, distance);
      ++steps;
      const int64_t best = actual.best();
      if (best == reply[static_cast<size_t>(step)]) {
        ++same;
        continue;
      }
      std::printf("prompt %s, token %d: %d instead of %d; the reference's first two are %.4f apart\n",
                  name.c_str(), static_cast<int>(step), static_cast<int>(best),
                  reply[static_cast<size_t>(step)], static_cast<double>(reference[0] - reference[1]));
      // Two tokens that are about equally likely may change places.
      if (c.greedy) {
        EXPECT_TRUE(best == row(ids.integers, width, step)[1] && reference[0] - reference[1] < 0.02f)
            << "token " << step;
      }
    }
  }
  const double mean = sum / static_cast<double>(steps);
  std::printf("%s %s: mean KL %.2e, largest %.2e, %d of %d tokens the same\n", c.reference, c.quantization,
              mean, worst, static_cast<int>(same), static_cast<int>(steps));
  EXPECT_LE(mean, c.bound);
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string out = std::string(info.param.reference) + "_" + info.param.quantization;
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

constexpr const char* kSmolLm = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kGemma = "gemma-3-270m-q4_k_m.gguf";

INSTANTIATE_TEST_SUITE_P(All, RealModels,
                         ::testing::Values(Case{kSmolLm, "smollm2-135m-instruct", "q0f16", 1e-3, true},
                                           Case{kSmolLm, "smollm2-135m-instruct", "q8f16_1", 5e-3, false},
                                           Case{kSmolLm, "smollm2-135m-instruct", "q4f16_1", 0.8, false},
                                           Case{kGemma, "gemma-3-270m", "q0f16", 1e-3, true},
                                           Case{kGemma, "gemma-3-270m", "q8f16_1", 5e-3, false},
                                           Case{kGemma, "gemma-3-270m", "q4f16_1", 0.8, false}),
                         case_name);

// The default mode against float32 activations. The perplexities of so short a text say less than the
// divergence, about half of which the second terms of rounded activations take away.
class RoundedActivations : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundedActivations, LoseLittle) {
  if (!fs::exists(model_folder() / GetParam())) {
    GTEST_SKIP() << (model_folder() / GetParam()).string()
                 << " is not there; scripts/fetch-real-models.sh brings it";
  }
  const fs::path package = packages().package(GetParam(), "q4f16_1");
  engine::EngineOptions exact;
  exact.exact = true;
  engine::Engine rounded(library::open_model(package)), reference(library::open_model(package), exact);
  const std::string text =
      read_file(fs::path(DOVETAIL_SOURCE) / "bench" / "quality_text.txt").substr(0, 4000);
  engine::EvaluateOptions options;
  options.context = 512;
  options.stride = 448;
  const engine::Divergence found =
      engine::divergence(rounded, reference, rounded.model().tokenizer.encode(text, false), options);
  std::printf("%s: perplexity %.3f, exact %.3f; mean KL %.2e\n", GetParam(), found.model.perplexity,
              found.reference.perplexity, found.mean);
  EXPECT_LE(found.model.perplexity, 1.005 * found.reference.perplexity);
  EXPECT_LE(found.mean, 2.3e-3);
}

INSTANTIATE_TEST_SUITE_P(All, RoundedActivations, ::testing::Values(kSmolLm, kGemma),
                         [](const auto& info) { return info.param == kGemma ? "Gemma3" : "SmolLM2"; });

// A text of four sliding windows: every way to fill the cache gives the same distributions around its
// borders.
class SlidingWindow : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(model_folder() / kGemma)) {
      GTEST_SKIP() << (model_folder() / kGemma).string()
                   << " is not there; scripts/fetch-real-models.sh brings it";
    }
    const Json reference = read_json(kReference / "gemma-3-270m-window.json");
    ids_ = reference["token_ids"].get<std::vector<int32_t>>();
    positions_ = reference["positions"].get<std::vector<int64_t>>();
    loss_ = reference["mean_nll_of_tokens_1_to_699"].get<double>();
    arrays_ = test::read_npz(kReference / "gemma-3-270m-window.npz");
    model_.emplace(library::open_model(packages().package(kGemma, "q0f16")));
    library::KvCacheSizes sizes;
    sizes.max_total_length = 4096;
    sizes.prefill_chunk = model_->chat_config.prefill_chunk_size;
    model_->program.create_kv_cache(sizes);
    model_->program.kv_add_sequence(0);
  }

  library::Rows append(int64_t begin, int64_t end) {
    const library::Program& program = model_->program;
    const auto ids = std::span(ids_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    const std::vector<int64_t> sequences{0}, lengths{end - begin};
    program.kv_begin_forward(sequences, lengths);
    library::Rows logits = [&] {
      if (end - begin == 1 && begin > 0) return program.decode(ids);
      const library::Rows embeddings = program.embed(ids);
      return program.prefill(embeddings.all(), ids, std::vector<int32_t>(ids.size(), 0));
    }();
    program.kv_end_forward();
    return logits;
  }

  void restart() {
    model_->program.kv_remove_sequence(0);
    model_->program.kv_add_sequence(0);
  }

  void check(size_t index, const library::Rows& logits) {
    const int64_t width = arrays_.at("ids").shape[1];
    const auto i = static_cast<int64_t>(index);
    const double distance =
        divergence(row(arrays_.at("ids").integers, width, i), row(arrays_.at("logprobs").values, width, i),
                   LogProbabilities(logits.row(0)));
    worst_ = std::max(worst_, distance);
    EXPECT_LE(distance, 1e-3) << "position " << positions_[index];
  }

  void TearDown() override {
    if (model_) std::printf("largest KL %.2e\n", worst_);
  }

  std::vector<int32_t> ids_;
  std::vector<int64_t> positions_;
  std::map<std::string, test::Array> arrays_;
  std::optional<library::Model> model_;
  double loss_ = 0;
  double worst_ = 0;
};

TEST_F(SlidingWindow, PrefilledAtOnce) {
  // In the chunks that a chat would use.
  const int64_t chunk = model_->chat_config.prefill_chunk_size;
  for (size_t i = 0; i < positions_.size(); ++i) {
    // Each of these is a prefill of its own: the borders of the window, and the longest.
    if (positions_[i] > 514 && positions_[i] != 1024 && i + 1 != positions_.size()) continue;
    restart();
    for (int64_t begin = 0; begin <= positions_[i]; begin += chunk) {
      const int64_t end = std::min(begin + chunk, positions_[i] + 1);
      const library::Rows logits = append(begin, end);
      if (end == positions_[i] + 1) check(i, logits);
    }
  }
}

TEST_F(SlidingWindow, InChunksOf64) {
  int64_t begin = 0;
  for (size_t i = 0; i < positions_.size(); ++i) {
    while (begin <= positions_[i]) {
      const int64_t end = std::min(begin + 64, positions_[i] + 1);
      const library::Rows logits = append(begin, end);
      if (end == positions_[i] + 1) check(i, logits);
      begin = end;
    }
  }
}

TEST_F(SlidingWindow, TokenByToken) {
  // The stretches between the first two borders of the window and the later positions go in at once.
  const auto one_by_one = [](int64_t position) {
    return position < 1030 || (position >= 1530 && position < 1536) || position >= 2040;
  };
  double loss = 0;
  size_t next = 0;
  for (int64_t position = 0; position <= positions_.back();) {
    int64_t end = position + 1;
    while (!one_by_one(position) && !one_by_one(end) && end - position < 512) ++end;
    const library::Rows logits = append(position, end);
    position = end;
    if (end < 700) loss -= LogProbabilities(logits.row(0))(ids_[static_cast<size_t>(end)]);
    if (end - 1 == positions_[next]) check(next++, logits);
  }
  EXPECT_EQ(next, positions_.size());
  loss /= 699;
  std::printf("mean negative log-likelihood %.5f, reference %.5f\n", loss, loss_);
  EXPECT_NEAR(loss, loss_, 0.005 * loss_);
}

}  // namespace
}  // namespace dovetail
