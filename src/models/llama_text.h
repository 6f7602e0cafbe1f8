// Llama's text model, alone (llama.h) and under LLaVA (llava.h). Source: transformers, modeling_llama.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/kv_cache.h"
#include "models/parameters.h"
#include "models/rotary.h"
#include "models/rows.h"
#include "ops/ops.h"

namespace dovetail::models {

// Literal type: part of the constant of a compiled library.
struct LlamaTextConfig {
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t context_length = 0;
  bool tied_embeddings = false;
  float rms_norm_eps = 0;
  RotaryConfig rotary;
};

class LlamaText {
 public:
  // Parameters are named "<prefix>model.…" and "<prefix>lm_head".
  LlamaText(ParameterTree& tree, const LlamaTextConfig& config, const std::string& prefix)
      : config_(config), layers_(static_cast<size_t>(config.num_layers)) {
    const LlamaTextConfig& c = config_;
    const auto linear = [&](ops::Matrix& out, const std::string& name, int64_t rows, int64_t cols,
                            const std::vector<std::string>& parts) {
      Source source;
      for (const std::string& part : parts)
        source.tensors.push_back(name.substr(0, name.rfind('.') + 1) + part + ".weight");
      tree.matrix(out, name, rows, cols, std::move(source));
    };
    tree.vocab_table(embed_tokens_, prefix + "model.embed_tokens", c.vocab_size, c.hidden_size,
                     from(prefix + "model.embed_tokens.weight"));
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const std::string name = prefix + "model.layers." + std::to_string(i);
      linear(layer.qkv, name + ".self_attn.qkv_proj", (c.num_heads + 2 * c.kv_heads) * c.head_dim,
             c.hidden_size, {"q_proj", "k_proj", "v_proj"});
      linear(layer.out, name + ".self_attn.o_proj", c.hidden_size, c.num_heads * c.head_dim, {"o_proj"});
      linear(layer.gate_up, name + ".mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size,
             {"gate_proj", "up_proj"});
      linear(layer.down, name + ".mlp.down_proj", c.hidden_size, c.intermediate_size, {"down_proj"});
      tree.values(layer.input_norm, name + ".input_layernorm.weight", {c.hidden_size},
                  from(name + ".input_layernorm.weight"));
      tree.values(layer.post_norm, name + ".post_attention_layernorm.weight", {c.hidden_size},
                  from(name + ".post_attention_layernorm.weight"));
    }
    tree.values(norm_, prefix + "model.norm.weight", {c.hidden_size}, from(prefix + "model.norm.weight"));
    if (!c.tied_embeddings)
      tree.vocab_matrix(head_, prefix + "lm_head", c.vocab_size, c.hidden_size,
                        from(prefix + "lm_head.weight"));
    angles_.frequencies = rotary_frequencies(c.rotary, c.head_dim);
  }
  LlamaText(const LlamaText&) = delete;
  LlamaText& operator=(const LlamaText&) = delete;

  const LlamaTextConfig& config() const { return config_; }
  std::vector<KvLayer> kv_layers() const {
    return std::vector<KvLayer>(layers_.size(), {config_.kv_heads, config_.head_dim, 0});
  }

  // The frequencies in use; tests round them as a reference implementation did.
  std::vector<std::vector<float>*> rotary_tables() { return {&angles_.frequencies}; }

  void embed(ops::Context& context, std::span<const int32_t> ids, float* out) const {
    ops::embed_rows(context, embed_tokens_, ids, 1.0f, out);
  }

  // Appends the positions of kv.batch(): embeddings [total, hidden], logits [wanted rows, vocab].
  void forward(ops::Context& context, KvCache& kv, const float* embeddings, float* logits,
               LogitRows wanted = LogitRows::kLast) {
    const LlamaTextConfig& c = config_;
    Rows rows(kv, wanted);
    angles_.fill(rows);
    x_.assign(embeddings, embeddings + rows.count() * c.hidden_size);
    for (size_t i = 0; i < layers_.size(); ++i) layer(context, kv, i, rows);
    x_ = rows.wanted_of(x_.data(), c.hidden_size);
    const auto count = static_cast<int64_t>(rows.wanted().size());
    ops::rms_norm(context, x_.data(), count, c.hidden_size, norm_.data(), c.rms_norm_eps, x_.data());
    ops::matmul(context, x_.data(), count, c.tied_embeddings ? embed_tokens_ : head_, logits);
  }

 private:
  struct Layer {
    ops::Matrix qkv, out, gate_up, down;
    std::vector<float> input_norm, post_norm;
  };

  void layer(ops::Context& context, KvCache& kv, size_t index, const Rows& rows) {
    const LlamaTextConfig& c = config_;
    const Layer& w = layers_[index];
    const int64_t m = rows.count(), hidden = c.hidden_size, n = m * hidden;
    const int64_t q_width = int64_t{c.num_heads} * c.head_dim, kv_width = int64_t{c.kv_heads} * c.head_dim;
    a_.resize(static_cast<size_t>(n));
    ops::rms_norm(context, x_.data(), m, hidden, w.input_norm.data(), c.rms_norm_eps, a_.data());
    // The three parts are computed apart, so that each lies densely.
    q_.resize(static_cast<size_t>(m * q_width));
    k_.resize(static_cast<size_t>(m * kv_width));
    v_.resize(k_.size());
    const ops::Matrix wq = row_range(w.qkv, 0, q_width), wk = row_range(w.qkv, q_width, kv_width),
                      wv = row_range(w.qkv, q_width + kv_width, kv_width);
    const ops::Product products[] = {{&wq, q_.data()}, {&wk, k_.data()}, {&wv, v_.data()}};
    ops::matmul(context, a_.data(), m, products);
    ops::rope(context, q_.data(), m, c.num_heads, c.head_dim, angles_.cos.data(), angles_.sin.data());
    ops::rope(context, k_.data(), m, c.kv_heads, c.head_dim, angles_.cos.data(), angles_.sin.data());
    attended_.resize(q_.size());
    attend(context, kv, index, rows,
           {.heads = c.num_heads,
            .head_dim = c.head_dim,
            .kv_heads = c.kv_heads,
            .window = 0,
            .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
            .q = q_.data(),
            .k = k_.data(),
            .v = v_.data(),
            .out = attended_.data()});
    ops::matmul(context, attended_.data(), m, w.out, a_.data());
    ops::add_scaled(context, a_.data(), 1.0f, x_.data(), n);

    ops::rms_norm(context, x_.data(), m, hidden, w.post_norm.data(), c.rms_norm_eps, a_.data());
    wide_.resize(static_cast<size_t>(m * 2 * c.intermediate_size));
    ops::matmul(context, a_.data(), m, w.gate_up, wide_.data());
    gated_.resize(static_cast<size_t>(m * c.intermediate_size));
    ops::silu_gate(context, wide_.data(), m, c.intermediate_size, gated_.data());
    ops::matmul(context, gated_.data(), m, w.down, a_.data());
    ops::add_scaled(context, a_.data(), 1.0f, x_.data(), n);
  }

  LlamaTextConfig config_;
  ops::Matrix embed_tokens_, head_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  Angles angles_;
  std::vector<float> x_, a_, q_, k_, v_, attended_, wide_, gated_;
};

}  // namespace dovetail::models
