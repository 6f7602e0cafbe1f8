#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "models/gemma4_plan.h"
#include "models/plan_parts.h"

namespace dovetail::models {
namespace {

constexpr int64_t kMaxWidth = 1 << 17;

// Things that other Gemma 4 checkpoints have and this one definition does not compute.
void refuse_unsupported(const ConfigReader& text, std::vector<Problem>& unsupported,
                        const std::string& source) {
  const auto refuse = [&](const char* key, const std::string& what) {
    unsupported.push_back({.message = what + " is not supported",
                           .source = source,
                           .field = std::string("text_config.") + key});
  };
  if (text.boolean("enable_moe_block", false)) refuse("enable_moe_block", "a mixture of experts");
  if (text.boolean("attention_k_eq_v", false)) refuse("attention_k_eq_v", "attention with keys as values");
  if (text.boolean("attention_bias", false)) refuse("attention_bias", "attention with biases");
  if (text.has("use_bidirectional_attention"))
    refuse("use_bidirectional_attention", "bidirectional attention");
  if (text.text("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    refuse("hidden_activation", "an activation other than gelu_pytorch_tanh");
  if (text.has("hidden_size_per_layer_input") && text.json()["hidden_size_per_layer_input"] == 0) {
    refuse("hidden_size_per_layer_input", "a model without per-layer embeddings");
  }
}

// Head sizes of single layers: "per_layer_config" {index: {head_dim, num_key_value_heads}} (transformers 5),
// or one "global_head_dim" for all full-attention layers (before).
void read_head_sizes(const ConfigReader& text, Gemma4TextConfig& out) {
  const auto head_dim = static_cast<int32_t>(text.integer("head_dim", 2, 1024));
  const auto kv_heads = static_cast<int32_t>(text.integer("num_key_value_heads", 1, 1024));
  const auto global = static_cast<int32_t>(text.integer("global_head_dim", 2, 1024, 512));
  const bool has_table = text.has("per_layer_config");
  for (int32_t i = 0; i < out.num_layers; ++i) {
    Gemma4Layer& layer = out.layers[static_cast<size_t>(i)];
    layer.head_dim = layer.sliding || has_table ? head_dim : global;
    layer.kv_heads = kv_heads;
  }
  const std::optional<ConfigReader> table = text.object("per_layer_config", false);
  if (!table) return;
  for (const auto& [key, value] : table->json().items()) {
    int32_t index = -1;
    const auto number = std::from_chars(key.data(), key.data() + key.size(), index);
    if (number.ec != std::errc() || number.ptr != key.data() + key.size() || index < 0 ||
        index >= out.num_layers) {
      table->problem(key, "not the index of a layer", "0 … " + std::to_string(out.num_layers - 1));
      continue;
    }
    if (const std::optional<ConfigReader> entry = table->object(key, true)) {
      Gemma4Layer& layer = out.layers[static_cast<size_t>(index)];
      layer.head_dim = static_cast<int32_t>(entry->integer("head_dim", 2, 1024, layer.head_dim));
      layer.kv_heads = static_cast<int32_t>(entry->integer("num_key_value_heads", 1, 1024, layer.kv_heads));
    }
  }
}

void read_layers(const ConfigReader& text, Gemma4TextConfig& out) {
  std::vector<std::string> types = text.texts("layer_types");
  if (types.empty()) {
    for (int32_t i = 0; i < out.num_layers; ++i)
      types.push_back((i + 1) % 6 != 0 ? "sliding_attention" : "full_attention");
    if (!types.empty()) types.back() = "full_attention";
  }
  if (static_cast<int32_t>(types.size()) != out.num_layers) {
    text.problem("layer_types", "not one entry per layer", std::to_string(out.num_layers),
                 std::to_string(types.size()));
    return;
  }
  const auto shared = static_cast<int32_t>(text.integer("num_kv_shared_layers", 0, out.num_layers - 1, 0));
  out.first_shared_layer = out.num_layers - shared;
  const auto intermediate = static_cast<int32_t>(text.integer("intermediate_size", 1, kMaxWidth));
  const bool double_wide = text.boolean("use_double_wide_mlp", false);
  int32_t last_of_kind[2] = {-1, -1};
  for (int32_t i = 0; i < out.num_layers; ++i) {
    Gemma4Layer& layer = out.layers[static_cast<size_t>(i)];
    const std::string& type = types[static_cast<size_t>(i)];
    const std::string key = "layer_types[" + std::to_string(i) + "]";
    if (type != "sliding_attention" && type != "full_attention") {
      text.problem(key, "unknown kind of layer", "sliding_attention or full_attention", printable(type, 40));
    }
    layer.sliding = type == "sliding_attention";
    const bool reuses = i >= out.first_shared_layer;
    layer.intermediate_size = reuses && double_wide ? 2 * intermediate : intermediate;
    layer.kv_source = reuses ? last_of_kind[layer.sliding] : i;
    if (!reuses) last_of_kind[layer.sliding] = i;
    if (layer.kv_source < 0) {
      text.problem(key, "shares the keys and values of an earlier layer of its kind, and there is none");
      layer.kv_source = i;
    }
  }
  read_head_sizes(text, out);
  const Gemma4Layer* first_of_kind[2] = {nullptr, nullptr};
  for (int32_t i = 0; i < out.num_layers; ++i) {
    const Gemma4Layer& layer = out.layers[static_cast<size_t>(i)];
    const Gemma4Layer*& first = first_of_kind[layer.sliding];
    if (first == nullptr) first = &layer;
    const std::string key = "per_layer_config." + std::to_string(i);
    if (layer.head_dim % 2 != 0)
      text.problem(key, "head_dim is odd", "an even number", std::to_string(layer.head_dim));
    if (layer.head_dim != first->head_dim || layer.kv_heads != first->kv_heads) {
      text.problem(key, "differs from the other layers of its kind", std::to_string(first->head_dim),
                   std::to_string(layer.head_dim));
    }
    if (out.num_heads % layer.kv_heads != 0) {
      text.problem("num_key_value_heads", "does not divide num_attention_heads",
                   std::to_string(out.num_heads), std::to_string(layer.kv_heads));
    }
  }
}

void read_rope(const ConfigReader& text, Gemma4TextConfig& out) {
  out.sliding_rope_theta = 10000.0;
  out.full_rope_theta = 1000000.0;
  out.full_rotary_factor = 0.25;
  const std::optional<ConfigReader> rope = text.object("rope_parameters", false);
  if (!rope) return;
  if (const auto sliding = rope->object("sliding_attention", true)) {
    out.sliding_rope_theta = sliding->number("rope_theta", 1, 1e12, out.sliding_rope_theta);
    if (sliding->text("rope_type", "default") != "default")
      sliding->problem("rope_type", "not supported", "default", sliding->text("rope_type"));
  }
  if (const auto full = rope->object("full_attention", true)) {
    out.full_rope_theta = full->number("rope_theta", 1, 1e12, out.full_rope_theta);
    out.full_rotary_factor = full->number("partial_rotary_factor", 0, 1, 1.0);
    if (full->text("rope_type", "proportional") != "proportional")
      full->problem("rope_type", "not supported", "proportional", full->text("rope_type"));
    if (full->number("factor", 1, 1, 1) != 1) full->problem("factor", "not supported");
  }
}

void read_text(const ConfigReader& text, Gemma4TextConfig& out) {
  out.vocab_size = static_cast<int32_t>(text.integer("vocab_size", 1, 1 << 24));
  const int64_t table_rows = text.integer("vocab_size_per_layer_input", 1, 1 << 24, out.vocab_size);
  if (table_rows != out.vocab_size) {
    text.problem("vocab_size_per_layer_input", "differs from vocab_size", std::to_string(out.vocab_size),
                 std::to_string(table_rows));
  }
  out.hidden_size = static_cast<int32_t>(text.integer("hidden_size", 1, kMaxWidth));
  out.num_layers = static_cast<int32_t>(text.integer("num_hidden_layers", 1, kGemma4MaxLayers));
  out.num_heads = static_cast<int32_t>(text.integer("num_attention_heads", 1, 1024));
  out.per_layer_size = static_cast<int32_t>(text.integer("hidden_size_per_layer_input", 1, kMaxWidth));
  out.sliding_window = static_cast<int32_t>(text.integer("sliding_window", 1, 1 << 24, 512));
  out.context_length = static_cast<int32_t>(text.integer("max_position_embeddings", 1, 1 << 24, 131072));
  out.pad_token_id = static_cast<int32_t>(text.integer("pad_token_id", 0, out.vocab_size - 1, 0));
  out.rms_norm_eps = static_cast<float>(text.number("rms_norm_eps", 0, 1, 1e-6));
  out.logit_softcap = static_cast<float>(text.number("final_logit_softcapping", 0, 1e6, 0));
  check_tied(text);
  read_layers(text, out);
  read_rope(text, out);
}

void read_audio(const ConfigReader& audio, Gemma4AudioConfig& out) {
  out.num_layers = static_cast<int32_t>(audio.integer("num_hidden_layers", 1, 256, 12));
  out.hidden_size = static_cast<int32_t>(audio.integer("hidden_size", 2, kMaxWidth, 1024));
  out.num_heads = static_cast<int32_t>(audio.integer("num_attention_heads", 1, 1024, 8));
  out.conv_kernel_size = static_cast<int32_t>(audio.integer("conv_kernel_size", 1, 1024, 5));
  out.output_size = static_cast<int32_t>(audio.integer("output_proj_dims", 1, kMaxWidth, 1536));
  out.clipped_linears = audio.boolean("use_clipped_linears", true);
  out.logit_cap = static_cast<float>(audio.number("attention_logit_cap", 1e-3, 1e6, 50));
  out.residual_weight = static_cast<float>(audio.number("residual_weight", 0, 1e3, 0.5));
  out.gradient_clipping = static_cast<float>(audio.number("gradient_clipping", 0, 1e30, 1e10));
  out.rms_norm_eps = static_cast<float>(audio.number("rms_norm_eps", 0, 1, 1e-6));
  if (out.hidden_size % out.num_heads != 0) {
    audio.problem("num_attention_heads", "does not divide hidden_size", std::to_string(out.hidden_size),
                  std::to_string(out.num_heads));
  }
  if (out.hidden_size % 2 != 0)
    audio.problem("hidden_size", "is odd", "an even number", std::to_string(out.hidden_size));
  const std::string activation = audio.text("hidden_act", "silu");
  if (activation != "silu") audio.problem("hidden_act", "not supported", "silu", printable(activation, 40));
  // The blocked attention of the original is one window per frame when the blocks look back exactly one
  // block.
  const int64_t chunk = audio.integer("attention_chunk_size", 1, 4096, 12);
  const int64_t left = audio.integer("attention_context_left", 2, 4097, 13);
  const int64_t right = audio.integer("attention_context_right", 0, 4096, 0);
  if (left != chunk + 1)
    audio.problem("attention_context_left", "not supported", std::to_string(chunk + 1), std::to_string(left));
  if (right != 0) audio.problem("attention_context_right", "not supported", "0", std::to_string(right));
  out.attention_window = static_cast<int32_t>(left - 1);
  out.conv_channels_0 = 128;
  out.conv_channels_1 = 32;
  if (!audio.has("subsampling_conv_channels")) return;
  const Json& channels = audio.json()["subsampling_conv_channels"];
  const auto valid = [](const Json& value) {
    return value.is_number_integer() && value.get<int64_t>() >= 1 && value.get<int64_t>() <= 8192;
  };
  if (!channels.is_array() || channels.size() != 2 || !valid(channels[0]) || !valid(channels[1])) {
    audio.problem("subsampling_conv_channels", "not two channel counts", "[128, 32]",
                  printable(channels.dump(), 60));
    return;
  }
  out.conv_channels_0 = channels[0].get<int32_t>();
  out.conv_channels_1 = channels[1].get<int32_t>();
  // The projection after the convolutions is sized by the channels where the original means mel bands.
  if (out.conv_channels_0 != kAudioMelBands) {
    audio.problem("subsampling_conv_channels[0]", "not supported", std::to_string(kAudioMelBands),
                  std::to_string(out.conv_channels_0));
  }
}

}  // namespace

Gemma4Config parse_gemma4_config(const Json& config, const std::string& source) {
  std::vector<Problem> problems, unsupported;
  const ConfigReader root(config, source, "", problems);
  Gemma4Config out;
  if (const auto text = root.object("text_config", true)) {
    refuse_unsupported(*text, unsupported, source);
    if (!unsupported.empty()) throw Error(ErrorCode::kUnsupported, std::move(unsupported));
    read_text(*text, out.text);
  }
  if (const auto audio = root.object("audio_config", false)) read_audio(*audio, out.audio);
  check_tied(root);
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  return out;
}

}  // namespace dovetail::models
