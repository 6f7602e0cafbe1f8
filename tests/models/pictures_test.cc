// LLaVA and Gemma 3 against the original implementation (examples/*-tiny-shapes/reference), in this process:
// stages of the vision towers, logits, replies. Pixels are the reference's; tests/media compares decoding and
// resizing.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "models/gemma3_plan.h"
#include "models/llama.h"
#include "models/llama_plan.h"
#include "support/model_harness.h"
#include "support/npz.h"

namespace dovetail::models {
namespace {

namespace fs = std::filesystem;
using LlavaModel = Llava<LlavaRuntimeConfig>;
using Gemma3Model = Gemma3<Gemma3RuntimeConfig>;

fs::path example(const char* name) { return fs::path(DOVETAIL_EXAMPLES) / name; }

template <class Model>
struct Family;

template <>
struct Family<LlavaModel> {
  using Config = LlavaRuntimeConfig;
  static constexpr const char* kExample = "llava-tiny-shapes";
  static Config config() {
    return {parse_llava_config(read_json(example(kExample) / "config.json"), "config.json")};
  }
  static float row_scale(const LlavaModel&) { return 1.0f; }
  static void forward(LlavaModel& model, ops::Context& context, KvCache& kv,
                      const std::vector<float>& embeddings, std::span<const int32_t>,
                      std::span<const int32_t>, float* logits) {
    model.prefill(context, kv, embeddings.data(), logits);
  }
};

template <>
struct Family<Gemma3Model> {
  using Config = Gemma3RuntimeConfig;
  static constexpr const char* kExample = "gemma3-tiny-shapes";
  static Config config() {
    return {parse_gemma3_config(read_json(example(kExample) / "config.json"), "config.json")};
  }
  // What a pass multiplies all embeddings with.
  static float row_scale(const Gemma3Model& model) {
    return std::sqrt(static_cast<float>(model.hidden_size()));
  }
  static void forward(Gemma3Model& model, ops::Context& context, KvCache& kv,
                      const std::vector<float>& embeddings, std::span<const int32_t> ids,
                      std::span<const int32_t> modality, float* logits) {
    model.prefill_tokens(context, kv, embeddings.data(), ids, modality, logits);
  }
};

// The reference models had been cast to bfloat16 and back, which rounded their rotary frequencies (they are
// no weights, so a checkpoint does not hold them). With the same frequencies the logits must agree to 2e-3;
// with the exact ones, which transformers computes when it loads the checkpoint, replies must still be the
// same.
template <class Model>
auto& load(const std::string& quantization, bool rounded_frequencies) {
  using Entry = Loaded<Model, typename Family<Model>::Config>;
  static std::map<std::pair<std::string, bool>, std::unique_ptr<Entry>> all;
  std::unique_ptr<Entry>& entry = all[{quantization, rounded_frequencies}];
  if (!entry) {
    entry = std::make_unique<Entry>(example(Family<Model>::kExample), Family<Model>::config(), quantization);
    if (rounded_frequencies) {
      for (std::vector<float>* table : entry->model.rotary_tables()) {
        for (float& frequency : *table) frequency = bf16_to_f32(f32_to_bf16(frequency));
      }
    }
  }
  return *entry;
}

template <class Model>
std::vector<float> append(ops::Context& context, Loaded<Model, typename Family<Model>::Config>& loaded,
                          KvCache& cache, const std::vector<int32_t>& ids, const std::vector<float>& rows,
                          int32_t placeholder) {
  const auto hidden = static_cast<size_t>(loaded.model.hidden_size());
  std::vector<float> embeddings(ids.size() * hidden), logits(static_cast<size_t>(loaded.model.vocab_size()));
  loaded.model.embed(context, ids, embeddings.data());
  std::vector<int32_t> modality;
  size_t row = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    modality.push_back(!rows.empty() && ids[i] == placeholder);
    if (modality.back() != 0)
      std::memcpy(&embeddings[i * hidden], &rows[hidden * row++], hidden * sizeof(float));
  }
  EXPECT_EQ(row * hidden, rows.size());
  const int64_t sequence = 0, length = static_cast<int64_t>(ids.size());
  cache.begin_forward({&sequence, 1}, {&length, 1});
  Family<Model>::forward(loaded.model, context, cache, embeddings, ids, modality, logits.data());
  cache.end_forward();
  return logits;
}

struct Agreement {
  float logits = 0;
  int cases = 0;
  int different = 0;    // replies that differ
  int unexplained = 0;  // of these, where the reference's lead was larger than the tolerance
};

template <class Model>
Agreement compare(ops::Context& context, const std::string& quantization, const std::string& reference,
                  bool rounded_frequencies, float tolerance) {
  auto& loaded = load<Model>(quantization, rounded_frequencies);
  const fs::path folder = example(Family<Model>::kExample);
  const Json cases = read_json(folder / "reference" / "cases.json")["cases"];
  const auto arrays = test::read_npz(folder / "reference" / "logits.npz");
  const int32_t placeholder = read_json(folder / "config.json")["image_token_index"];
  const auto vocab = static_cast<size_t>(loaded.model.vocab_size());
  Agreement out;
  for (const Json& entry : cases) {
    const std::vector<float> rows =
        entry.contains("picture")
            ? loaded.model.image(context, arrays.at(entry["pixels"].template get<std::string>()).bytes)
            : std::vector<float>{};
    const auto cache = loaded.new_cache(context);
    std::vector<float> row =
        append<Model>(context, loaded, *cache, entry["prompt_token_ids"].template get<std::vector<int32_t>>(),
                      rows, placeholder);
    const auto reply = entry[reference]["reply_token_ids"].template get<std::vector<int32_t>>();
    const test::Array& expected = arrays.at(entry[reference]["logits"].template get<std::string>());
    bool same = true, explained = true;
    for (size_t i = 0; i <= reply.size(); ++i) {
      const std::span<const float> wanted = std::span(expected.values).subspan(i * vocab, vocab);
      out.logits = std::max(out.logits, largest_difference(wanted, row));
      if (best(row) != best(wanted)) {
        same = false;
        explained = explained && lead(wanted) < tolerance;
      }
      if (i < reply.size()) row = append<Model>(context, loaded, *cache, {reply[i]}, {}, placeholder);
    }
    ++out.cases;
    out.different += same ? 0 : 1;
    out.unexplained += same || explained ? 0 : 1;
  }
  return out;
}

template <class Model>
void expect_stages(ops::Level level) {
  auto& loaded = load<Model>("q0f32", false);
  ops::Context context(level, 2);
  const fs::path folder = example(Family<Model>::kExample) / "reference";
  const auto expected = test::read_npz(folder / "adapter_stages_f32.npz");
  VitStages stages;
  std::vector<float> rows =
      loaded.model.image(context, test::read_npz(folder / "logits.npz").at("0_pixels").bytes, &stages);
  for (float& value : rows) value *= Family<Model>::row_scale(loaded.model);
  EXPECT_LE(largest_difference(stages.after_patch_embedding, expected.at("after_patch_embedding").values),
            2e-3f);
  EXPECT_LE(largest_difference(stages.after_first_layer, expected.at("after_vision_layer_0").values), 2e-3f);
  EXPECT_LE(largest_difference(rows, expected.at("adapter_output").values), 2e-3f);
}

template <class Model>
void expect_agreement(ops::Level level) {
  ops::Context context(level, 2), exact(level, 2);
  exact.precision = ops::Precision::kExact;
  const Agreement plain = compare<Model>(context, "q0f32", "f32", true, 2e-3f);
  EXPECT_GE(plain.cases, 16);
  EXPECT_LE(plain.logits, 2e-3f);
  EXPECT_EQ(plain.unexplained, 0);
  const Agreement four_bit = compare<Model>(exact, "q4f16_1", "q4f16_1", true, 2e-2f);
  EXPECT_LE(four_bit.logits, 2e-2f);
  EXPECT_EQ(four_bit.unexplained, 0);

  const Agreement own_plain = compare<Model>(context, "q0f32", "f32", false, 2e-2f);
  EXPECT_LE(own_plain.logits, 2e-2f);
  EXPECT_EQ(own_plain.unexplained, 0);
  const Agreement rounded = compare<Model>(context, "q4f16_1", "q4f16_1", false, 0);
  EXPECT_LE(rounded.different * 10, rounded.cases);
  std::printf(
      "%s, %s: q0f32 within %.5f (%.5f with exact frequencies), q4f16_1 exact within %.4f, int8 activations: "
      "%d of %d replies differ\n",
      Family<Model>::kExample, std::string(ops::level_name(level)).c_str(), plain.logits, own_plain.logits,
      four_bit.logits, rounded.different, rounded.cases);
}

TEST_P(EveryLevel, LlavaTowerAgreesWithTheOriginal) { expect_stages<LlavaModel>(GetParam()); }
TEST_P(EveryLevel, LlavaAgreesWithTheOriginal) { expect_agreement<LlavaModel>(GetParam()); }
TEST_P(EveryLevel, Gemma3TowerAgreesWithTheOriginal) { expect_stages<Gemma3Model>(GetParam()); }
TEST_P(EveryLevel, Gemma3AgreesWithTheOriginal) { expect_agreement<Gemma3Model>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Pictures, EveryLevel, ::testing::ValuesIn(runnable_levels()),
                         [](const auto& info) { return level_label(info.param); });

}  // namespace
}  // namespace dovetail::models
