#include "convert/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numbers>
#include <optional>

#include "convert/gguf_metadata.h"

namespace dovetail::convert {
namespace {

constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = 1 << 17;

// A float32 that stood in another program's configuration as a decimal number: the shortest one that is it.
double shortest(double value) {
  const auto target = static_cast<float>(value);
  for (int digits = 1; digits <= 9; ++digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(target));
    if (std::strtof(text, nullptr) == target) return std::strtod(text, nullptr);
  }
  return value;
}

class ConfigBuilder {
 public:
  ConfigBuilder(GgufArchitecture architecture, const Gguf& gguf, const Gguf* encoder,
                std::vector<Problem>& problems)
      : architecture_(architecture),
        gguf_(gguf),
        encoder_(encoder),
        problems_(problems),
        model_(gguf, std::string(std::get<std::string_view>(*gguf.find("general.architecture"))) + ".",
               problems),
        tokens_(gguf, "tokenizer.ggml.", problems) {}

  Json build() {
    switch (architecture_) {
      case GgufArchitecture::kLlama:
        return encoder_ == nullptr ? llama() : llava();
      case GgufArchitecture::kGemma3:
        return gemma3();
      case GgufArchitecture::kGemma4:
        return gemma4();
    }
    return {};
  }

 private:
  // Rows of a table of the vocabulary; 0 and a problem when there is none.
  int64_t rows(const char* tensor) {
    const GgufTensor* table = gguf_.find_tensor(tensor);
    if (table != nullptr && table->shape.size() == 2) return table->shape[0];
    problems_.push_back(
        {.message = "the file has no such matrix", .source = gguf_.source(), .field = tensor});
    return 0;
  }

  void common(Json& out) {
    layers_ = model_.integer("block_count", 1, kMaxLayers);
    hidden_ = model_.integer("embedding_length", 1, kMaxWidth);
    heads_ = model_.integer("attention.head_count", 1, 1024);
    out["vocab_size"] = rows("token_embd.weight");
    out["hidden_size"] = hidden_;
    out["num_hidden_layers"] = layers_;
    out["num_attention_heads"] = heads_;
    out["max_position_embeddings"] = model_.integer("context_length", 1, 1 << 24);
    out["rms_norm_eps"] = shortest(model_.number("attention.layer_norm_rms_epsilon", 0, 1));
    if (model_.integer("expert_count", 0, 1 << 16, 0) > 0)
      model_.problem("expert_count", "a mixture of experts is not supported", "0");
  }

  void token_ids(Json& out) {
    for (const char* name : {"bos", "eos"}) {
      const std::string key = std::string(name) + "_token_id";
      if (tokens_.has(key)) out[key] = tokens_.integer(key, 0, kMaxTokenId);
    }
    if (tokens_.has("padding_token_id"))
      out["pad_token_id"] = tokens_.integer("padding_token_id", 0, kMaxTokenId);
  }

  int64_t head_dim(int64_t fallback) {
    const int64_t size = model_.integer("attention.key_length", 2, 1024, fallback);
    const int64_t value = model_.integer("attention.value_length", 2, 1024, size);
    if (value != size) {
      model_.problem("attention.value_length", "differs from the length of the keys", std::to_string(size),
                     std::to_string(value));
    }
    return size;
  }

  Json llama() {
    Json out = {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
    common(out);
    out["intermediate_size"] = model_.integer("feed_forward_length", 1, kMaxWidth);
    out["num_key_value_heads"] = model_.integer("attention.head_count_kv", 1, 1024, heads_);
    const int64_t size = head_dim(std::max<int64_t>(2, hidden_ / heads_));
    out["head_dim"] = size;
    const int64_t rotary = model_.integer("rope.dimension_count", 1, 1024, size);
    if (rotary != size) {
      model_.problem("rope.dimension_count", "heads that rotate in part are not supported",
                     std::to_string(size), std::to_string(rotary));
    }
    out["rope_theta"] = shortest(model_.number("rope.freq_base", 1, 1e12, 10000.0));
    if (Json scaling = llama_scaling(size, out["rope_theta"].get<double>()); !scaling.is_null())
      out["rope_scaling"] = std::move(scaling);
    out["hidden_act"] = "silu";
    out["attention_bias"] = gguf_.find_tensor("blk.0.attn_q.bias") != nullptr;
    out["tie_word_embeddings"] = gguf_.find_tensor("output.weight") == nullptr;
    token_ids(out);
    return out;
  }

  // "linear" of the metadata.
  Json linear_scaling() {
    const std::string type = model_.text("rope.scaling.type", "none");
    const double factor = model_.number("rope.scaling.factor", 1, 1e6, 1.0);
    if (type == "none" || (type == "linear" && factor == 1.0)) return nullptr;
    if (type != "linear") {
      model_.problem("rope.scaling.type", "not supported", "none or linear", printable(type, 40));
      return nullptr;
    }
    return {{"rope_type", "linear"}, {"factor", shortest(factor)}};
  }

  // Llama 3's scaling is in the file as one divisor for each frequency. They are 1 for the high frequencies,
  // the factor for the low ones, and between these 1 / divisor is a linear function of the frequency; from it
  // the configuration's values follow, up to a common factor of three of them.
  Json llama_scaling(int64_t head_dim, double theta) {
    const GgufTensor* tensor = gguf_.find_tensor("rope_freqs.weight");
    if (tensor == nullptr) return linear_scaling();
    const auto problem = [&](const std::string& message, const std::string& expected,
                             const std::string& actual) {
      problems_.push_back({.message = message,
                           .source = gguf_.source(),
                           .field = "\"rope_freqs.weight\"",
                           .expected = expected,
                           .actual = actual});
      return Json(nullptr);
    };
    const std::vector<float> divisors = values_of(*tensor);
    if (static_cast<int64_t>(divisors.size()) != head_dim / 2)
      return problem("not one value for each frequency", std::to_string(head_dim / 2) + " of F32",
                     std::to_string(divisors.size()));
    const double factor = divisors.back();
    if (!(factor >= 1.0 && factor <= 1e6))
      return problem("no such factor is possible", "1 to 1e6", "another");
    constexpr double kContext = 8192;                // of Llama 3; see above
    std::vector<std::pair<double, double>> between;  // turns in the context, smoothness
    for (size_t i = 0; i < divisors.size(); ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double smooth = (1.0 / divisors[i] - 1.0 / factor) / (1.0 - 1.0 / factor);
      if (smooth > 1e-4 && smooth < 1 - 1e-4)
        between.emplace_back(kContext * frequency / (2 * std::numbers::pi), smooth);
    }
    double low = 1, high = 4;
    if (between.size() >= 2) {
      const auto [x0, y0] = between.front();
      const auto [x1, y1] = between.back();
      const double slope = (y0 - y1) / (x0 - x1);
      low = x1 - y1 / slope;
      high = low + 1 / slope;
    }
    const auto near = [](double a, double b) { return std::abs(a - b) < 1e-3 * b; };
    if (near(low, 1) && near(high, 4)) low = 1, high = 4;
    if (!(low > 0 && high > low)) return problem("is not the scaling of Llama 3", "a smooth step", "another");
    for (size_t i = 0; i < divisors.size(); ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double turns = kContext * frequency / (2 * std::numbers::pi);
      const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      const double expected = 1 / ((1 - smooth) / factor + smooth);
      if (!(std::abs(divisors[i] - expected) <= 1e-3 * expected)) {
        return problem("value " + std::to_string(i) + " is not that of Llama 3's scaling",
                       std::to_string(expected), std::to_string(divisors[i]));
      }
    }
    return {{"rope_type", "llama3"},
            {"factor", shortest(factor)},
            {"low_freq_factor", low},
            {"high_freq_factor", high},
            {"original_max_position_embeddings", static_cast<int64_t>(kContext)}};
  }

  // Of a small F32 tensor; empty for another type.
  std::vector<float> values_of(const GgufTensor& tensor) {
    if (tensor.type != static_cast<uint32_t>(GgmlType::kF32) || tensor.bytes > (1 << 20)) return {};
    std::vector<float> out(static_cast<size_t>(tensor.elements()));
    dequantize(GgmlType::kF32, gguf_.data(tensor).data(), out);
    return out;
  }

  // "sliding_window_pattern": every n-th layer sees everything, or a truth value for each layer that slides.
  Json layer_types(int64_t fallback) {
    Json out = Json::array();
    std::optional<std::vector<bool>> sliding;
    if (const GgufValue* value =
            gguf_.find(std::string(architecture_ == GgufArchitecture::kGemma3 ? "gemma3" : "gemma4") +
                       ".attention.sliding_window_pattern");
        value != nullptr && std::holds_alternative<GgufArray>(*value)) {
      sliding = std::get<GgufArray>(*value).booleans();
      if (!sliding || static_cast<int64_t>(sliding->size()) != layers_) {
        model_.problem("attention.sliding_window_pattern", "not one truth value for each layer",
                       std::to_string(layers_));
        return out;
      }
    } else {
      fallback = model_.integer("attention.sliding_window_pattern", 1, kMaxLayers, fallback);
    }
    for (int64_t i = 0; i < layers_; ++i) {
      const bool slides = sliding ? (*sliding)[static_cast<size_t>(i)] : (i + 1) % fallback != 0;
      out.push_back(slides ? "sliding_attention" : "full_attention");
    }
    return out;
  }

  Json gemma3() {
    Json text = {{"architectures", {"Gemma3ForCausalLM"}}, {"model_type", "gemma3_text"}};
    common(text);
    text["intermediate_size"] = model_.integer("feed_forward_length", 1, kMaxWidth);
    text["num_key_value_heads"] = model_.integer("attention.head_count_kv", 1, 1024);
    const int64_t size = head_dim(256);
    text["head_dim"] = size;
    // The 27B model alone scales by the width of its layers.
    constexpr int64_t kLayers27B = 62;
    text["query_pre_attn_scalar"] = layers_ == kLayers27B ? hidden_ / heads_ : size;
    const bool slides = model_.has("attention.sliding_window");
    if (slides) text["sliding_window"] = model_.integer("attention.sliding_window", 1, 1 << 24);
    text["layer_types"] = layer_types(slides ? 6 : 1);
    text["rope_theta"] = shortest(model_.number("rope.freq_base", 1, 1e12, 1000000.0));
    text["rope_local_base_freq"] = shortest(model_.number("rope.freq_base_swa", 1, 1e12, 10000.0));
    if (Json scaling = linear_scaling(); !scaling.is_null()) text["rope_scaling"] = std::move(scaling);
    if (model_.has("final_logit_softcapping"))
      text["final_logit_softcapping"] = shortest(model_.number("final_logit_softcapping", 0, 1e6));
    text["hidden_activation"] = "gelu_pytorch_tanh";
    token_ids(text);
    if (encoder_ == nullptr) return text;
    const GgufMetadata vision(*encoder_, "clip.vision.", problems_);
    const int64_t image = vision.integer("image_size", 1, 1 << 14);
    const int64_t patch = vision.integer("patch_size", 1, image);
    const int64_t side = image / patch / vision.integer("projector.scale_factor", 1, 1 << 14, 4);
    Json out = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                {"model_type", "gemma3"},
                {"text_config", text},
                {"vision_config", vision_config(vision, "siglip_vision_model")},
                {"mm_tokens_per_image", side * side},
                {"boi_token_index", token("<start_of_image>")},
                {"eoi_token_index", token("<end_of_image>")}};
    // Files lack the rows of the embedding table behind the vocabulary, where the original has its
    // placeholder. Any id does: what stands there is replaced. The last one is never in a text.
    out["image_token_index"] = text["vocab_size"].get<int64_t>() - 1;
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (text.contains(key)) out[key] = text[key];
    }
    return out;
  }

  Json vision_config(const GgufMetadata& vision, const char* type) {
    const GgufMetadata clip(*encoder_, "clip.", problems_);
    return {{"model_type", type},
            {"image_size", vision.integer("image_size", 1, 1 << 14)},
            {"patch_size", vision.integer("patch_size", 1, 1 << 14)},
            {"hidden_size", vision.integer("embedding_length", 1, kMaxWidth)},
            {"intermediate_size", vision.integer("feed_forward_length", 1, kMaxWidth)},
            {"num_hidden_layers", vision.integer("block_count", 1, kMaxLayers)},
            {"num_attention_heads", vision.integer("attention.head_count", 1, 1024)},
            {"layer_norm_eps", shortest(vision.number("attention.layer_norm_epsilon", 0, 1))},
            {"hidden_act", type == std::string_view("siglip_vision_model") ? "gelu_pytorch_tanh"
                           : clip.boolean("use_gelu", false)               ? "gelu"
                                                                           : "quick_gelu"}};
  }

  Json llava() {
    const GgufMetadata vision(*encoder_, "clip.vision.", problems_);
    Json text = llama();
    // Files that end with the layer whose outputs are used have no norm behind it either.
    const bool whole = encoder_->find_tensor("v.post_ln.weight") != nullptr;
    Json out = {{"architectures", {"LlavaForConditionalGeneration"}},
                {"model_type", "llava"},
                {"vision_config", vision_config(vision, "clip_vision_model")},
                {"vision_feature_layer", whole ? -2 : -1},
                {"vision_feature_select_strategy", "default"},
                {"projector_hidden_act", "gelu"}};
    // The original's placeholder may lie behind the vocabulary. Any id does: what stands there is replaced.
    out["image_token_index"] = tokens_.integer("unknown_token_id", 0, kMaxTokenId, 0);
    out["text_config"] = std::move(text);
    return out;
  }

  // The id of a token that every file of this family has.
  int64_t token(std::string_view text) {
    if (const GgufArray* tokens = tokens_.array("tokens", GgufType::kString)) {
      const auto it = std::find(tokens->strings.begin(), tokens->strings.end(), text);
      if (it != tokens->strings.end()) return it - tokens->strings.begin();
    }
    tokens_.problem("tokens", "lacks a token that the encoder's input stands between",
                    "\"" + std::string(text) + "\"");
    return 0;
  }

  Json gemma4() {
    Json text = {{"model_type", "gemma4_text"}};
    common(text);
    const std::vector<int64_t> inner = model_.integers("feed_forward_length", layers_, 1, kMaxWidth);
    const std::vector<int64_t> kv = model_.integers("attention.head_count_kv", layers_, 1, 1024);
    const int64_t shared = model_.integer("attention.shared_kv_layers", 0, layers_ - 1, 0);
    text["num_kv_shared_layers"] = shared;
    text["intermediate_size"] = inner.front();
    const bool wide = inner.back() != inner.front();
    text["use_double_wide_mlp"] = wide;
    for (int64_t i = 0; i < layers_; ++i) {
      const int64_t expected = inner.front() * (wide && i >= layers_ - shared ? 2 : 1);
      if (inner[static_cast<size_t>(i)] == expected) continue;
      model_.problem("feed_forward_length", "not supported in layer " + std::to_string(i),
                     std::to_string(expected), std::to_string(inner[static_cast<size_t>(i)]));
      break;
    }
    const int64_t full = head_dim(512);
    const int64_t sliding = model_.integer("attention.key_length_swa", 2, 1024, full);
    text["head_dim"] = sliding;
    text["num_key_value_heads"] = kv.front();
    text["layer_types"] = layer_types(6);
    Json table = Json::object();
    for (int64_t i = 0; i < layers_ && i < static_cast<int64_t>(text["layer_types"].size()); ++i) {
      if (text["layer_types"][static_cast<size_t>(i)] == "full_attention")
        table[std::to_string(i)] = {{"head_dim", full}, {"num_key_value_heads", kv[static_cast<size_t>(i)]}};
    }
    text["per_layer_config"] = std::move(table);
    text["hidden_size_per_layer_input"] = model_.integer("embedding_length_per_layer_input", 0, kMaxWidth, 0);
    text["vocab_size_per_layer_input"] = rows("per_layer_token_embd.weight");
    text["attention_k_eq_v"] = gguf_.find_tensor("blk.0.attn_v.weight") == nullptr;
    text["sliding_window"] = model_.integer("attention.sliding_window", 1, 1 << 24);
    if (model_.has("final_logit_softcapping"))
      text["final_logit_softcapping"] = shortest(model_.number("final_logit_softcapping", 0, 1e6));
    text["hidden_activation"] = "gelu_pytorch_tanh";
    text["rope_parameters"] = {
        {"sliding_attention",
         {{"rope_type", "default"},
          {"rope_theta", shortest(model_.number("rope.freq_base_swa", 1, 1e12, 10000.0))}}},
        {"full_attention",
         {{"rope_type", "proportional"},
          {"rope_theta", shortest(model_.number("rope.freq_base", 1, 1e12, 1000000.0))},
          {"partial_rotary_factor", rotary_share()}}}};
    token_ids(text);
    Json out = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                {"model_type", "gemma4"},
                {"tie_word_embeddings", true}};
    if (encoder_ != nullptr) {
      out["audio_config"] = audio_config();
      out["boa_token_id"] = token("<|audio>");
      out["audio_token_id"] = token("<|audio|>");
      out["eoa_token_id"] = token("<audio|>");
    }
    out["text_config"] = std::move(text);
    return out;
  }

  // Frequencies of full-attention layers that do not rotate have an enormous divisor.
  double rotary_share() {
    const GgufTensor* tensor = gguf_.find_tensor("rope_freqs.weight");
    if (tensor == nullptr) return 1.0;
    const std::vector<float> divisors = values_of(*tensor);
    const auto rotating =
        std::find_if(divisors.begin(), divisors.end(), [](float value) { return value != 1.0f; });
    if (divisors.empty() ||
        std::any_of(rotating, divisors.end(), [](float value) { return !(value >= 1e29f); })) {
      problems_.push_back({.message = "is not the rotation of Gemma 4",
                           .source = gguf_.source(),
                           .field = "\"rope_freqs.weight\"",
                           .expected = "1 for the first frequencies, 1e30 for the others"});
      return 1.0;
    }
    return static_cast<double>(rotating - divisors.begin()) / static_cast<double>(divisors.size());
  }

  Json audio_config() {
    const GgufMetadata audio(*encoder_, "clip.audio.", problems_);
    Json out = {{"model_type", "gemma4_audio"},
                {"num_hidden_layers", audio.integer("block_count", 1, 256)},
                {"hidden_size", audio.integer("embedding_length", 2, kMaxWidth)},
                {"num_attention_heads", audio.integer("attention.head_count", 1, 1024)},
                {"use_clipped_linears", encoder_->find_tensor("a.blk.0.attn_q.input_max") != nullptr}};
    const auto dimension = [&](const char* tensor, size_t index) -> int64_t {
      const GgufTensor* found = encoder_->find_tensor(tensor);
      if (found != nullptr && index < found->shape.size()) return found->shape[index];
      problems_.push_back(
          {.message = "the file has no such tensor", .source = encoder_->source(), .field = tensor});
      return 1;
    };
    out["subsampling_conv_channels"] = {dimension("a.conv1d.0.weight", 0), dimension("a.conv1d.1.weight", 0)};
    out["conv_kernel_size"] = dimension("a.blk.0.conv_dw.weight", 1);
    out["output_proj_dims"] = encoder_->find_tensor("mm.a.fc.weight") != nullptr
                                  ? dimension("mm.a.fc.weight", 0)
                                  : dimension("a.pre_encode.out.weight", 0);
    return out;
  }

  const GgufArchitecture architecture_;
  const Gguf& gguf_;
  const Gguf* encoder_;
  std::vector<Problem>& problems_;
  GgufMetadata model_;
  GgufMetadata tokens_;
  int64_t layers_ = 1;
  int64_t hidden_ = 1;
  int64_t heads_ = 1;
};

}  // namespace

Json gguf_config(GgufArchitecture architecture, const Gguf& gguf, const Gguf* encoder,
                 std::vector<Problem>& problems) {
  return ConfigBuilder(architecture, gguf, encoder, problems).build();
}

Json gguf_generation_config(const Gguf& gguf, std::vector<Problem>& problems) {
  const GgufMetadata tokens(gguf, "tokenizer.ggml.", problems);
  Json out = Json::object();
  Json ends = Json::array();
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    if (!tokens.has(key)) continue;
    const Json id = tokens.integer(key, 0, kMaxTokenId);
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  // Files name one token; a reply may end with others of the vocabulary, as llama.cpp assumes too.
  constexpr std::array<std::string_view, 6> kEnds{"<end_of_turn>", "<turn|>",    "<|eot_id|>",
                                                  "<|eom_id|>",    "<|im_end|>", "<|endoftext|>"};
  const GgufArray* texts = tokens.array("tokens", GgufType::kString);
  const GgufArray* kinds = tokens.array("token_type", GgufType::kInt32);
  if (texts != nullptr && kinds != nullptr && kinds->count == texts->count) {
    const std::vector<int64_t> types = *kinds->integers();
    constexpr int64_t kControl = 3;
    for (size_t id = 0; id < types.size(); ++id) {
      const bool known =
          types[id] == kControl && std::find(kEnds.begin(), kEnds.end(), texts->strings[id]) != kEnds.end();
      if (known && std::find(ends.begin(), ends.end(), Json(id)) == ends.end()) ends.push_back(id);
    }
  }
  if (!ends.empty()) out["eos_token_id"] = std::move(ends);
  if (tokens.has("bos_token_id")) out["bos_token_id"] = tokens.integer("bos_token_id", 0, kMaxTokenId);
  if (tokens.has("padding_token_id"))
    out["pad_token_id"] = tokens.integer("padding_token_id", 0, kMaxTokenId);
  return out;
}

}  // namespace dovetail::convert
