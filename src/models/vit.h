// The vision transformer that CLIP and SigLIP share: patches, positions, pre-norm encoder layers. Sources:
// transformers, modeling_clip and modeling_siglip.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/parameters.h"
#include "ops/ops.h"

namespace dovetail::models {

// Literal type: part of the constant of a compiled library.
struct VitConfig {
  int32_t image_size = 0;  // pixels per side
  int32_t patch_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  float layer_norm_eps = 0;

  constexpr int32_t patches_per_side() const { return image_size / patch_size; }
  constexpr int32_t patches() const { return patches_per_side() * patches_per_side(); }
};

// How pixels become numbers: (x / 255 - mean) / std per channel.
struct PixelNormalization {
  std::array<float, 3> mean;
  std::array<float, 3> std;
};

struct LayerNorm {
  std::vector<float> weight, bias;

  void declare(ParameterTree& tree, const std::string& name, int64_t size) {
    tree.values(weight, name + ".weight", {size}, from(name + ".weight"));
    tree.values(bias, name + ".bias", {size}, from(name + ".bias"));
  }
  void operator()(ops::Context& context, const float* x, int64_t m, float eps, float* y) const {
    ops::layer_norm(context, x, m, static_cast<int64_t>(weight.size()), weight.data(), bias.data(), eps, y);
  }
};

// A linear layer with bias whose weight stays in the model dtype: 4-bit vision towers lose visible quality.
struct PlainLinear {
  ops::Matrix weight;
  std::vector<float> bias;

  void declare(ParameterTree& tree, const std::string& name, int64_t rows, int64_t cols) {
    tree.plain_matrix(weight, name + ".weight", {rows, cols}, from(name + ".weight"));
    tree.values(bias, name + ".bias", {rows}, from(name + ".bias"));
  }
  void operator()(ops::Context& context, const std::vector<float>& x, int64_t m,
                  std::vector<float>& y) const {
    y.resize(static_cast<size_t>(m * weight.rows));
    ops::matmul(context, x.data(), m, weight, y.data());
    ops::add_bias(context, y.data(), m, weight.rows, bias.data());
  }
};

// [patches, 3 * patch * patch] from pixels [image, image, 3]: normalised, one patch a row, in PyTorch's order
// of a convolution kernel (channel, row, column).
inline std::vector<float> patch_rows(std::span<const uint8_t> pixels, const VitConfig& c,
                                     const PixelNormalization& normalization) {
  const int32_t side = c.patches_per_side(), patch = c.patch_size;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(c.patches()) * 3 * static_cast<size_t>(patch * patch));
  std::array<std::array<float, 256>, 3> values;
  for (size_t channel = 0; channel < 3; ++channel) {
    for (size_t v = 0; v < 256; ++v) {
      values[channel][v] =
          (static_cast<float>(v) / 255.0f - normalization.mean[channel]) / normalization.std[channel];
    }
  }
  for (int32_t py = 0; py < side; ++py) {
    for (int32_t px = 0; px < side; ++px) {
      for (size_t channel = 0; channel < 3; ++channel) {
        for (int32_t y = py * patch; y < (py + 1) * patch; ++y) {
          for (int32_t x = px * patch; x < (px + 1) * patch; ++x) {
            out.push_back(values[channel][pixels[static_cast<size_t>(y * c.image_size + x) * 3 + channel]]);
          }
        }
      }
    }
  }
  return out;
}

class VitLayers {
 public:
  // Declares c.num_layers layers named "<prefix>.<index>".
  VitLayers(ParameterTree& tree, const VitConfig& c, const std::string& prefix)
      : layers_(static_cast<size_t>(c.num_layers)) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const std::string name = prefix + "." + std::to_string(i);
      layer.k.declare(tree, name + ".self_attn.k_proj", c.hidden_size, c.hidden_size);
      layer.v.declare(tree, name + ".self_attn.v_proj", c.hidden_size, c.hidden_size);
      layer.q.declare(tree, name + ".self_attn.q_proj", c.hidden_size, c.hidden_size);
      layer.out.declare(tree, name + ".self_attn.out_proj", c.hidden_size, c.hidden_size);
      layer.norm1.declare(tree, name + ".layer_norm1", c.hidden_size);
      layer.norm2.declare(tree, name + ".layer_norm2", c.hidden_size);
      layer.fc1.declare(tree, name + ".mlp.fc1", c.intermediate_size, c.hidden_size);
      layer.fc2.declare(tree, name + ".mlp.fc2", c.hidden_size, c.intermediate_size);
    }
  }

  // x [rows, hidden] through the first `count` layers. `first_layer`, when given, receives x after layer 0.
  void operator()(ops::Context& context, const VitConfig& c, ops::Activation activation, int32_t count,
                  std::vector<float>& x, std::vector<float>* first_layer = nullptr) const {
    const int64_t rows = static_cast<int64_t>(x.size()) / c.hidden_size, dim = c.hidden_size / c.num_heads;
    std::vector<float> a(x.size()), q, k, v, wide;
    // Every row sees every other: one sequence, pages in order.
    const int64_t pages = (rows + ops::KvPages::page_size - 1) / ops::KvPages::page_size;
    // Aligned to cache lines, which is how they are read fastest.
    constexpr size_t kLine = 64;
    std::vector<float> keys(static_cast<size_t>(pages * ops::KvPages::page_size * c.hidden_size) +
                            kLine / sizeof(float)),
        values(keys.size());
    const auto aligned = [](std::vector<float>& memory) {
      return memory.data() + (0 - reinterpret_cast<uintptr_t>(memory.data())) % kLine / sizeof(float);
    };
    std::vector<int32_t> table(static_cast<size_t>(pages));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    const ops::KvPages kv{.type = DType::kFloat32,
                          .keys = aligned(keys),
                          .values = aligned(values),
                          .pages = table.data(),
                          .kv_heads = c.num_heads,
                          .head_dim = static_cast<int32_t>(dim)};
    const std::vector<int32_t> begin(static_cast<size_t>(rows), 0),
        end(static_cast<size_t>(rows), static_cast<int32_t>(rows));
    for (int32_t i = 0; i < count; ++i) {
      const Layer& layer = layers_[static_cast<size_t>(i)];
      a.resize(x.size());
      layer.norm1(context, x.data(), rows, c.layer_norm_eps, a.data());
      layer.q(context, a, rows, q);
      layer.k(context, a, rows, k);
      layer.v(context, a, rows, v);
      ops::store_kv(context, k.data(), v.data(), rows, 0, kv);
      ops::attention(context,
                     {.q = q.data(),
                      .m = rows,
                      .heads = c.num_heads,
                      .begin = begin,
                      .end = end,
                      .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
                      .out = a.data()},
                     kv);
      layer.out(context, a, rows, q);
      ops::add_scaled(context, q.data(), 1.0f, x.data(), static_cast<int64_t>(x.size()));
      layer.norm2(context, x.data(), rows, c.layer_norm_eps, a.data());
      layer.fc1(context, a, rows, wide);
      ops::activate(context, activation, wide.data(), static_cast<int64_t>(wide.size()));
      layer.fc2(context, wide, rows, q);
      ops::add_scaled(context, q.data(), 1.0f, x.data(), static_cast<int64_t>(x.size()));
      if (i == 0 && first_layer != nullptr) *first_layer = x;
    }
  }

 private:
  struct Layer {
    PlainLinear k, v, q, out, fc1, fc2;
    LayerNorm norm1, norm2;
  };
  std::vector<Layer> layers_;
};

// Intermediate results that tests compare with the original implementation.
struct VitStages {
  std::vector<float> after_patch_embedding;  // [rows, hidden]
  std::vector<float> after_first_layer;      // the same
};

}  // namespace dovetail::models
