// The audio adapter of Gemma 4: mono 16 kHz samples to rows in the text model's embedding space. Log-mel
// features, two strided convolutions, conformer layers with local relative attention, projection.
// docs/models/gemma4.md.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "models/gemma4_audio_constants.h"
#include "models/gemma4_config.h"
#include "models/parameters.h"
#include "ops/ops.h"

namespace dovetail::models {

// A linear layer whose inputs and outputs are clamped to ranges stored in the checkpoint.
struct ClippableLinear {
  ops::Matrix linear;
  std::vector<float> input_min, input_max, output_min, output_max;

  ClippableLinear(ParameterTree& tree, const std::string& name, int64_t rows, int64_t cols, bool clipped) {
    tree.matrix(linear, name + ".linear", rows, cols, from(name + ".linear.weight"));
    if (!clipped) return;
    tree.values(input_min, name + ".input_min", {}, from(name + ".input_min"));
    tree.values(input_max, name + ".input_max", {}, from(name + ".input_max"));
    tree.values(output_min, name + ".output_min", {}, from(name + ".output_min"));
    tree.values(output_max, name + ".output_max", {}, from(name + ".output_max"));
  }

  // y[m, rows] from x[m, cols]; `work` is scratch.
  void operator()(ops::Context& context, const std::vector<float>& x, int64_t m, std::vector<float>& y,
                  std::vector<float>& work) const {
    y.resize(static_cast<size_t>(m * linear.rows));
    if (input_min.empty()) {
      ops::matmul(context, x.data(), m, linear, y.data());
      return;
    }
    work.assign(x.begin(), x.begin() + m * linear.cols);
    ops::clamp(context, work.data(), input_min[0], input_max[0], m * linear.cols);
    ops::matmul(context, work.data(), m, linear, y.data());
    ops::clamp(context, y.data(), output_min[0], output_max[0], m * linear.rows);
  }
};

template <class ConfigSource>
class Gemma4Audio {
 public:
  Gemma4Audio(ParameterTree& tree, const ConfigSource& source) : source_(source) {
    const Gemma4AudioConfig& c = config();
    if (c.num_layers == 0) return;
    tree.values(dft_matrix_, "audio_preprocessor.dft_matrix", {kAudioFrameLength, 2 * kAudioBins},
                Source{.generate = fill_dft_matrix}, DType::kFloat32);
    tree.values(mel_filters_, "audio_preprocessor.mel_filters", {kAudioBins, kAudioMelBands},
                Source{.generate = fill_mel_filters}, DType::kFloat32);
    const std::string subsample = "audio_tower.subsample_conv_projection.";
    const std::array<int64_t, 3> channels{1, c.conv_channels_0, c.conv_channels_1};
    for (size_t i = 0; i < 2; ++i) {
      const std::string layer = subsample + "layer" + std::to_string(i);
      tree.plain_matrix(conv_[i], layer + ".conv.weight", {channels[i + 1], channels[i], 3, 3},
                        from(layer + ".conv.weight"));
      tree.values(conv_norm_[i], layer + ".norm.weight", {channels[i + 1]}, from(layer + ".norm.weight"));
    }
    tree.matrix(input_proj_, subsample + "input_proj_linear", c.hidden_size, kAudioMelBands / 4 * channels[2],
                from(subsample + "input_proj_linear.weight"));
    layers_.reserve(static_cast<size_t>(c.num_layers));
    for (int32_t i = 0; i < c.num_layers; ++i)
      layers_.emplace_back(tree, c, "audio_tower.layers." + std::to_string(i));
    tree.matrix(output_proj_, "audio_tower.output_proj", c.output_size, c.hidden_size,
                from("audio_tower.output_proj.weight"));
    tree.values(output_bias_, "audio_tower.output_proj.bias", {c.output_size},
                from("audio_tower.output_proj.bias"));
    tree.matrix(embedding_projection_, "embed_audio.embedding_projection", source_.get().text.hidden_size,
                c.output_size, from("embed_audio.embedding_projection.weight"));
  }

  static constexpr int64_t min_samples() { return kAudioMinSamples; }
  static constexpr int64_t max_samples() { return kAudioMaxSamples; }
  static constexpr int64_t rows(int64_t samples) { return audio_rows(samples); }

  // Intermediate results, in the order of the computation; tests compare each with the original
  // implementation.
  struct Stages {
    std::vector<float> log_mel;            // [frames, mel bands]
    std::vector<float> after_subsample;    // [rows, hidden]
    std::vector<float> after_first_layer;  // [rows, hidden]
    std::vector<float> after_tower;        // [rows, output]
  };

  // [rows(samples), text hidden size], from min_samples() to max_samples() samples.
  std::vector<float> operator()(ops::Context& context, std::span<const float> samples,
                                Stages* stages = nullptr) const {
    const Gemma4AudioConfig& c = config();
    const int64_t frames = audio_frames(static_cast<int64_t>(samples.size()));
    std::vector<float> features = log_mel(context, samples, frames);
    if (stages) stages->log_mel = features;
    int64_t rows = frames;
    std::vector<float> x = subsample(context, features, rows);
    if (stages) stages->after_subsample = x;
    Scratch scratch;
    for (const Layer& layer : layers_) {
      layer(context, c, x, rows, scratch);
      if (stages && &layer == &layers_.front()) stages->after_first_layer = x;
    }
    std::vector<float> y(static_cast<size_t>(rows * c.output_size));
    ops::matmul(context, x.data(), rows, output_proj_, y.data());
    for (int64_t r = 0; r < rows; ++r)
      ops::add_scaled(context, output_bias_.data(), 1.0f, y.data() + r * c.output_size, c.output_size);
    if (stages) stages->after_tower = y;
    ops::rms_norm(context, y.data(), rows, c.output_size, nullptr, c.rms_norm_eps, y.data());
    std::vector<float> out(static_cast<size_t>(rows * embedding_projection_.rows));
    ops::matmul(context, y.data(), rows, embedding_projection_, out.data());
    return out;
  }

 private:
  struct Scratch {
    std::vector<float> a, b, q, k, v, work;
  };

  struct FeedForward {
    ClippableLinear up, down;
    std::vector<float> pre_norm, post_norm;

    FeedForward(ParameterTree& tree, const Gemma4AudioConfig& c, const std::string& name)
        : up(tree, name + ".ffw_layer_1", 4 * c.hidden_size, c.hidden_size, c.clipped_linears),
          down(tree, name + ".ffw_layer_2", c.hidden_size, 4 * c.hidden_size, c.clipped_linears) {
      tree.values(pre_norm, name + ".pre_layer_norm.weight", {c.hidden_size},
                  from(name + ".pre_layer_norm.weight"));
      tree.values(post_norm, name + ".post_layer_norm.weight", {c.hidden_size},
                  from(name + ".post_layer_norm.weight"));
    }

    void operator()(ops::Context& context, const Gemma4AudioConfig& c, std::vector<float>& x, int64_t rows,
                    Scratch& s) const {
      const int64_t n = rows * c.hidden_size;
      s.a = x;
      ops::clamp(context, s.a.data(), -c.gradient_clipping, c.gradient_clipping, n);
      ops::rms_norm(context, s.a.data(), rows, c.hidden_size, pre_norm.data(), kAudioBlockNormEps,
                    s.a.data());
      up(context, s.a, rows, s.b, s.work);
      ops::silu(context, s.b.data(), static_cast<int64_t>(s.b.size()));
      down(context, s.b, rows, s.a, s.work);
      ops::clamp(context, s.a.data(), -c.gradient_clipping, c.gradient_clipping, n);
      ops::rms_norm(context, s.a.data(), rows, c.hidden_size, post_norm.data(), kAudioBlockNormEps,
                    s.a.data());
      ops::add_scaled(context, s.a.data(), c.residual_weight, x.data(), n);
    }
  };

  struct Layer {
    FeedForward feed_forward1, feed_forward2;
    ClippableLinear q_proj, k_proj, v_proj, post;
    ops::Matrix relative_k_proj;
    std::vector<float> per_dim_scale, relative_positions;
    ClippableLinear conv_start, conv_end;
    std::vector<float> conv_weight, conv_pre_norm, conv_norm;
    std::vector<float> norm_pre_attn, norm_post_attn, norm_out;

    Layer(ParameterTree& tree, const Gemma4AudioConfig& c, const std::string& name)
        : feed_forward1(tree, c, name + ".feed_forward1"),
          feed_forward2(tree, c, name + ".feed_forward2"),
          q_proj(tree, name + ".self_attn.q_proj", c.hidden_size, c.hidden_size, c.clipped_linears),
          k_proj(tree, name + ".self_attn.k_proj", c.hidden_size, c.hidden_size, c.clipped_linears),
          v_proj(tree, name + ".self_attn.v_proj", c.hidden_size, c.hidden_size, c.clipped_linears),
          post(tree, name + ".self_attn.post", c.hidden_size, c.hidden_size, c.clipped_linears),
          conv_start(declare_attention(tree, c, name), name + ".lconv1d.linear_start", 2 * c.hidden_size,
                     c.hidden_size, c.clipped_linears),
          conv_end(tree, name + ".lconv1d.linear_end", c.hidden_size, c.hidden_size, c.clipped_linears) {
      const auto norm = [&](std::vector<float>& out, const std::string& part) {
        tree.values(out, name + part, {c.hidden_size}, from(name + part));
      };
      tree.values(conv_weight, name + ".lconv1d.depthwise_conv1d.weight",
                  {c.hidden_size, 1, c.conv_kernel_size}, from(name + ".lconv1d.depthwise_conv1d.weight"));
      norm(conv_pre_norm, ".lconv1d.pre_layer_norm.weight");
      norm(conv_norm, ".lconv1d.conv_norm.weight");
      norm(norm_pre_attn, ".norm_pre_attn.weight");
      norm(norm_post_attn, ".norm_post_attn.weight");
      norm(norm_out, ".norm_out.weight");
    }

    // Declared between the attention's and the convolution's linear layers, as in the parameter order of MLC.
    ParameterTree& declare_attention(ParameterTree& tree, const Gemma4AudioConfig& c,
                                     const std::string& name) {
      tree.matrix(relative_k_proj, name + ".self_attn.relative_k_proj", c.hidden_size, c.hidden_size,
                  from(name + ".self_attn.relative_k_proj.weight"));
      tree.values(per_dim_scale, name + ".self_attn.per_dim_scale", {c.hidden_size / c.num_heads},
                  from(name + ".self_attn.per_dim_scale"));
      tree.values(
          relative_positions, name + ".self_attn.relative_positions", {c.attention_window + 1, c.hidden_size},
          Source{.generate = [window = c.attention_window, hidden = c.hidden_size](std::span<float> out) {
            fill_relative_positions(window, hidden, out);
          }});
      return tree;
    }

    void operator()(ops::Context& context, const Gemma4AudioConfig& c, std::vector<float>& x, int64_t rows,
                    Scratch& s) const {
      feed_forward1(context, c, x, rows, s);
      attention(context, c, x, rows, s);
      convolution(context, c, x, rows, s);
      feed_forward2(context, c, x, rows, s);
      ops::clamp(context, x.data(), -c.gradient_clipping, c.gradient_clipping, rows * c.hidden_size);
      ops::rms_norm(context, x.data(), rows, c.hidden_size, norm_out.data(), kAudioBlockNormEps, x.data());
    }

    void attention(ops::Context& context, const Gemma4AudioConfig& c, std::vector<float>& x, int64_t rows,
                   Scratch& s) const {
      const int64_t hidden = c.hidden_size, n = rows * hidden, dim = hidden / c.num_heads;
      s.a = x;
      ops::clamp(context, s.a.data(), -c.gradient_clipping, c.gradient_clipping, n);
      ops::rms_norm(context, s.a.data(), rows, hidden, norm_pre_attn.data(), kAudioBlockNormEps, s.a.data());
      q_proj(context, s.a, rows, s.q, s.work);
      k_proj(context, s.a, rows, s.k, s.work);
      v_proj(context, s.a, rows, s.v, s.work);
      const double q_scale = 1.0 / std::sqrt(static_cast<double>(dim)) / std::log(2.0);
      const auto k_scale = static_cast<float>(std::log1p(std::exp(1.0)) / std::log(2.0));
      std::vector<float> scales(static_cast<size_t>(hidden));
      for (int64_t i = 0; i < hidden; ++i) {
        const double p = per_dim_scale[static_cast<size_t>(i % dim)];
        const double softplus = p > 20 ? p : std::log1p(std::exp(p));
        scales[static_cast<size_t>(i)] = static_cast<float>(q_scale * softplus);
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < hidden; ++i)
          s.q[static_cast<size_t>(r * hidden + i)] *= scales[static_cast<size_t>(i)];
      }
      ops::scale(context, s.k.data(), k_scale, n);
      std::vector<float> relative(relative_positions.size());
      ops::matmul(context, relative_positions.data(), c.attention_window + 1, relative_k_proj,
                  relative.data());
      s.b.resize(static_cast<size_t>(n));
      ops::local_relative_attention(context, s.q.data(), s.k.data(), s.v.data(), relative.data(), rows,
                                    c.num_heads, dim, c.attention_window, c.logit_cap, s.b.data());
      post(context, s.b, rows, s.a, s.work);
      ops::clamp(context, s.a.data(), -c.gradient_clipping, c.gradient_clipping, n);
      ops::rms_norm(context, s.a.data(), rows, hidden, norm_post_attn.data(), kAudioBlockNormEps, s.a.data());
      ops::add_scaled(context, s.a.data(), 1.0f, x.data(), n);
    }

    void convolution(ops::Context& context, const Gemma4AudioConfig& c, std::vector<float>& x, int64_t rows,
                     Scratch& s) const {
      const int64_t hidden = c.hidden_size, n = rows * hidden;
      s.a.resize(static_cast<size_t>(n));
      ops::rms_norm(context, x.data(), rows, hidden, conv_pre_norm.data(), c.rms_norm_eps, s.a.data());
      conv_start(context, s.a, rows, s.b, s.work);
      ops::glu(context, s.b.data(), rows, hidden, s.a.data());
      s.b.resize(static_cast<size_t>(n));
      ops::depthwise_causal_conv(context, s.a.data(), rows, hidden, conv_weight.data(), c.conv_kernel_size,
                                 s.b.data());
      ops::clamp(context, s.b.data(), -c.gradient_clipping, c.gradient_clipping, n);
      ops::rms_norm(context, s.b.data(), rows, hidden, conv_norm.data(), c.rms_norm_eps, s.b.data());
      ops::silu(context, s.b.data(), n);
      conv_end(context, s.b, rows, s.a, s.work);
      ops::add_scaled(context, s.a.data(), 1.0f, x.data(), n);
    }
  };

  const Gemma4AudioConfig& config() const { return source_.get().audio; }

  std::vector<float> log_mel(ops::Context& context, std::span<const float> samples, int64_t frames) const {
    std::vector<float> padded(static_cast<size_t>(frames * kAudioFrameLength), 0.0f);
    for (int64_t f = 0; f < frames; ++f) {
      const int64_t first = f * kAudioHop - kAudioFrameLength / 2;
      for (int64_t i = std::max<int64_t>(0, -first); i < kAudioFrameLength; ++i) {
        padded[static_cast<size_t>(f * kAudioFrameLength + i)] = samples[static_cast<size_t>(first + i)];
      }
    }
    const std::vector<float> dft = transposed(dft_matrix_, kAudioFrameLength, 2 * kAudioBins);
    const std::vector<float> mel = transposed(mel_filters_, kAudioBins, kAudioMelBands);
    std::vector<float> spectrum(static_cast<size_t>(frames * 2 * kAudioBins));
    ops::matmul(context, padded.data(), frames,
                {.data = dft.data(), .rows = 2 * kAudioBins, .cols = kAudioFrameLength}, spectrum.data());
    std::vector<float> magnitude(static_cast<size_t>(frames * kAudioBins));
    for (int64_t f = 0; f < frames; ++f) {
      const float* re = spectrum.data() + f * 2 * kAudioBins;
      const float* im = re + kAudioBins;
      for (int64_t k = 0; k < kAudioBins; ++k)
        magnitude[static_cast<size_t>(f * kAudioBins + k)] = std::sqrt(re[k] * re[k] + im[k] * im[k]);
    }
    std::vector<float> out(static_cast<size_t>(frames * kAudioMelBands));
    ops::matmul(context, magnitude.data(), frames,
                {.data = mel.data(), .rows = kAudioMelBands, .cols = kAudioBins}, out.data());
    for (float& value : out) value = std::log(value + 1.0e-3f);
    return out;
  }

  // `rows` becomes the number of rows after both convolutions.
  std::vector<float> subsample(ops::Context& context, const std::vector<float>& features,
                               int64_t& rows) const {
    std::vector<float> x = features;
    int64_t width = kAudioMelBands, channels = 1;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t next_rows = (rows + 1) / 2, next_width = (width + 1) / 2, next_channels = conv_[i].rows;
      std::vector<float> y(static_cast<size_t>(next_rows * next_width * next_channels));
      ops::conv3x3_stride2(context, x.data(), rows, width, channels, conv_[i], y.data());
      ops::layer_norm(context, y.data(), next_rows * next_width, next_channels, conv_norm_[i].data(), nullptr,
                      config().rms_norm_eps, y.data());
      for (float& value : y) value = value < 0.0f ? 0.0f : value;  // a ReLU that keeps NaN
      x = std::move(y);
      rows = next_rows;
      width = next_width;
      channels = next_channels;
    }
    std::vector<float> out(static_cast<size_t>(rows * input_proj_.rows));
    ops::matmul(context, x.data(), rows, input_proj_, out.data());
    return out;
  }

  static std::vector<float> transposed(const std::vector<float>& x, int64_t rows, int64_t cols) {
    std::vector<float> out(x.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        out[static_cast<size_t>(c * rows + r)] = x[static_cast<size_t>(r * cols + c)];
    }
    return out;
  }

  ConfigSource source_;
  std::vector<float> dft_matrix_, mel_filters_;
  std::array<ops::Matrix, 2> conv_;
  std::array<std::vector<float>, 2> conv_norm_;
  ops::Matrix input_proj_;
  std::vector<Layer> layers_;
  ops::Matrix output_proj_;
  std::vector<float> output_bias_;
  ops::Matrix embedding_projection_;
};

}  // namespace dovetail::models
