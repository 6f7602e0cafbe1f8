// Every quantization against itself in float32: the stored weights, taken apart here and bound to the same
// model as q0f32, must give the logits that the kernels give. And what a quantization costs, as a divergence
// of the distributions from those of the original weights.
#include <cstring>
#include <random>

#include "convert/checkpoint_fixture.h"
#include "models/gemma4.h"
#include "models/gemma4_plan.h"
#include "models/llama.h"
#include "models/llama_plan.h"
#include "support/model_harness.h"

namespace dovetail::models {
namespace {

namespace fs = std::filesystem;

const fs::path kLlama = fs::path(DOVETAIL_TEST_DATA) / "mlc-packages" / "llama_tiny" / "hf";
const fs::path kGemma = fs::path(DOVETAIL_EXAMPLES) / "gemma4-tiny-speech";

using LlamaModel = Llama<LlamaRuntimeConfig>;
using GemmaModel = Gemma4<Gemma4RuntimeConfig>;

float number(const TensorRef& tensor, int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(tensor.data);
  if (tensor.dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, bytes + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * index, 2);
  return tensor.dtype == DType::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// A quantized weight as the formats describe it (docs/packages.md).
std::vector<float> take_apart(const Quantization& quantization, const Weight& weight, const TensorRef& words,
                              const TensorRef& scales) {
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  const int64_t group = quantization.bits == 3 ? 40 : 32, per_word = 32 / quantization.bits;
  const int64_t groups = (cols + group - 1) / group, row_words = groups * group / per_word;
  const auto at = [&](int64_t row, int64_t col, int64_t width) {
    return weight.transposed ? col * rows + row : row * width + col;
  };
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      uint32_t word;
      std::memcpy(&word, static_cast<const std::byte*>(words.data) + 4 * at(row, col / per_word, row_words),
                  4);
      const int bits = quantization.bits;
      const int q = static_cast<int>(word >> (col % per_word * bits) & ((1u << bits) - 1));
      out[static_cast<size_t>(row * cols + col)] =
          static_cast<float>(q - ((1 << (bits - 1)) - 1)) * number(scales, at(row, col / group, groups));
    }
  }
  return out;
}

// The same weights, all in float32.
template <class Model, class Config>
struct Float32 {
  Float32(const Loaded<Model, Config>& loaded, const Config& config)
      : tree(find_quantization("q0f32")), model(tree, config) {
    const auto stored = [&](size_t index) {
      const package::StoredTensor& tensor = loaded.cache.get(loaded.tree.parameters()[index].name);
      return TensorRef{loaded.cache.bytes(tensor).data(), tensor.shape, tensor.dtype};
    };
    values.reserve(tree.weights().size());
    std::vector<TensorRef> tensors;
    for (const Weight& weight : loaded.tree.weights()) {
      const TensorRef first = stored(weight.first_parameter);
      if (weight.quantized) {
        values.push_back(
            take_apart(loaded.tree.quantization(), weight, first, stored(weight.first_parameter + 1)));
      } else {
        int64_t count = 1;
        for (const int64_t dim : weight.shape) count *= dim;
        std::vector<float>& out = values.emplace_back(static_cast<size_t>(count));
        for (size_t i = 0; i < out.size(); ++i) out[i] = number(first, static_cast<int64_t>(i));
      }
      tensors.push_back({values.back().data(), weight.shape, DType::kFloat32});
    }
    tree.bind(tensors);
  }

  std::unique_ptr<KvCache> new_cache(const ops::Context&) const {
    auto out = std::make_unique<KvCache>(model.kv_layers(), KvCacheSize{1, 2048, 1024, 16}, DType::kFloat32);
    out->add_sequence(0);
    return out;
  }

  ParameterTree tree;
  Model model;
  std::vector<std::vector<float>> values;
};

std::vector<int32_t> some_ids(int64_t count, int64_t vocab) {
  std::mt19937 random(17);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
  return out;
}

void pass(ops::Context& context, LlamaModel& model, KvCache& cache, std::span<const int32_t> ids,
          float* logits) {
  std::vector<float> embeddings(ids.size() * static_cast<size_t>(model.hidden_size()));
  model.embed(context, ids, embeddings.data());
  model.prefill(context, cache, embeddings.data(), logits);
}

void pass(ops::Context& context, GemmaModel& model, KvCache& cache, std::span<const int32_t> ids,
          float* logits) {
  std::vector<float> embeddings(ids.size() * static_cast<size_t>(model.hidden_size()));
  model.embed(context, ids, embeddings.data());
  const std::vector<int32_t> text(ids.size(), 0);
  model.prefill_tokens(context, cache, embeddings.data(), ids, text, logits);
}

// The logits after a prompt, and after each of a few more tokens.
template <class Any>
std::vector<std::vector<float>> run(ops::Context& context, Any&& loaded) {
  const int64_t vocab = loaded.model.vocab_size();
  const std::vector<int32_t> ids = some_ids(40, vocab);
  const auto cache = loaded.new_cache(context);
  std::vector<std::vector<float>> out;
  for (size_t at = 0; at < ids.size();) {
    const size_t count = at == 0 ? 24 : 1;
    const int64_t sequence = 0, length = static_cast<int64_t>(count);
    cache->begin_forward({&sequence, 1}, {&length, 1});
    pass(context, loaded.model, *cache, std::span(ids).subspan(at, count),
         out.emplace_back(static_cast<size_t>(vocab)).data());
    cache->end_forward();
    at += count;
  }
  return out;
}

double mean_divergence(const std::vector<std::vector<float>>& reference,
                       const std::vector<std::vector<float>>& actual) {
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) sum += divergence(reference[i], actual[i]);
  return sum / static_cast<double>(reference.size());
}

struct Limits {
  double quantization;  // mean divergence of exact logits from those of the original weights
  double rounding;      // what int8 activations add, measured against exact logits of the same weights
};

// Measured, with a margin of two to three.
Limits limits_for(const Quantization& quantization) {
  switch (quantization.bits) {
    case 0:
      return {1e-6, 1e-6};  // a key-value cache in float16
    case 8:
      return {2e-4, 5e-5};
    case 3:
      return {0.3, 5e-5};
    default:
      return {0.06, 5e-5};
  }
}

template <class Model, class Config>
void check(const fs::path& checkpoint, const Config& config, ops::Level level) {
  ops::Context context(level, 2);
  context.precision = ops::Precision::kExact;
  const std::vector<std::vector<float>> original =
      run(context, Loaded<Model, Config>(checkpoint, config, "q0f32"));
  for (const Quantization& quantization : quantizations()) {
    const std::string name(quantization.name);
    Loaded<Model, Config> loaded(checkpoint, config, name);
    context.precision = ops::Precision::kExact;
    const std::vector<std::vector<float>> exact = run(context, loaded);
    const std::vector<std::vector<float>> float32 = run(context, Float32<Model, Config>(loaded, config));
    float largest = 0;
    for (size_t i = 0; i < exact.size(); ++i)
      largest = std::max(largest, largest_difference(exact[i], float32[i]));
    EXPECT_LE(largest, 1e-5f) << name;
    context.precision = ops::Precision::kInt8;
    const double cost = mean_divergence(original, exact);
    const double rounding = mean_divergence(exact, run(context, loaded));
    const Limits limits = limits_for(quantization);
    EXPECT_LE(cost, limits.quantization) << name;
    EXPECT_LE(rounding, limits.rounding) << name;
    ::testing::Test::RecordProperty(name, std::to_string(cost) + " " + std::to_string(rounding));
    std::printf("%-9s exact mode: %.1e from float32; divergence %.1e, of int8 activations %.1e\n",
                name.c_str(), static_cast<double>(largest), cost, rounding);
  }
}

TEST_P(EveryLevel, EveryQuantizationOfLlama) {
  check<LlamaModel, LlamaRuntimeConfig>(
      kLlama, {parse_llama_config(read_json(kLlama / "config.json"), "config.json")}, GetParam());
}

TEST_P(EveryLevel, EveryQuantizationOfGemma4) {
  check<GemmaModel, Gemma4RuntimeConfig>(
      kGemma, {parse_gemma4_config(read_json(kGemma / "config.json"), "config.json")}, GetParam());
}

// A model of one layer with these widths, and the tokenizer and vocabulary of llama_tiny.
Json write_llama(const fs::path& dir, int64_t hidden, int64_t inner) {
  using dovetail::testing::TestTensor;
  Json config = read_json(kLlama / "config.json");
  for (const auto& [name, value] : {std::pair{"hidden_size", hidden},
                                    {"intermediate_size", inner},
                                    {"num_hidden_layers", int64_t{1}},
                                    {"num_attention_heads", int64_t{2}},
                                    {"num_key_value_heads", int64_t{1}},
                                    {"head_dim", int64_t{6}}})
    config[name] = value;
  std::vector<TestTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.push_back(
        dovetail::testing::bf16_tensor(name, std::move(shape), 0.01f * static_cast<float>(tensors.size())));
  };
  const std::string layer = "model.layers.0.";
  add("model.embed_tokens.weight", {320, hidden});
  add("lm_head.weight", {320, hidden});
  add("model.norm.weight", {hidden});
  add(layer + "input_layernorm.weight", {hidden});
  add(layer + "post_attention_layernorm.weight", {hidden});
  add(layer + "self_attn.q_proj.weight", {12, hidden});
  add(layer + "self_attn.k_proj.weight", {6, hidden});
  add(layer + "self_attn.v_proj.weight", {6, hidden});
  add(layer + "self_attn.o_proj.weight", {hidden, 12});
  add(layer + "mlp.gate_proj.weight", {inner, hidden});
  add(layer + "mlp.up_proj.weight", {inner, hidden});
  add(layer + "mlp.down_proj.weight", {hidden, inner});
  dovetail::testing::write_checkpoint(dir, tensors);
  dovetail::testing::write_text(dir / "config.json", config.dump());
  return config;
}

TEST_P(EveryLevel, RowsWhoseLastGroupIsNotFull) {
  ops::Context context(GetParam(), 2);
  context.precision = ops::Precision::kExact;
  for (const auto& [hidden, inner] : {std::pair<int64_t, int64_t>{48, 100}, {100, 48}, {1, 1}}) {
    const dovetail::testing::TempDir dir;
    const Json config = write_llama(dir / "hf", hidden, inner);
    const LlamaRuntimeConfig parsed{parse_llama_config(config, "config.json")};
    for (const Quantization& quantization : quantizations()) {
      const std::string name(quantization.name);
      Loaded<LlamaModel, LlamaRuntimeConfig> loaded(dir / "hf", parsed, name);
      const auto exact = run(context, loaded);
      const auto float32 = run(context, Float32<LlamaModel, LlamaRuntimeConfig>(loaded, parsed));
      for (size_t i = 0; i < exact.size(); ++i) {
        const float scale = std::max(1.0f, *std::max_element(float32[i].begin(), float32[i].end()));
        EXPECT_LE(largest_difference(exact[i], float32[i]) / scale, 1e-5f)
            << name << " " << hidden << " " << inner;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Quantizations, EveryLevel, ::testing::ValuesIn(runnable_levels()),
                         [](const auto& info) { return level_label(info.param); });

}  // namespace
}  // namespace dovetail::models
