// Writes the example checkpoints as llama.cpp's tools would: its names, its order of rows, its changes of
// values.
#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "convert/checkpoint.h"
#include "convert/quantize.h"
#include "gguf_fixture.h"

namespace dovetail::testing {

using Names = std::vector<std::pair<const char*, const char*>>;  // pattern of the whole name, replacement

inline const Names kTextNames{
    {"embed_tokens\\.weight", "token_embd.weight"},
    {"norm\\.weight", "output_norm.weight"},
    {"lm_head\\.weight", "output.weight"},
    {"embed_tokens_per_layer\\.weight", "per_layer_token_embd.weight"},
    {"per_layer_model_projection\\.weight", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm\\.weight", "per_layer_proj_norm.weight"},
    {"layers\\.(\\d+)\\.input_layernorm\\.weight", "blk.$1.attn_norm.weight"},
    {"layers\\.(\\d+)\\.self_attn\\.([qkv])_proj\\.weight", "blk.$1.attn_$2.weight"},
    {"layers\\.(\\d+)\\.self_attn\\.o_proj\\.weight", "blk.$1.attn_output.weight"},
    {"layers\\.(\\d+)\\.self_attn\\.([qk])_norm\\.weight", "blk.$1.attn_$2_norm.weight"},
    {"layers\\.(\\d+)\\.mlp\\.(gate|up|down)_proj\\.weight", "blk.$1.ffn_$2.weight"},
    {"layers\\.(\\d+)\\.pre_feedforward_layernorm\\.weight", "blk.$1.ffn_norm.weight"},
    {"layers\\.(\\d+)\\.post_feedforward_layernorm\\.weight", "blk.$1.post_ffw_norm.weight"},
    {"layers\\.(\\d+)\\.per_layer_input_gate\\.weight", "blk.$1.inp_gate.weight"},
    {"layers\\.(\\d+)\\.per_layer_projection\\.weight", "blk.$1.proj.weight"},
    {"layers\\.(\\d+)\\.post_per_layer_input_norm\\.weight", "blk.$1.post_norm.weight"},
    {"layers\\.(\\d+)\\.layer_scalar", "blk.$1.layer_output_scale.weight"},
};

inline const Names kVisionNames{
    {"embeddings\\.class_embedding", "v.class_embd"},
    {"embeddings\\.patch_embedding\\.(weight|bias)", "v.patch_embd.$1"},
    {"embeddings\\.position_embedding\\.weight", "v.position_embd.weight"},
    {"pre_layrnorm\\.(weight|bias)", "v.pre_ln.$1"},
    {"post_layernorm\\.(weight|bias)", "v.post_ln.$1"},
    {"encoder\\.layers\\.(\\d+)\\.layer_norm([12])\\.(weight|bias)", "v.blk.$1.ln$2.$3"},
    {"encoder\\.layers\\.(\\d+)\\.self_attn\\.([qkv])_proj\\.(weight|bias)", "v.blk.$1.attn_$2.$3"},
    {"encoder\\.layers\\.(\\d+)\\.self_attn\\.out_proj\\.(weight|bias)", "v.blk.$1.attn_out.$2"},
    {"encoder\\.layers\\.(\\d+)\\.mlp\\.fc1\\.(weight|bias)", "v.blk.$1.ffn_up.$2"},
    {"encoder\\.layers\\.(\\d+)\\.mlp\\.fc2\\.(weight|bias)", "v.blk.$1.ffn_down.$2"},
};

inline const Names kProjectorNames{
    {"linear_1\\.(weight|bias)", "mm.0.$1"},
    {"linear_2\\.(weight|bias)", "mm.2.$1"},
    {"mm_input_projection_weight", "mm.input_projection.weight"},
    {"mm_soft_emb_norm\\.weight", "mm.soft_emb_norm.weight"},
};

inline const Names kAudioNames{
    {"subsample_conv_projection\\.layer(\\d)\\.conv\\.weight", "a.conv1d.$1.weight"},
    {"subsample_conv_projection\\.layer(\\d)\\.norm\\.weight", "a.conv1d.$1.norm.weight"},
    {"subsample_conv_projection\\.input_proj_linear\\.weight", "a.input_projection.weight"},
    {"output_proj\\.(weight|bias)", "a.pre_encode.out.$1"},
    {"layers\\.(\\d+)\\.self_attn\\.([qkv])_proj\\.(\\w+)", "a.blk.$1.attn_$2.$3"},
    {"layers\\.(\\d+)\\.self_attn\\.post\\.(\\w+)", "a.blk.$1.attn_out.$2"},
    {"layers\\.(\\d+)\\.self_attn\\.relative_k_proj\\.weight", "a.blk.$1.attn_k_rel.weight"},
    {"layers\\.(\\d+)\\.self_attn\\.per_dim_scale", "a.blk.$1.per_dim_scale.weight"},
    {"layers\\.(\\d+)\\.norm_pre_attn\\.weight", "a.blk.$1.attn_pre_norm.weight"},
    {"layers\\.(\\d+)\\.norm_post_attn\\.weight", "a.blk.$1.attn_post_norm.weight"},
    {"layers\\.(\\d+)\\.norm_out\\.weight", "a.blk.$1.ln2.weight"},
    {"layers\\.(\\d+)\\.feed_forward1\\.pre_layer_norm\\.weight", "a.blk.$1.ffn_norm.weight"},
    {"layers\\.(\\d+)\\.feed_forward1\\.post_layer_norm\\.weight", "a.blk.$1.ffn_post_norm.weight"},
    {"layers\\.(\\d+)\\.feed_forward1\\.ffw_layer_1\\.(\\w+)", "a.blk.$1.ffn_up.$2"},
    {"layers\\.(\\d+)\\.feed_forward1\\.ffw_layer_2\\.(\\w+)", "a.blk.$1.ffn_down.$2"},
    {"layers\\.(\\d+)\\.feed_forward2\\.pre_layer_norm\\.weight", "a.blk.$1.ffn_norm_1.weight"},
    {"layers\\.(\\d+)\\.feed_forward2\\.post_layer_norm\\.weight", "a.blk.$1.ffn_post_norm_1.weight"},
    {"layers\\.(\\d+)\\.feed_forward2\\.ffw_layer_1\\.(\\w+)", "a.blk.$1.ffn_up_1.$2"},
    {"layers\\.(\\d+)\\.feed_forward2\\.ffw_layer_2\\.(\\w+)", "a.blk.$1.ffn_down_1.$2"},
    {"layers\\.(\\d+)\\.lconv1d\\.depthwise_conv1d\\.weight", "a.blk.$1.conv_dw.weight"},
    {"layers\\.(\\d+)\\.lconv1d\\.pre_layer_norm\\.weight", "a.blk.$1.conv_norm.weight"},
    {"layers\\.(\\d+)\\.lconv1d\\.conv_norm\\.weight", "a.blk.$1.norm_conv.weight"},
    {"layers\\.(\\d+)\\.lconv1d\\.linear_start\\.(\\w+)", "a.blk.$1.conv_pw1.$2"},
    {"layers\\.(\\d+)\\.lconv1d\\.linear_end\\.(\\w+)", "a.blk.$1.conv_pw2.$2"},
};

// Empty when no pattern fits.
inline std::string renamed(const Names& names, const std::string& name) {
  for (const auto& [pattern, replacement] : names) {
    const std::regex whole(pattern);
    if (std::regex_match(name, whole)) return std::regex_replace(name, whole, replacement);
  }
  return "";
}

class CheckpointWriter {
 public:
  GgufFile text, encoder;
  // Changes a tensor of the text model before it is written (its own name there).
  std::function<void(const std::string& name, std::vector<int64_t>& shape, std::vector<float>& values)> edit;

  CheckpointWriter(const std::filesystem::path& folder, std::string architecture)
      : folder_(folder), architecture_(std::move(architecture)) {
    config_ = parse_json(read_file(folder / "config.json"), "config.json");
    text_config_ = config_.contains("text_config") ? config_["text_config"] : config_;
  }

  const Json& config() const { return config_; }
  const Json& text_config() const { return text_config_; }

  void write_tensors() {
    const convert::Checkpoint checkpoint = convert::open_checkpoint(folder_);
    for (const convert::CheckpointTensor& tensor : checkpoint.tensors) {
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      convert::convert_values(*tensor.dtype, checkpoint.bytes(tensor).data(), tensor.elements(),
                              DType::kFloat32, reinterpret_cast<std::byte*>(values.data()));
      add(tensor.name, tensor.shape, std::move(values));
    }
  }

  void write_tokenizer(const std::string& kind, const char* pre) {
    const Json tokenizer = parse_json(read_file(folder_ / "tokenizer.json"), "tokenizer.json");
    const Json& model = tokenizer["model"];
    std::vector<std::string> tokens(model["vocab"].size());
    for (const auto& [token, id] : model["vocab"].items()) tokens.at(id.get<size_t>()) = token;
    std::vector<int32_t> types(tokens.size(), 1);
    std::vector<float> scores(tokens.size(), -1e6f);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].size() == 6 && tokens[i].starts_with("<0x")) types[i] = 6;
    }
    for (const Json& added : tokenizer["added_tokens"]) types.at(added["id"].get<size_t>()) = 3;
    std::vector<std::string> merges;
    float rank = 0;
    for (const Json& merge : model["merges"]) {
      const auto left = merge[0].get<std::string>(), right = merge[1].get<std::string>();
      merges.push_back(left + " " + right);
      scores.at(model["vocab"][left + right].get<size_t>()) = -(rank += 1);
    }
    text.set("tokenizer.ggml.model", kind).set("tokenizer.ggml.tokens", tokens);
    text.set("tokenizer.ggml.token_type", types);
    if (kind == "llama") {
      text.set("tokenizer.ggml.scores", scores);
    } else {
      text.set("tokenizer.ggml.merges", merges);
    }
    if (pre != nullptr) text.set("tokenizer.ggml.pre", pre);
    for (const char* name : {"bos", "eos"}) {
      const std::string key = std::string(name) + "_token_id";
      if (text_config_.contains(key)) text.set("tokenizer.ggml." + key, text_config_[key].get<uint32_t>());
    }
  }

 private:
  void add(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
    const auto strip = [&](std::string_view prefix) {
      const bool found = name.starts_with(prefix);
      if (found) name.erase(0, prefix.size());
      return found;
    };
    strip("model.");
    GgufFile* file = &encoder;
    std::string out;
    if (strip("vision_tower.")) {
      strip("vision_model.");
      out = architecture_ == "gemma4" ? "v." + name : renamed(kVisionNames, name);
    } else if (strip("multi_modal_projector.")) {
      out = renamed(kProjectorNames, name);
      if (name.starts_with("mm_soft_emb_norm")) add_one(values);
    } else if (strip("audio_tower.")) {
      name = std::regex_replace(name, std::regex("\\.linear\\."), ".");
      out = renamed(kAudioNames, name);
      if (name.ends_with("per_dim_scale"))
        for (float& value : values) value = std::log1p(std::exp(value));
      if (shape.empty()) shape = {1};
      if (name.ends_with("depthwise_conv1d.weight")) shape = {shape[0], shape[2]};
    } else if (name == "embed_audio.embedding_projection.weight") {
      out = "mm.a.input_projection.weight";
    } else if (name == "embed_vision.embedding_projection.weight") {
      out = "mm.input_projection.weight";
    } else {
      strip("language_model.");
      strip("model.");
      file = &text;
      out = text_name(name);
      if (architecture_ == "gemma3" && name.ends_with("norm.weight")) add_one(values);
      if (architecture_ == "llama") interleave(name, shape, values);
      if (edit) edit(out, shape, values);
    }
    if (!out.empty()) file->f32(out, std::move(shape), values);
  }

  std::string text_name(const std::string& name) const {
    static const std::regex post("layers\\.(\\d+)\\.post_attention_layernorm\\.weight");
    if (std::regex_match(name, post)) {
      return std::regex_replace(
          name, post,
          architecture_ == "llama" ? "blk.$1.ffn_norm.weight" : "blk.$1.post_attention_norm.weight");
    }
    return renamed(kTextNames, name);
  }

  static void add_one(std::vector<float>& values) {
    for (float& value : values) value += 1.0f;
  }

  // Rows of a head: those of its first and of its second half alternate.
  void interleave(const std::string& name, const std::vector<int64_t>& shape,
                  std::vector<float>& values) const {
    const bool query = name.ends_with("q_proj.weight");
    if (!query && !name.ends_with("k_proj.weight")) return;
    const auto heads = text_config_[query ? "num_attention_heads" : "num_key_value_heads"].get<int64_t>();
    const int64_t head = shape[0] / heads, cols = shape[1];
    const std::vector<float> from = values;
    for (int64_t row = 0; row < shape[0]; ++row) {
      const int64_t first = row / head * head, i = row % head;
      const int64_t source = first + i % 2 * (head / 2) + i / 2;
      std::copy_n(from.begin() + source * cols, cols, values.begin() + row * cols);
    }
  }

  std::filesystem::path folder_;
  std::string architecture_;
  Json config_, text_config_;
};

// The metadata that all architectures have.
inline void common(CheckpointWriter& writer, const std::string& architecture) {
  const Json& c = writer.text_config();
  const auto number = [&](const char* key) { return c[key].get<uint32_t>(); };
  GgufFile& file = writer.text;
  file.set("general.architecture", architecture);
  const std::string prefix = architecture + ".";
  file.set(prefix + "block_count", number("num_hidden_layers"));
  file.set(prefix + "context_length", number("max_position_embeddings"));
  file.set(prefix + "embedding_length", number("hidden_size"));
  file.set(prefix + "attention.head_count", number("num_attention_heads"));
  file.set(prefix + "attention.layer_norm_rms_epsilon", c["rms_norm_eps"].get<float>());
  if (architecture != "gemma4") {
    file.set(prefix + "feed_forward_length", number("intermediate_size"));
    file.set(prefix + "attention.head_count_kv", number("num_key_value_heads"));
  }
  if (architecture == "gemma3") {
    file.set(prefix + "attention.key_length", number("head_dim"));
    file.set(prefix + "attention.value_length", number("head_dim"));
  }
}

// The metadata of an encoder of pictures.
inline void vision(CheckpointWriter& writer, const char* projector) {
  const Json& c = writer.config()["vision_config"];
  GgufFile& file = writer.encoder;
  file.set("general.architecture", "clip").set("clip.projector_type", projector);
  for (const auto& [key, from] : {std::pair{"image_size", "image_size"},
                                  {"patch_size", "patch_size"},
                                  {"embedding_length", "hidden_size"},
                                  {"feed_forward_length", "intermediate_size"},
                                  {"block_count", "num_hidden_layers"},
                                  {"attention.head_count", "num_attention_heads"}})
    file.set(std::string("clip.vision.") + key, c[from].get<uint32_t>());
  file.set("clip.vision.attention.layer_norm_epsilon", c["layer_norm_eps"].get<float>());
}

}  // namespace dovetail::testing
