// Llama against the logits that MLC's own library computed
// (tests/data/mlc-packages/llama_tiny/*/logits.json). MLC computes q0f16 and q4f16_1 in float16, and its
// q4f32_1 package holds the scales rounded to bfloat16, which ours does not; both cost about 1e-2.
#include "models/llama.h"

#include <gtest/gtest.h>

#include "models/llama_plan.h"
#include "support/model_harness.h"

namespace dovetail::models {
namespace {

namespace fs = std::filesystem;
using LlamaModel = Llama<LlamaRuntimeConfig>;

const fs::path kFolder = fs::path(DOVETAIL_TEST_DATA) / "mlc-packages" / "llama_tiny";

std::vector<float> append(ops::Context& context, Loaded<LlamaModel, LlamaRuntimeConfig>& loaded,
                          KvCache& cache, const std::vector<int32_t>& ids) {
  std::vector<float> embeddings(ids.size() * static_cast<size_t>(loaded.model.hidden_size()));
  std::vector<float> logits(static_cast<size_t>(loaded.model.vocab_size()));
  loaded.model.embed(context, ids, embeddings.data());
  const int64_t sequence = 0, length = static_cast<int64_t>(ids.size());
  cache.begin_forward({&sequence, 1}, {&length, 1});
  loaded.model.prefill(context, cache, embeddings.data(), logits.data());
  cache.end_forward();
  return logits;
}

TEST_P(EveryLevel, AgreesWithMlc) {
  const Json config = read_json(kFolder / "hf" / "config.json");
  constexpr float kTolerance = 2e-2f;
  for (const char* quantization : {"q0f16", "q4f16_1", "q4f32_1"}) {
    Loaded<LlamaModel, LlamaRuntimeConfig> loaded(kFolder / "hf", {parse_llama_config(config, "config.json")},
                                                  quantization);
    ops::Context context(GetParam(), 2);
    context.precision = ops::Precision::kExact;
    const Json reference = read_json(kFolder / quantization / "logits.json");
    const auto cache = loaded.new_cache(context);
    const std::vector<float> first =
        append(context, loaded, *cache, reference["prompt_ids"].get<std::vector<int32_t>>());
    EXPECT_LE(largest_difference(first, reference["prefill_logits"].get<std::vector<float>>()), kTolerance)
        << quantization;
    for (const Json& step : reference["decode"]) {
      const std::vector<float> logits = append(context, loaded, *cache, {step["token"].get<int32_t>()});
      EXPECT_LE(largest_difference(logits, step["logits"].get<std::vector<float>>()), kTolerance)
          << quantization;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, EveryLevel, ::testing::ValuesIn(runnable_levels()),
                         [](const auto& info) { return level_label(info.param); });

TEST(Rotary, Llama3ScalingLeavesHighFrequenciesAlone) {
  const RotaryConfig plain{.theta = 500000.0};
  RotaryConfig scaled = plain;
  scaled.scaling = RotaryScaling::kLlama3;
  scaled.factor = 8;
  scaled.high_frequency_factor = 4;
  scaled.original_context = 8192;
  const std::vector<float> a = rotary_frequencies(plain, 128), b = rotary_frequencies(scaled, 128);
  EXPECT_EQ(a.front(), b.front());
  EXPECT_FLOAT_EQ(a.back() / 8, b.back());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(b[i], a[i]);
    EXPECT_GE(b[i], a[i] / 8 * 0.999f);
  }
}

}  // namespace
}  // namespace dovetail::models
