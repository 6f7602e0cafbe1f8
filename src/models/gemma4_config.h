// The configuration of Gemma 4 (text + audio). Literal types: a compiled library holds one as a constant.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace dovetail::models {

inline constexpr int kGemma4MaxLayers = 96;

struct Gemma4Layer {
  int32_t head_dim = 0;
  int32_t kv_heads = 0;
  int32_t intermediate_size = 0;
  bool sliding = false;
  int32_t kv_source = 0;  // the layer whose keys and values this one reads; its own index when it stores them
};

struct Gemma4TextConfig {
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t first_shared_layer = 0;  // from here on layers read the keys and values of earlier ones
  int32_t num_heads = 0;
  int32_t per_layer_size = 0;  // hidden_size_per_layer_input
  int32_t sliding_window = 0;
  int32_t context_length = 0;  // max_position_embeddings
  int32_t pad_token_id = 0;
  float rms_norm_eps = 0;
  float logit_softcap = 0;  // 0: none
  double sliding_rope_theta = 0;
  double full_rope_theta = 0;
  double full_rotary_factor = 0;  // share of the head that rotates in full-attention layers
  std::array<Gemma4Layer, kGemma4MaxLayers> layers{};
};

struct Gemma4AudioConfig {
  int32_t num_layers = 0;  // 0: the checkpoint has no audio tower
  int32_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t conv_channels_0 = 0;
  int32_t conv_channels_1 = 0;
  int32_t conv_kernel_size = 0;
  int32_t attention_window = 0;  // a frame sees itself and the attention_window - 1 frames before it
  int32_t output_size = 0;
  bool clipped_linears = false;
  float logit_cap = 0;
  float residual_weight = 0;
  float gradient_clipping = 0;
  float rms_norm_eps = 0;
};

struct Gemma4Config {
  Gemma4TextConfig text;
  Gemma4AudioConfig audio;
};

// Fixed by the architecture (transformers: Gemma4AudioFeatureExtractor).
inline constexpr int32_t kAudioSampleRate = 16000;
inline constexpr int32_t kAudioFrameLength = 320;
inline constexpr int32_t kAudioHop = 160;
inline constexpr int32_t kAudioFftLength = 512;
inline constexpr int32_t kAudioBins = kAudioFftLength / 2 + 1;
inline constexpr int32_t kAudioMelBands = 128;
// The first frame needs frame_length + 1 samples, half a frame of which is padding.
inline constexpr int32_t kAudioMinSamples = kAudioFrameLength / 2 + 1;
inline constexpr int32_t kAudioMaxSamples = 480000;

// Of the feed-forward, attention and output norms, whatever rms_norm_eps says.
inline constexpr float kAudioBlockNormEps = 1e-6f;

// Frames of the log-mel spectrogram of `samples` samples.
constexpr int64_t audio_frames(int64_t samples) {
  return samples < kAudioMinSamples ? 0 : (samples - kAudioMinSamples) / kAudioHop + 1;
}
// Rows that the audio adapter returns: two convolutions of stride 2 over the frames.
constexpr int64_t audio_rows(int64_t samples) { return ((audio_frames(samples) + 1) / 2 + 1) / 2; }

}  // namespace dovetail::models
