// Small checkpoints and plans made by hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../temp_dir.h"
#include "base/dtype.h"
#include "base/json.h"
#include "models/plan.h"

namespace dovetail::testing {

struct TestTensor {
  std::string name;
  std::string dtype;  // "BF16", …
  std::vector<int64_t> shape;
  std::string bytes;
};

inline TestTensor bf16_tensor(std::string name, std::vector<int64_t> shape, float first = 0.0f) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  std::string bytes(static_cast<size_t>(count) * 2, '\0');
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = f32_to_bf16(first + static_cast<float>(i % 97) / 64.0f - 0.7f);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return {std::move(name), "BF16", std::move(shape), std::move(bytes)};
}

inline std::string safetensors_text(const std::vector<TestTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string out(8, '\0');
  const uint64_t length = text.size();
  std::memcpy(out.data(), &length, 8);
  return out + text + data;
}

inline const std::filesystem::path kMlcPackages = std::filesystem::path(DOVETAIL_TEST_DATA) / "mlc-packages";

// A plan with the given weights, complete enough to be converted.
inline models::ModelPlan make_plan(std::string_view quantization, std::vector<models::Weight> weights,
                                   int64_t vocab_size = 320) {
  models::ModelPlan plan;
  plan.model_type = "test";
  plan.quantization = &models::find_quantization(quantization);
  plan.model_config = Json::object();
  plan.vocab_size = vocab_size;
  plan.context_window_size = 128;
  plan.prefill_chunk_size = 64;
  plan.canonical_name = [](const std::string& name) { return name; };
  plan.conv_template = read_json(kMlcPackages / "llama_tiny/q4f16_1/mlc-chat-config.json")["conv_template"];
  for (models::Weight& weight : weights) {
    weight.quantized = plan.quantization->bits != 0 && weight.shape.size() == 2;
    weight.first_parameter = plan.parameters.size();
    const DType dtype = plan.quantization->model_dtype;
    if (weight.quantized) {
      const std::string base = weight.name.substr(0, weight.name.rfind('.'));
      const int bits = plan.quantization->bits;
      const int64_t size = models::group_size(bits), groups = (weight.shape[1] + size - 1) / size;
      plan.parameters.push_back(
          {base + ".q_weight", {weight.shape[0], groups * models::group_words(bits)}, DType::kUInt32});
      plan.parameters.push_back({base + ".q_scale", {weight.shape[0], groups}, dtype});
    } else {
      plan.parameters.push_back({weight.name, weight.shape, dtype});
    }
  }
  plan.weights = std::move(weights);
  contract::Task task{.executor = "generation", .output = "text"};
  task.inputs.emplace_back("text", contract::Input{.processor = std::string(contract::kTokenizer)});
  plan.tasks = {{std::string(contract::kChatTask), std::move(task)}};
  return plan;
}

inline models::Weight weight_from(const std::string& name, std::vector<int64_t> shape,
                                  std::vector<std::string> tensors) {
  return {.name = name, .shape = std::move(shape), .source = {.tensors = std::move(tensors)}};
}

// The weights of mlc-packages/llama_tiny in MLC's order.
inline std::vector<models::Weight> llama_tiny_weights() {
  std::vector<models::Weight> out;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                       std::vector<std::string> tensors) {
    out.push_back(weight_from(name, std::move(shape), std::move(tensors)));
  };
  add("model.embed_tokens.weight", {320, 64}, {"model.embed_tokens.weight"});
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    add(attention + "qkv_proj.weight", {128, 64},
        {attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"});
    add(attention + "o_proj.weight", {64, 64}, {attention + "o_proj.weight"});
    add(mlp + "gate_up_proj.weight", {224, 64}, {mlp + "gate_proj.weight", mlp + "up_proj.weight"});
    add(mlp + "down_proj.weight", {64, 112}, {mlp + "down_proj.weight"});
    add(layer + "input_layernorm.weight", {64}, {layer + "input_layernorm.weight"});
    add(layer + "post_attention_layernorm.weight", {64}, {layer + "post_attention_layernorm.weight"});
  }
  add("model.norm.weight", {64}, {"model.norm.weight"});
  add("lm_head.weight", {320, 64}, {"lm_head.weight"});
  return out;
}

// A checkpoint folder with the tokenizer of llama_tiny and these tensors.
inline void write_checkpoint(const std::filesystem::path& dir, const std::vector<TestTensor>& tensors) {
  std::filesystem::create_directories(dir);
  std::filesystem::copy_file(kMlcPackages / "llama_tiny/hf/tokenizer.json", dir / "tokenizer.json");
  write_text(dir / "config.json", "{}");
  write_text(dir / "model.safetensors", safetensors_text(tensors));
}

}  // namespace dovetail::testing
