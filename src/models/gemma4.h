// Gemma 4: a text model with per-layer embeddings, sliding-window and full-attention layers and shared keys
// and values, and its audio adapter. One definition: the constructors declare the parameters that conversion
// stores, the functions below compute with them. Source: transformers, modeling_gemma4. docs/models/gemma4.md
// explains it.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/gemma4_audio.h"
#include "models/gemma4_config.h"
#include "models/kv_cache.h"
#include "models/parameters.h"
#include "models/rows.h"
#include "ops/ops.h"

namespace dovetail::models {

// `ConfigSource` has get() → const Gemma4Config&: a constant in a compiled library, a value elsewhere.
template <class ConfigSource>
class Gemma4 {
 public:
  Gemma4(ParameterTree& tree, const ConfigSource& source) : source_(source) {
    const Gemma4TextConfig& c = config();
    const std::string root = "language_model.";
    tree.table(embed_tokens_, root + "embed_tokens", c.vocab_size, c.hidden_size,
               from(root + "embed_tokens.weight"));
    // The checkpoint packs the tables of all layers side by side.
    per_layer_tables_.resize(static_cast<size_t>(c.num_layers));
    for (int32_t i = 0; i < c.num_layers; ++i) {
      tree.gathered_table(per_layer_tables_[static_cast<size_t>(i)],
                          root + "embed_tokens_per_layer." + std::to_string(i), c.vocab_size,
                          c.per_layer_size,
                          Source{.tensors = {root + "embed_tokens_per_layer.weight"},
                                 .column_begin = int64_t{i} * c.per_layer_size,
                                 .columns = int64_t{c.num_layers} * c.per_layer_size});
    }
    const int64_t per_layer_rows = int64_t{c.num_layers} * c.per_layer_size;
    tree.plain_matrix(per_layer_projection_, root + "per_layer_model_projection.weight",
                      {per_layer_rows, c.hidden_size}, from(root + "per_layer_model_projection.weight"));
    tree.values(per_layer_norm_, root + "per_layer_projection_norm.weight", {c.per_layer_size},
                from(root + "per_layer_projection_norm.weight"));
    layers_.reserve(static_cast<size_t>(c.num_layers));
    for (int32_t i = 0; i < c.num_layers; ++i)
      layers_.emplace_back(tree, c, i, root + "layers." + std::to_string(i));
    tree.values(norm_, root + "norm.weight", {c.hidden_size}, from(root + "norm.weight"));
    audio_.emplace(tree, source);

    for (int32_t i = 0; i < c.num_layers; ++i) {
      const Gemma4Layer& layer = c.layers[static_cast<size_t>(i)];
      (layer.sliding ? sliding_angles_ : full_angles_).frequencies =
          layer.sliding ? rotary_frequencies(layer.head_dim, c.sliding_rope_theta, 1.0)
                        : rotary_frequencies(layer.head_dim, c.full_rope_theta, c.full_rotary_factor);
    }
    int32_t stored = 0;
    for (int32_t i = 0; i < c.num_layers; ++i) {
      kv_index_.push_back(c.layers[static_cast<size_t>(i)].kv_source == i ? stored++ : -1);
    }
    for (int32_t i = 0; i < c.num_layers; ++i) {
      kv_index_[static_cast<size_t>(i)] =
          kv_index_[static_cast<size_t>(c.layers[static_cast<size_t>(i)].kv_source)];
    }
  }
  Gemma4(const Gemma4&) = delete;
  Gemma4& operator=(const Gemma4&) = delete;

  int32_t vocab_size() const { return config().vocab_size; }
  int32_t hidden_size() const { return config().hidden_size; }
  std::vector<KvLayer> kv_layers() const {
    std::vector<KvLayer> out;
    for (int32_t i = 0; i < config().num_layers; ++i) {
      const Gemma4Layer& layer = config().layers[static_cast<size_t>(i)];
      if (layer.kv_source == i)
        out.push_back({layer.kv_heads, layer.head_dim, layer.sliding ? config().sliding_window : 0});
    }
    return out;
  }

  // out [n, hidden]: scaled token embeddings. Ids in [0, vocab_size).
  void embed(ops::Context& context, std::span<const int32_t> ids, float* out) const {
    ops::embed_rows(context, embed_tokens_, ids, std::sqrt(static_cast<float>(config().hidden_size)), out);
  }

  // Appends the positions of kv.batch() and writes logits [wanted rows, vocab]. embeddings [total, hidden];
  // ids and modality [total], modality 1 marks rows that an adapter made.
  void prefill_tokens(ops::Context& context, KvCache& kv, const float* embeddings,
                      std::span<const int32_t> ids, std::span<const int32_t> modality, float* logits,
                      LogitRows wanted = LogitRows::kLast) {
    const Gemma4TextConfig& c = config();
    Rows rows(kv, wanted);
    fill_angles(rows);
    const auto total = static_cast<int64_t>(ids.size());
    std::vector<int32_t> per_layer_ids(ids.begin(), ids.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (modality[i] != 0) per_layer_ids[i] = c.pad_token_id;
    }
    x_.assign(embeddings, embeddings + total * c.hidden_size);
    per_layer_inputs(context, x_, per_layer_ids, 0, c.first_shared_layer);
    for (int32_t i = 0; i < c.first_shared_layer; ++i) layer(context, kv, i, rows);

    // The shared layers write no keys or values, so only the positions whose logits are wanted go through
    // them.
    const std::vector<float> wanted_embeddings = rows.wanted_of(embeddings, c.hidden_size);
    std::vector<int32_t> wanted_ids;
    for (const int64_t row : rows.wanted()) wanted_ids.push_back(per_layer_ids[static_cast<size_t>(row)]);
    x_ = rows.wanted_of(x_.data(), c.hidden_size);
    rows.keep_wanted();
    fill_angles(rows);
    per_layer_inputs(context, wanted_embeddings, wanted_ids, c.first_shared_layer, c.num_layers);
    for (int32_t i = c.first_shared_layer; i < c.num_layers; ++i) layer(context, kv, i, rows);

    const int64_t count = rows.count();
    ops::rms_norm(context, x_.data(), count, c.hidden_size, norm_.data(), c.rms_norm_eps, x_.data());
    ops::matmul(context, x_.data(), count, embed_tokens_, logits);
    if (c.logit_softcap > 0) ops::softcap(context, logits, c.logit_softcap, count * c.vocab_size);
  }

  // One token for each sequence of kv.batch(): ids [sequences], logits [sequences, vocab].
  void decode_tokens(ops::Context& context, KvCache& kv, std::span<const int32_t> ids, float* logits) {
    std::vector<float> embeddings(ids.size() * static_cast<size_t>(config().hidden_size));
    embed(context, ids, embeddings.data());
    const std::vector<int32_t> modality(ids.size(), 0);
    prefill_tokens(context, kv, embeddings.data(), ids, modality, logits);
  }

  const Gemma4Audio<ConfigSource>& audio() const { return *audio_; }

 private:
  struct Layer {
    ops::Matrix q_proj, k_proj, v_proj, o_proj, gate_up_proj, down_proj, per_layer_gate, per_layer_projection;
    std::vector<float> q_norm, k_norm, input_norm, post_attention_norm, pre_feedforward_norm,
        post_feedforward_norm, post_per_layer_norm, scalar;

    Layer(ParameterTree& tree, const Gemma4TextConfig& c, int32_t index, const std::string& name) {
      const Gemma4Layer& shape = c.layers[static_cast<size_t>(index)];
      const int64_t hidden = c.hidden_size, dim = shape.head_dim, inner = shape.intermediate_size;
      const auto linear = [&](ops::Matrix& out, const std::string& part, int64_t rows, int64_t cols) {
        tree.matrix(out, name + part, rows, cols, from(name + part + ".weight"));
      };
      const auto norm = [&](std::vector<float>& out, const std::string& part, int64_t size) {
        tree.values(out, name + part + ".weight", {size}, from(name + part + ".weight"));
      };
      linear(q_proj, ".self_attn.q_proj", c.num_heads * dim, hidden);
      norm(q_norm, ".self_attn.q_norm", dim);
      if (shape.kv_source == index) {
        linear(k_proj, ".self_attn.k_proj", shape.kv_heads * dim, hidden);
        linear(v_proj, ".self_attn.v_proj", shape.kv_heads * dim, hidden);
        norm(k_norm, ".self_attn.k_norm", dim);
      }
      linear(o_proj, ".self_attn.o_proj", hidden, c.num_heads * dim);
      tree.matrix(gate_up_proj, name + ".mlp.gate_up_proj", 2 * inner, hidden,
                  Source{.tensors = {name + ".mlp.gate_proj.weight", name + ".mlp.up_proj.weight"}});
      linear(down_proj, ".mlp.down_proj", hidden, inner);
      norm(input_norm, ".input_layernorm", hidden);
      norm(post_attention_norm, ".post_attention_layernorm", hidden);
      norm(pre_feedforward_norm, ".pre_feedforward_layernorm", hidden);
      norm(post_feedforward_norm, ".post_feedforward_layernorm", hidden);
      linear(per_layer_gate, ".per_layer_input_gate", c.per_layer_size, hidden);
      linear(per_layer_projection, ".per_layer_projection", hidden, c.per_layer_size);
      norm(post_per_layer_norm, ".post_per_layer_input_norm", hidden);
      tree.values(scalar, name + ".layer_scalar", {1}, from(name + ".layer_scalar"));
    }
  };

  const Gemma4TextConfig& config() const { return source_.get().text; }

  // per_layer_ [rows, (end - begin) * per_layer_size]: (norm(projection of the embeddings) + the tokens' rows
  // in the layers' tables) / sqrt(2).
  void per_layer_inputs(ops::Context& context, const std::vector<float>& embeddings,
                        const std::vector<int32_t>& ids, int32_t begin, int32_t end) {
    const Gemma4TextConfig& c = config();
    const auto rows = static_cast<int64_t>(ids.size());
    const int64_t size = c.per_layer_size, layers = end - begin, width = layers * size;
    per_layer_begin_ = begin;
    per_layer_width_ = width;
    per_layer_.resize(static_cast<size_t>(rows * width));
    if (layers == 0) return;
    const ops::Matrix part = row_range(per_layer_projection_, begin * size, width);
    ops::matmul(context, embeddings.data(), rows, part, per_layer_.data());
    ops::scale(context, per_layer_.data(), 1.0f / std::sqrt(static_cast<float>(c.hidden_size)), rows * width);
    ops::rms_norm(context, per_layer_.data(), rows * layers, size, per_layer_norm_.data(), c.rms_norm_eps,
                  per_layer_.data());
    work_.resize(static_cast<size_t>(rows * size));
    const float table_scale = std::sqrt(static_cast<float>(size)), half = std::sqrt(0.5f);
    for (int64_t i = 0; i < layers; ++i) {
      ops::embed_rows(context, per_layer_tables_[static_cast<size_t>(begin + i)], ids, table_scale,
                      work_.data());
      for (int64_t r = 0; r < rows; ++r) {
        float* out = per_layer_.data() + r * width + i * size;
        const float* row = work_.data() + r * size;
        for (int64_t k = 0; k < size; ++k) out[k] = (out[k] + row[k]) * half;
      }
    }
  }

  void layer(ops::Context& context, KvCache& kv, int32_t index, const Rows& rows) {
    const Gemma4TextConfig& c = config();
    const Layer& w = layers_[static_cast<size_t>(index)];
    const int64_t m = rows.count(), hidden = c.hidden_size, n = m * hidden;
    const auto norm = [&](const float* from, const std::vector<float>& weight, std::vector<float>& to) {
      to.resize(static_cast<size_t>(n));
      ops::rms_norm(context, from, m, hidden, weight.data(), c.rms_norm_eps, to.data());
    };
    norm(x_.data(), w.input_norm, a_);
    attention(context, kv, index, rows);  // a_ to b_
    norm(b_.data(), w.post_attention_norm, b_);
    ops::add_scaled(context, b_.data(), 1.0f, x_.data(), n);

    norm(x_.data(), w.pre_feedforward_norm, a_);
    const int64_t inner = w.down_proj.cols;
    work_.resize(static_cast<size_t>(m * 2 * inner));
    ops::matmul(context, a_.data(), m, w.gate_up_proj, work_.data());
    b_.resize(static_cast<size_t>(m * inner));
    ops::gelu_tanh_gate(context, work_.data(), m, inner, b_.data());
    a_.resize(static_cast<size_t>(n));
    ops::matmul(context, b_.data(), m, w.down_proj, a_.data());
    norm(a_.data(), w.post_feedforward_norm, a_);
    ops::add_scaled(context, a_.data(), 1.0f, x_.data(), n);

    b_.resize(static_cast<size_t>(m * c.per_layer_size));
    ops::matmul(context, x_.data(), m, w.per_layer_gate, b_.data());
    ops::gelu_tanh_mul(context, b_.data(), m, c.per_layer_size,
                       per_layer_.data() + (index - per_layer_begin_) * c.per_layer_size, per_layer_width_);
    ops::matmul(context, b_.data(), m, w.per_layer_projection, a_.data());
    norm(a_.data(), w.post_per_layer_norm, a_);
    ops::add_scaled(context, a_.data(), 1.0f, x_.data(), n);
    ops::scale(context, x_.data(), w.scalar[0], n);
  }

  void attention(ops::Context& context, KvCache& kv, int32_t index, const Rows& rows) {
    const Gemma4TextConfig& c = config();
    const Layer& w = layers_[static_cast<size_t>(index)];
    const Gemma4Layer& shape = c.layers[static_cast<size_t>(index)];
    const int64_t m = rows.count(), dim = shape.head_dim;
    const bool stores = shape.kv_source == index;
    q_.resize(static_cast<size_t>(m * c.num_heads * dim));
    if (stores) {
      k_.resize(static_cast<size_t>(m * shape.kv_heads * dim));
      v_.resize(k_.size());
      const ops::Product products[] = {
          {&w.q_proj, q_.data()}, {&w.k_proj, k_.data()}, {&w.v_proj, v_.data()}};
      ops::matmul(context, a_.data(), m, products);
    } else {
      ops::matmul(context, a_.data(), m, w.q_proj, q_.data());
    }
    const Angles& angles = shape.sliding ? sliding_angles_ : full_angles_;
    ops::rms_norm(context, q_.data(), m * c.num_heads, dim, w.q_norm.data(), c.rms_norm_eps, q_.data());
    ops::rope(context, q_.data(), m, c.num_heads, dim, angles.cos.data(), angles.sin.data());
    if (stores) {
      ops::rms_norm(context, k_.data(), m * shape.kv_heads, dim, w.k_norm.data(), c.rms_norm_eps, k_.data());
      ops::rope(context, k_.data(), m, shape.kv_heads, dim, angles.cos.data(), angles.sin.data());
      ops::rms_norm(context, v_.data(), m * shape.kv_heads, dim, nullptr, c.rms_norm_eps, v_.data());
    }
    attended_.resize(q_.size());
    attend(context, kv, static_cast<size_t>(kv_index_[static_cast<size_t>(index)]), rows,
           {.heads = c.num_heads,
            .head_dim = dim,
            .kv_heads = shape.kv_heads,
            .window = shape.sliding ? c.sliding_window : 0,
            .scale = 1.0f,
            .q = q_.data(),
            .k = stores ? k_.data() : nullptr,
            .v = stores ? v_.data() : nullptr,
            .out = attended_.data()});
    b_.resize(static_cast<size_t>(m * c.hidden_size));
    ops::matmul(context, attended_.data(), m, w.o_proj, b_.data());
  }

  // "Proportional" rotary embedding: the first `factor` of the head rotates, with the frequencies that it
  // would have if all of it did; the rest stays.
  static std::vector<float> rotary_frequencies(int32_t head_dim, double theta, double factor) {
    std::vector<float> out(static_cast<size_t>(head_dim / 2), 0.0f);
    const auto rotated = static_cast<int32_t>(factor * head_dim / 2);
    for (int32_t i = 0; i < rotated; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
      out[static_cast<size_t>(i)] = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    }
    return out;
  }

  void fill_angles(const Rows& rows) {
    sliding_angles_.fill(rows);
    full_angles_.fill(rows);
  }

  ConfigSource source_;
  ops::Matrix embed_tokens_;
  std::vector<ops::Matrix> per_layer_tables_;
  ops::Matrix per_layer_projection_;
  std::vector<float> per_layer_norm_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  std::optional<Gemma4Audio<ConfigSource>> audio_;
  std::vector<int32_t> kv_index_;  // per layer: index among the layers that store keys and values

  // Activations of the current pass.
  std::vector<float> x_, a_, b_, q_, k_, v_, attended_, work_, per_layer_;
  Angles sliding_angles_, full_angles_;
  int32_t per_layer_begin_ = 0;
  int64_t per_layer_width_ = 0;
};

}  // namespace dovetail::models
