// Gemma 3: text with sliding-window and full-attention layers, alone or with a SigLIP vision tower. Sources:
// transformers, modeling_gemma3 and modeling_siglip. docs/models/gemma3.md.
#pragma once

#include <optional>

#include "models/kv_cache.h"
#include "models/parameters.h"
#include "models/rotary.h"
#include "models/rows.h"
#include "models/vit.h"

namespace dovetail::models {

inline constexpr int kGemma3MaxLayers = 128;

struct Gemma3Config {
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t sliding_window = 0;
  int32_t context_length = 0;
  float rms_norm_eps = 0;
  float attention_scale = 0;
  float logit_softcap = 0;      // 0: none
  float attention_softcap = 0;  // 0: none
  RotaryConfig sliding_rotary;
  RotaryConfig full_rotary;
  std::array<bool, kGemma3MaxLayers> sliding{};
  VitConfig vision;                 // num_layers 0: text only
  int32_t image_rows_per_side = 0;  // after pooling
};

inline constexpr PixelNormalization kSiglipNormalization{{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};

template <class ConfigSource>
class Gemma3 {
 public:
  Gemma3(ParameterTree& tree, const ConfigSource& source)
      : source_(source), layers_(static_cast<size_t>(config().num_layers)) {
    const Gemma3Config& c = config();
    const std::string root = "language_model.model.";
    // Gemma stores its norm weights as the difference to 1.
    const auto norm = [&](std::vector<float>& out, const std::string& name, int64_t size) {
      Source weight = from(name + ".weight");
      weight.transform = [](std::vector<float>& values) {
        for (float& value : values) value += 1.0f;
      };
      tree.values(out, name + ".weight", {size}, std::move(weight));
    };
    const auto linear = [&](ops::Matrix& out, const std::string& name, int64_t rows, int64_t cols) {
      tree.matrix(out, name, rows, cols, from(name + ".weight"));
    };
    tree.vocab_table(embed_tokens_, root + "embed_tokens", c.vocab_size, c.hidden_size,
                     from(root + "embed_tokens.weight"));
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const std::string name = root + "layers." + std::to_string(i);
      linear(layer.q, name + ".self_attn.q_proj", c.num_heads * c.head_dim, c.hidden_size);
      linear(layer.k, name + ".self_attn.k_proj", c.kv_heads * c.head_dim, c.hidden_size);
      linear(layer.v, name + ".self_attn.v_proj", c.kv_heads * c.head_dim, c.hidden_size);
      linear(layer.out, name + ".self_attn.o_proj", c.hidden_size, c.num_heads * c.head_dim);
      norm(layer.q_norm, name + ".self_attn.q_norm", c.head_dim);
      norm(layer.k_norm, name + ".self_attn.k_norm", c.head_dim);
      tree.matrix(layer.gate_up, name + ".mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size,
                  Source{.tensors = {name + ".mlp.gate_proj.weight", name + ".mlp.up_proj.weight"}});
      linear(layer.down, name + ".mlp.down_proj", c.hidden_size, c.intermediate_size);
      norm(layer.input_norm, name + ".input_layernorm", c.hidden_size);
      norm(layer.post_attention_norm, name + ".post_attention_layernorm", c.hidden_size);
      norm(layer.pre_feedforward_norm, name + ".pre_feedforward_layernorm", c.hidden_size);
      norm(layer.post_feedforward_norm, name + ".post_feedforward_layernorm", c.hidden_size);
    }
    norm(norm_, root + "norm", c.hidden_size);
    if (c.vision.num_layers > 0) declare_vision(tree);
    sliding_angles_.frequencies = rotary_frequencies(c.sliding_rotary, c.head_dim);
    full_angles_.frequencies = rotary_frequencies(c.full_rotary, c.head_dim);
  }
  Gemma3(const Gemma3&) = delete;
  Gemma3& operator=(const Gemma3&) = delete;

  int32_t vocab_size() const { return config().vocab_size; }
  int32_t hidden_size() const { return config().hidden_size; }
  int32_t image_size() const { return config().vision.image_size; }
  std::vector<KvLayer> kv_layers() const {
    std::vector<KvLayer> out;
    for (size_t i = 0; i < layers_.size(); ++i) {
      out.push_back(
          {config().kv_heads, config().head_dim, config().sliding[i] ? config().sliding_window : 0});
    }
    return out;
  }

  // The frequencies in use; tests round them as a reference implementation did.
  std::vector<std::vector<float>*> rotary_tables() {
    return {&sliding_angles_.frequencies, &full_angles_.frequencies};
  }

  // Unscaled, as upstream has it: the factor sqrt(hidden) is applied to all embeddings in a pass.
  void embed(ops::Context& context, std::span<const int32_t> ids, float* out) const {
    ops::embed_rows(context, embed_tokens_, ids, 1.0f, out);
  }

  // Appends the positions of kv.batch(): embeddings [total, hidden], logits [wanted rows, vocab]. Positions
  // of one image (modality 1, side by side) see each other in both directions.
  void prefill_tokens(ops::Context& context, KvCache& kv, const float* embeddings, std::span<const int32_t>,
                      std::span<const int32_t> modality, float* logits, LogitRows wanted = LogitRows::kLast) {
    forward(context, kv, embeddings, modality, logits, wanted);
  }
  void decode_tokens(ops::Context& context, KvCache& kv, std::span<const int32_t> ids, float* logits) {
    std::vector<float> embeddings(ids.size() * static_cast<size_t>(config().hidden_size));
    embed(context, ids, embeddings.data());
    forward(context, kv, embeddings.data(), {}, logits, LogitRows::kLast);
  }
  void prefill(ops::Context& context, KvCache& kv, const float* embeddings, float* logits,
               LogitRows wanted = LogitRows::kLast) {
    forward(context, kv, embeddings, {}, logits, wanted);
  }

  // pixels [image_size, image_size, 3] to rows [rows per side², hidden], already divided by the factor that a
  // pass applies.
  std::vector<float> image(ops::Context& context, std::span<const uint8_t> pixels,
                           VitStages* stages = nullptr) const {
    const Gemma3Config& c = config();
    const VitConfig& v = c.vision;
    const std::vector<float> patches = patch_rows(pixels, v, kSiglipNormalization);
    std::vector<float> x(positions_.size());
    ops::matmul(context, patches.data(), v.patches(), patch_embedding_, x.data());
    ops::add_bias(context, x.data(), v.patches(), v.hidden_size, patch_bias_.data());
    ops::add_scaled(context, positions_.data(), 1.0f, x.data(), static_cast<int64_t>(x.size()));
    if (stages != nullptr) stages->after_patch_embedding = x;
    (*vision_layers_)(context, v, ops::Activation::kGeluTanh, v.num_layers, x,
                      stages != nullptr ? &stages->after_first_layer : nullptr);
    vision_post_norm_(context, x.data(), v.patches(), v.layer_norm_eps, x.data());
    std::vector<float> pooled = pool(x);
    const int64_t rows = int64_t{c.image_rows_per_side} * c.image_rows_per_side;
    ops::rms_norm(context, pooled.data(), rows, v.hidden_size, image_norm_.data(), v.layer_norm_eps,
                  pooled.data());
    std::vector<float> out(static_cast<size_t>(rows * c.hidden_size));
    ops::matmul(context, pooled.data(), rows, image_projection_, out.data());
    ops::scale(context, out.data(), 1.0f / embedding_scale(), static_cast<int64_t>(out.size()));
    return out;
  }

 private:
  struct Layer {
    ops::Matrix q, k, v, out, gate_up, down;
    std::vector<float> q_norm, k_norm, input_norm, post_attention_norm, pre_feedforward_norm,
        post_feedforward_norm;
  };

  const Gemma3Config& config() const { return source_.get(); }
  float embedding_scale() const { return std::sqrt(static_cast<float>(config().hidden_size)); }

  void declare_vision(ParameterTree& tree) {
    const Gemma3Config& c = config();
    const VitConfig& v = c.vision;
    const std::string tower = "vision_tower.vision_model.", embeddings = tower + "embeddings.";
    tree.plain_matrix(patch_embedding_, embeddings + "patch_embedding.weight",
                      {v.hidden_size, 3, v.patch_size, v.patch_size},
                      from(embeddings + "patch_embedding.weight"));
    tree.values(patch_bias_, embeddings + "patch_embedding.bias", {v.hidden_size},
                from(embeddings + "patch_embedding.bias"));
    tree.values(positions_, embeddings + "position_embedding.weight", {v.patches(), v.hidden_size},
                from(embeddings + "position_embedding.weight"));
    vision_layers_.emplace(tree, v, tower + "encoder.layers");
    vision_post_norm_.declare(tree, tower + "post_layernorm", v.hidden_size);
    Source soft_norm = from("multi_modal_projector.mm_soft_emb_norm.weight");
    soft_norm.transform = [](std::vector<float>& values) {
      for (float& value : values) value += 1.0f;
    };
    tree.values(image_norm_, "multi_modal_projector.mm_soft_emb_norm.weight", {v.hidden_size},
                std::move(soft_norm));
    // The checkpoint holds the projection as [input, output].
    Source projection = from("multi_modal_projector.mm_input_projection_weight");
    projection.shape = {v.hidden_size, c.hidden_size};
    projection.transform = [inputs = static_cast<size_t>(v.hidden_size),
                            outputs = static_cast<size_t>(c.hidden_size)](std::vector<float>& values) {
      const std::vector<float> source = values;
      for (size_t i = 0; i < inputs; ++i) {
        for (size_t o = 0; o < outputs; ++o) values[o * inputs + i] = source[i * outputs + o];
      }
    };
    tree.plain_matrix(image_projection_, "multi_modal_projector.mm_input_projection.weight",
                      {c.hidden_size, v.hidden_size}, std::move(projection));
  }

  // Means of square blocks of patches.
  std::vector<float> pool(const std::vector<float>& x) const {
    const VitConfig& v = config().vision;
    const int32_t side = config().image_rows_per_side, block = v.patches_per_side() / side;
    const auto width = static_cast<size_t>(v.hidden_size);
    std::vector<float> out(static_cast<size_t>(side * side) * width, 0.0f);
    for (int32_t y = 0; y < side * block; ++y) {
      for (int32_t px = 0; px < side * block; ++px) {
        const float* row = x.data() + static_cast<size_t>(y * v.patches_per_side() + px) * width;
        float* sum = out.data() + static_cast<size_t>((y / block) * side + px / block) * width;
        for (size_t k = 0; k < width; ++k) sum[k] += row[k];
      }
    }
    for (float& value : out) value /= static_cast<float>(block * block);
    return out;
  }

  void forward(ops::Context& context, KvCache& kv, const float* embeddings, std::span<const int32_t> modality,
               float* logits, LogitRows wanted) {
    const Gemma3Config& c = config();
    Rows rows(kv, wanted);
    if (!modality.empty()) rows.see_each_other(modality);
    sliding_angles_.fill(rows);
    full_angles_.fill(rows);
    x_.assign(embeddings, embeddings + rows.count() * c.hidden_size);
    ops::scale(context, x_.data(), embedding_scale(), static_cast<int64_t>(x_.size()));
    for (size_t i = 0; i < layers_.size(); ++i) layer(context, kv, i, rows);
    x_ = rows.wanted_of(x_.data(), c.hidden_size);
    const auto count = static_cast<int64_t>(rows.wanted().size());
    ops::rms_norm(context, x_.data(), count, c.hidden_size, norm_.data(), c.rms_norm_eps, x_.data());
    ops::matmul(context, x_.data(), count, embed_tokens_, logits);
    if (c.logit_softcap > 0) ops::softcap(context, logits, c.logit_softcap, count * c.vocab_size);
  }

  void layer(ops::Context& context, KvCache& kv, size_t index, const Rows& rows) {
    const Gemma3Config& c = config();
    const Layer& w = layers_[index];
    const int64_t m = rows.count(), hidden = c.hidden_size, n = m * hidden, dim = c.head_dim;
    const auto norm = [&](const std::vector<float>& from, const std::vector<float>& weight,
                          std::vector<float>& to) {
      to.resize(static_cast<size_t>(n));
      ops::rms_norm(context, from.data(), m, hidden, weight.data(), c.rms_norm_eps, to.data());
    };
    norm(x_, w.input_norm, a_);
    q_.resize(static_cast<size_t>(m * c.num_heads * dim));
    k_.resize(static_cast<size_t>(m * c.kv_heads * dim));
    v_.resize(k_.size());
    const ops::Product products[] = {{&w.q, q_.data()}, {&w.k, k_.data()}, {&w.v, v_.data()}};
    ops::matmul(context, a_.data(), m, products);
    const Angles& angles = c.sliding[index] ? sliding_angles_ : full_angles_;
    ops::rms_norm(context, q_.data(), m * c.num_heads, dim, w.q_norm.data(), c.rms_norm_eps, q_.data());
    ops::rms_norm(context, k_.data(), m * c.kv_heads, dim, w.k_norm.data(), c.rms_norm_eps, k_.data());
    ops::rope(context, q_.data(), m, c.num_heads, dim, angles.cos.data(), angles.sin.data());
    ops::rope(context, k_.data(), m, c.kv_heads, dim, angles.cos.data(), angles.sin.data());
    attended_.resize(q_.size());
    attend(context, kv, index, rows,
           {.heads = c.num_heads,
            .head_dim = dim,
            .kv_heads = c.kv_heads,
            .window = c.sliding[index] ? c.sliding_window : 0,
            .scale = c.attention_scale,
            .softcap = c.attention_softcap,
            .q = q_.data(),
            .k = k_.data(),
            .v = v_.data(),
            .out = attended_.data()});
    ops::matmul(context, attended_.data(), m, w.out, a_.data());
    norm(a_, w.post_attention_norm, a_);
    ops::add_scaled(context, a_.data(), 1.0f, x_.data(), n);

    norm(x_, w.pre_feedforward_norm, a_);
    wide_.resize(static_cast<size_t>(m * 2 * c.intermediate_size));
    ops::matmul(context, a_.data(), m, w.gate_up, wide_.data());
    gated_.resize(static_cast<size_t>(m * c.intermediate_size));
    ops::gelu_tanh_gate(context, wide_.data(), m, c.intermediate_size, gated_.data());
    ops::matmul(context, gated_.data(), m, w.down, a_.data());
    norm(a_, w.post_feedforward_norm, a_);
    ops::add_scaled(context, a_.data(), 1.0f, x_.data(), n);
  }

  ConfigSource source_;
  ops::Matrix embed_tokens_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  Angles sliding_angles_, full_angles_;

  ops::Matrix patch_embedding_, image_projection_;
  std::vector<float> patch_bias_, positions_, image_norm_;
  std::optional<VitLayers> vision_layers_;
  LayerNorm vision_post_norm_;

  std::vector<float> x_, a_, q_, k_, v_, attended_, wide_, gated_;
};

}  // namespace dovetail::models
