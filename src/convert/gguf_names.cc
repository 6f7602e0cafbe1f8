#include "convert/gguf_names.h"

#include <algorithm>
#include <initializer_list>
#include <span>

namespace dovetail::convert {
namespace {

struct Pair {
  std::string_view from, to;
};

constexpr Pair kText[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

constexpr Pair kAttention[] = {{"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
                               {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
                               {"attn_output", "self_attn.o_proj"}, {"ffn_gate", "mlp.gate_proj"},
                               {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};

constexpr Pair kLlamaBlock[] = {{"ffn_norm", "post_attention_layernorm"}};

constexpr Pair kGemmaBlock[] = {{"attn_q_norm", "self_attn.q_norm"},
                                {"attn_k_norm", "self_attn.k_norm"},
                                {"post_attention_norm", "post_attention_layernorm"},
                                {"ffn_norm", "pre_feedforward_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"}};

constexpr Pair kGemma4Text[] = {{"per_layer_token_embd", "model.embed_tokens_per_layer"},
                                {"per_layer_model_proj", "model.per_layer_model_projection"},
                                {"per_layer_proj_norm", "model.per_layer_projection_norm"}};

constexpr Pair kGemma4Block[] = {{"inp_gate", "per_layer_input_gate"},
                                 {"proj", "per_layer_projection"},
                                 {"post_norm", "post_per_layer_input_norm"}};

constexpr Pair kVision[] = {{"v.class_embd", "vision_tower.vision_model.embeddings.class_embedding"},
                            {"v.patch_embd", "vision_tower.vision_model.embeddings.patch_embedding"},
                            {"v.position_embd", "vision_tower.vision_model.embeddings.position_embedding"},
                            {"v.pre_ln", "vision_tower.vision_model.pre_layrnorm"},
                            {"v.post_ln", "vision_tower.vision_model.post_layernorm"},
                            {"mm.0", "multi_modal_projector.linear_1"},
                            {"mm.2", "multi_modal_projector.linear_2"},
                            {"mm.soft_emb_norm", "multi_modal_projector.mm_soft_emb_norm"}};

constexpr Pair kVisionBlock[] = {{"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
                                 {"attn_v", "self_attn.v_proj"}, {"attn_out", "self_attn.out_proj"},
                                 {"ln1", "layer_norm1"},         {"ln2", "layer_norm2"},
                                 {"ffn_up", "mlp.fc1"},          {"ffn_down", "mlp.fc2"}};

constexpr Pair kAudio[] = {{"a.input_projection", "audio_tower.subsample_conv_projection.input_proj_linear"},
                           {"a.conv1d.0", "audio_tower.subsample_conv_projection.layer0.conv"},
                           {"a.conv1d.1", "audio_tower.subsample_conv_projection.layer1.conv"},
                           {"a.conv1d.0.norm", "audio_tower.subsample_conv_projection.layer0.norm"},
                           {"a.conv1d.1.norm", "audio_tower.subsample_conv_projection.layer1.norm"},
                           {"a.pre_encode.out", "audio_tower.output_proj"},
                           {"mm.a.fc", "audio_tower.output_proj"},
                           {"mm.a.input_projection", "embed_audio.embedding_projection"}};

constexpr Pair kAudioBlock[] = {{"attn_q", "self_attn.q_proj"},
                                {"attn_k", "self_attn.k_proj"},
                                {"attn_v", "self_attn.v_proj"},
                                {"attn_k_rel", "self_attn.relative_k_proj"},
                                {"attn_out", "self_attn.post"},
                                {"attn_pre_norm", "norm_pre_attn"},
                                {"attn_post_norm", "norm_post_attn"},
                                {"ln2", "norm_out"},
                                {"ffn_norm", "feed_forward1.pre_layer_norm"},
                                {"ffn_post_norm", "feed_forward1.post_layer_norm"},
                                {"ffn_up", "feed_forward1.ffw_layer_1"},
                                {"ffn_down", "feed_forward1.ffw_layer_2"},
                                {"ffn_norm_1", "feed_forward2.pre_layer_norm"},
                                {"ffn_post_norm_1", "feed_forward2.post_layer_norm"},
                                {"ffn_up_1", "feed_forward2.ffw_layer_1"},
                                {"ffn_down_1", "feed_forward2.ffw_layer_2"},
                                {"conv_dw", "lconv1d.depthwise_conv1d"},
                                {"conv_norm", "lconv1d.pre_layer_norm"},
                                {"norm_conv", "lconv1d.conv_norm"},
                                {"conv_pw1", "lconv1d.linear_start"},
                                {"conv_pw2", "lconv1d.linear_end"}};

const std::string_view* find(std::span<const Pair> table, std::string_view name) {
  const auto it =
      std::find_if(table.begin(), table.end(), [&](const Pair& pair) { return pair.from == name; });
  return it == table.end() ? nullptr : &it->to;
}

// "blk.3.attn_q" is prefix "blk.", number 3, part "attn_q".
struct Block {
  std::string_view number, part;
};

bool split_block(std::string_view name, std::string_view prefix, Block& out) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos) return false;
  out = {name.substr(0, dot), name.substr(dot + 1)};
  return std::all_of(out.number.begin(), out.number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string join(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out += part;
  return out;
}

// The name without ".weight", ".bias" or another last part, and that part.
struct Stem {
  std::string_view stem, suffix;
};

Stem split_suffix(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot)};
}

std::string vision_name(GgufProjector projector, std::string_view name, bool swapped) {
  const auto [stem, suffix] = split_suffix(name);
  if (name == "v.class_embd") return "vision_tower.vision_model.embeddings.class_embedding";
  if (projector == GgufProjector::kGemma3 && stem == "mm.input_projection")
    return "multi_modal_projector.mm_input_projection_weight";
  if (const std::string_view* to = find(kVision, stem)) return join({*to, suffix});
  Block block;
  if (!split_block(stem, "v.blk.", block)) return std::string(name);
  std::string_view part = block.part;
  if (swapped && part == "ffn_up") {
    part = "ffn_down";
  } else if (swapped && part == "ffn_down") {
    part = "ffn_up";
  }
  const std::string_view* to = find(kVisionBlock, part);
  if (to == nullptr) return std::string(name);
  return join({"vision_tower.vision_model.encoder.layers.", block.number, ".", *to, suffix});
}

// The linear layers that clamp their inputs and outputs have one more level of names.
bool is_clamped(std::string_view part) {
  return part.starts_with("feed_forward")
             ? part.find("ffw_layer") != std::string_view::npos
             : part == "self_attn.q_proj" || part == "self_attn.k_proj" || part == "self_attn.v_proj" ||
                   part == "self_attn.post" || part.starts_with("lconv1d.linear_");
}

std::string audio_name(std::string_view name) {
  const auto [stem, suffix] = split_suffix(name);
  if (name.starts_with("v.")) return "vision_tower." + std::string(name);
  if (name == "mm.input_projection.weight") return "embed_vision.embedding_projection.weight";
  if (const std::string_view* to = find(kAudio, stem)) return join({*to, suffix});
  Block block;
  if (!split_block(stem, "a.blk.", block)) return std::string(name);
  if (block.part == "per_dim_scale")
    return join({"audio_tower.layers.", block.number, ".self_attn.per_dim_scale"});
  const std::string_view* to = find(kAudioBlock, block.part);
  if (to == nullptr) return std::string(name);
  const std::string_view level = is_clamped(*to) && suffix == ".weight" ? ".linear" : "";
  return join({"audio_tower.layers.", block.number, ".", *to, level, suffix});
}

}  // namespace

std::string gguf_text_name(GgufArchitecture architecture, std::string_view name) {
  const auto [stem, suffix] = split_suffix(name);
  const bool gemma4 = architecture == GgufArchitecture::kGemma4;
  if (const std::string_view* to = find(kText, stem)) return join({*to, suffix});
  if (gemma4) {
    if (const std::string_view* to = find(kGemma4Text, stem)) return join({*to, suffix});
  }
  Block block;
  if (!split_block(stem, "blk.", block)) return std::string(name);
  if (gemma4 && block.part == "layer_output_scale")
    return join({"model.layers.", block.number, ".layer_scalar"});
  const std::string_view* to = find(kAttention, block.part);
  if (to == nullptr) {
    to = architecture == GgufArchitecture::kLlama ? find(kLlamaBlock, block.part)
                                                  : find(kGemmaBlock, block.part);
  }
  if (to == nullptr && gemma4) to = find(kGemma4Block, block.part);
  if (to == nullptr) return std::string(name);
  return join({"model.layers.", block.number, ".", *to, suffix});
}

std::string gguf_encoder_name(GgufProjector projector, std::string_view name, bool swapped) {
  return projector == GgufProjector::kGemma4 ? audio_name(name) : vision_name(projector, name, swapped);
}

}  // namespace dovetail::convert
