// LLaVA 1.5: a CLIP vision tower, a projector of two layers, and Llama. Sources: transformers, modeling_llava
// and modeling_clip. docs/models/llava.md.
#pragma once

#include "models/llama_text.h"
#include "models/vit.h"

namespace dovetail::models {

struct LlavaConfig {
  LlamaTextConfig text;
  VitConfig vision;                // num_layers 0: text only
  int32_t vision_layers_used = 0;  // the features are the output of this many layers
};

inline constexpr PixelNormalization kClipNormalization{{0.48145466f, 0.4578275f, 0.40821073f},
                                                       {0.26862954f, 0.26130258f, 0.27577711f}};

template <class ConfigSource>
class Llava {
 public:
  Llava(ParameterTree& tree, const ConfigSource& source) : source_(source) {
    if (source_.get().vision.num_layers > 0) declare_vision(tree);
    text_.emplace(tree, source_.get().text, "language_model.");
  }

  int32_t vocab_size() const { return text_->config().vocab_size; }
  int32_t hidden_size() const { return text_->config().hidden_size; }
  std::vector<KvLayer> kv_layers() const { return text_->kv_layers(); }
  std::vector<std::vector<float>*> rotary_tables() { return text_->rotary_tables(); }
  void embed(ops::Context& context, std::span<const int32_t> ids, float* out) const {
    text_->embed(context, ids, out);
  }
  // Appends the positions of kv.batch(): embeddings [total, hidden], logits [wanted rows, vocab].
  void prefill(ops::Context& context, KvCache& kv, const float* embeddings, float* logits,
               LogitRows wanted = LogitRows::kLast) {
    text_->forward(context, kv, embeddings, logits, wanted);
  }

  int32_t image_size() const { return source_.get().vision.image_size; }

  // pixels [image_size, image_size, 3] to rows [patches, hidden].
  std::vector<float> image(ops::Context& context, std::span<const uint8_t> pixels,
                           VitStages* stages = nullptr) const {
    const VitConfig& c = source_.get().vision;
    const std::vector<float> patches = patch_rows(pixels, c, kClipNormalization);
    std::vector<float> x(positions_.size());
    std::copy(class_embedding_.begin(), class_embedding_.end(), x.begin());
    ops::matmul(context, patches.data(), c.patches(), patch_embedding_, x.data() + c.hidden_size);
    ops::add_scaled(context, positions_.data(), 1.0f, x.data(), static_cast<int64_t>(x.size()));
    if (stages != nullptr) stages->after_patch_embedding = x;
    pre_norm_(context, x.data(), c.patches() + 1, c.layer_norm_eps, x.data());
    (*layers_)(context, c, ops::Activation::kQuickGelu, source_.get().vision_layers_used, x,
               stages != nullptr ? &stages->after_first_layer : nullptr);
    // All rows but the class token's.
    x.erase(x.begin(), x.begin() + c.hidden_size);
    std::vector<float> y, out;
    projector_[0](context, x, c.patches(), y);
    ops::activate(context, ops::Activation::kGelu, y.data(), static_cast<int64_t>(y.size()));
    projector_[1](context, y, c.patches(), out);
    return out;
  }

 private:
  void declare_vision(ParameterTree& tree) {
    const VitConfig& c = source_.get().vision;
    const std::string tower = "vision_tower.vision_model.", embeddings = tower + "embeddings.";
    tree.values(class_embedding_, embeddings + "class_embedding", {c.hidden_size},
                from(embeddings + "class_embedding"));
    tree.plain_matrix(patch_embedding_, embeddings + "patch_embedding.weight",
                      {c.hidden_size, 3, c.patch_size, c.patch_size},
                      from(embeddings + "patch_embedding.weight"));
    tree.values(positions_, embeddings + "position_embedding.weight", {c.patches() + 1, c.hidden_size},
                from(embeddings + "position_embedding.weight"));
    pre_norm_.declare(tree, tower + "pre_layrnorm", c.hidden_size);
    layers_.emplace(tree, c, tower + "encoder.layers");
    // Stored as upstream stores it; the features are taken before it.
    post_norm_.declare(tree, tower + "post_layernorm", c.hidden_size);
    const int64_t hidden = source_.get().text.hidden_size;
    projector_[0].declare(tree, "multi_modal_projector.linear_1", hidden, c.hidden_size);
    projector_[1].declare(tree, "multi_modal_projector.linear_2", hidden, hidden);
  }

  ConfigSource source_;
  std::vector<float> class_embedding_, positions_;
  ops::Matrix patch_embedding_;
  LayerNorm pre_norm_, post_norm_;
  std::optional<VitLayers> layers_;
  std::array<PlainLinear, 2> projector_;
  std::optional<LlamaText> text_;
};

}  // namespace dovetail::models
