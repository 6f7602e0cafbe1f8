#include "models/gemma4_plan.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "models/config_reader.h"
#include "models/gemma4.h"

namespace dovetail::models {
namespace {

// C++ designated initialisers of a configuration: the compiled library holds it as a constant.
class Literal {
 public:
  void field(const char* name, int32_t value) { add(name, std::to_string(value)); }
  void field(const char* name, bool value) { add(name, value ? "true" : "false"); }
  void field(const char* name, float value) { add(name, number(value, "%.9g") + "f"); }
  void field(const char* name, double value) { add(name, number(value, "%.17g")); }
  void add(const char* name, const std::string& value) {
    text_ += (text_.empty() ? "." : ", .") + std::string(name) + " = " + value;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  static std::string number(double value, const char* format) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, format, value);
    std::string out = buffer;
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
  }
  std::string text_;
};

std::string layer_literal(const Gemma4Layer& layer) {
  Literal out;
  out.field("head_dim", layer.head_dim);
  out.field("kv_heads", layer.kv_heads);
  out.field("intermediate_size", layer.intermediate_size);
  out.field("sliding", layer.sliding);
  out.field("kv_source", layer.kv_source);
  return out.text();
}

std::string text_literal(const Gemma4TextConfig& c) {
  Literal out;
  out.field("vocab_size", c.vocab_size);
  out.field("hidden_size", c.hidden_size);
  out.field("num_layers", c.num_layers);
  out.field("first_shared_layer", c.first_shared_layer);
  out.field("num_heads", c.num_heads);
  out.field("per_layer_size", c.per_layer_size);
  out.field("sliding_window", c.sliding_window);
  out.field("context_length", c.context_length);
  out.field("pad_token_id", c.pad_token_id);
  out.field("rms_norm_eps", c.rms_norm_eps);
  out.field("logit_softcap", c.logit_softcap);
  out.field("sliding_rope_theta", c.sliding_rope_theta);
  out.field("full_rope_theta", c.full_rope_theta);
  out.field("full_rotary_factor", c.full_rotary_factor);
  std::string layers;
  for (int32_t i = 0; i < c.num_layers; ++i) {
    const std::string literal = layer_literal(c.layers[static_cast<size_t>(i)]);
    layers += (i ? ",\n    " : "\n    ") + (i ? literal : "dovetail::models::Gemma4Layer" + literal);
  }
  out.add("layers", "{" + layers + "}");
  return out.text();
}

std::string audio_literal(const Gemma4AudioConfig& c) {
  Literal out;
  out.field("num_layers", c.num_layers);
  out.field("hidden_size", c.hidden_size);
  out.field("num_heads", c.num_heads);
  out.field("conv_channels_0", c.conv_channels_0);
  out.field("conv_channels_1", c.conv_channels_1);
  out.field("conv_kernel_size", c.conv_kernel_size);
  out.field("attention_window", c.attention_window);
  out.field("output_size", c.output_size);
  out.field("clipped_linears", c.clipped_linears);
  out.field("logit_cap", c.logit_cap);
  out.field("residual_weight", c.residual_weight);
  out.field("gradient_clipping", c.gradient_clipping);
  out.field("rms_norm_eps", c.rms_norm_eps);
  return out.text();
}

// Bytes of parameters that one decode step reads: everything that is not a table from which single rows are
// taken. The embedding table counts because it is the output head too.
int64_t decode_bytes(const std::vector<Parameter>& parameters, const Gemma4Config& config) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) {
    const bool audio = parameter.name.starts_with("audio_") || parameter.name.starts_with("embed_audio.");
    const bool gathered = parameter.name.starts_with("language_model.embed_tokens_per_layer.");
    if (!audio) total += gathered ? parameter.bytes() / config.text.vocab_size : parameter.bytes();
  }
  return total;
}

// Bytes of activations that a function needs at its largest input.
Json memory_usage(const Gemma4Config& config, int64_t chunk) {
  const Gemma4TextConfig& text = config.text;
  int64_t inner = 0, attention = 0;
  for (const Gemma4Layer& layer : std::span(text.layers).first(static_cast<size_t>(text.num_layers))) {
    inner = std::max<int64_t>(inner, layer.intermediate_size);
    attention = std::max<int64_t>(attention, 2 * int64_t{layer.head_dim} * (text.num_heads + layer.kv_heads));
  }
  const int64_t per_row =
      3 * int64_t{text.hidden_size} + attention + 3 * inner + int64_t{text.per_layer_size} * text.num_layers;
  Json out = {{"embed", 0},
              {"prefill_tokens", 4 * per_row * chunk},
              {"decode_tokens", 4 * per_row},
              {"create_tir_paged_kv_cache", 0}};
  if (config.audio.num_layers > 0) {
    const int64_t frames = audio_frames(kAudioMaxSamples), bands = kAudioMelBands;
    const int64_t features = frames * (kAudioFrameLength + 3 * kAudioBins + bands);
    const int64_t convolution = (frames + 1) / 2 * (bands / 2) * config.audio.conv_channels_0;
    out["audio_embed"] =
        4 * (features + convolution + audio_rows(kAudioMaxSamples) * 8 * int64_t{config.audio.hidden_size});
  }
  return out;
}

contract::Tasks make_tasks(const Json& config, const Gemma4Config& parsed, const std::string& source) {
  contract::Named<contract::Input> inputs;
  inputs.emplace_back("text", contract::Input{.processor = std::string(contract::kTokenizer)});
  if (parsed.audio.num_layers > 0) {
    std::vector<Problem> problems;
    const ConfigReader root(config, source, "", problems);
    const int64_t top = parsed.text.vocab_size - 1;
    contract::Prompt prompt;
    prompt.prefix_token_ids = {root.integer("boa_token_id", 0, top)};
    prompt.placeholder_token_id = root.integer("audio_token_id", 0, top);
    // Spelled "index" in every checkpoint so far.
    prompt.suffix_token_ids = {
        root.integer(root.has("eoa_token_id") ? "eoa_token_id" : "eoa_token_index", 0, top)};
    if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
    inputs.emplace_back("audio",
                        contract::Input{.processor = contract::AudioDecode{.sample_rate_hz = kAudioSampleRate,
                                                                           .channels = 1,
                                                                           .min_samples = kAudioMinSamples,
                                                                           .max_samples = kAudioMaxSamples},
                                        .adapter = "audio",
                                        .prompt = std::move(prompt)});
  }
  return {{std::string(contract::kChatTask),
           contract::Task{.executor = "generation", .inputs = std::move(inputs), .output = "text"}}};
}

Json make_conv_template(const Json& config, const Gemma4Config& parsed, const std::string& source) {
  std::vector<Problem> problems;
  const ConfigReader root(config, source, "", problems);
  const auto text = root.object("text_config", true);
  const int64_t bos = text->integer("bos_token_id", 0, parsed.text.vocab_size - 1, 2);
  Json stop_ids = Json::array();
  const Json eos = text->has("eos_token_id") ? text->json()["eos_token_id"] : Json(1);
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (id.is_number_integer()) stop_ids.push_back(id);
  }
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  Json out = Json::object();
  out["name"] = "gemma4_instruction";
  out["system_template"] = "<|turn>system\n{system_message}<turn|>\n";
  out["system_message"] = "";
  out["system_prefix_token_ids"] = Json::array({bos});
  out["add_role_after_system_message"] = true;
  out["roles"] = {{"user", "<|turn>user"}, {"assistant", "<|turn>model"}};
  out["role_templates"] = {
      {"user", "{user_message}"}, {"assistant", "{assistant_message}"}, {"tool", "{tool_message}"}};
  out["messages"] = Json::array();
  out["seps"] = Json::array({"<turn|>\n"});
  out["role_content_sep"] = "\n";
  out["role_empty_sep"] = "\n";
  out["stop_str"] = Json::array({"<turn|>"});
  out["stop_token_ids"] = stop_ids;
  out["strip_reasoning_in_history"] = false;
  out["function_string"] = "";
  out["use_function_calling"] = false;
  return out;
}

std::string canonical_gemma4_name(const std::string& name) {
  for (const auto& [prefix, replacement] :
       {std::pair<std::string, std::string>{"language_model.model.", "language_model."},
        {"model.language_model.", "language_model."},
        {"model.", ""}}) {
    if (name.starts_with(prefix)) return replacement + name.substr(prefix.size());
  }
  return name;
}

}  // namespace

ModelPlan plan_gemma4(const Json& config, const Quantization& quantization, const std::string& source) {
  const Gemma4Config parsed = parse_gemma4_config(config, source);
  const Gemma4TextConfig& text = parsed.text;
  ParameterTree tree(quantization);
  const Gemma4<Gemma4RuntimeConfig> model(tree, Gemma4RuntimeConfig{parsed});

  ModelPlan plan;
  plan.model_type = "gemma4";
  plan.quantization = &quantization;
  plan.vocab_size = text.vocab_size;
  plan.context_window_size = text.context_length;
  // The windows belong to single layers. The chunk stays within them because MLC's kernels apply no window
  // inside one.
  plan.sliding_window_size = -1;
  plan.prefill_chunk_size = std::min(text.sliding_window, text.context_length);
  plan.weights = tree.weights();
  plan.parameters = tree.parameters();
  plan.decode_bytes = decode_bytes(plan.parameters, parsed);
  plan.skipped = {{"vision_tower.", "this version of the model takes text and audio"},
                  {"embed_vision.", "this version of the model takes text and audio"}};
  for (int32_t i = text.first_shared_layer; i < text.num_layers; ++i) {
    for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
      plan.skipped.push_back({"language_model.layers." + std::to_string(i) + ".self_attn." + part,
                              "the layer reads the keys and values of an earlier one"});
    }
  }
  if (parsed.audio.num_layers == 0)
    plan.skipped.push_back({"audio_tower.", "config.json has no audio_config"});
  plan.canonical_name = canonical_gemma4_name;
  plan.tasks = make_tasks(config, parsed, source);

  contract::Program program{.kind = std::string(contract::kTokenGeneration)};
  program.exports = {{std::string(contract::role::kEmbedTokens), "embed"},
                     {std::string(contract::role::kPrefillTokens), "prefill_tokens"},
                     {std::string(contract::role::kDecodeTokens), "decode_tokens"},
                     {std::string(contract::role::kCreateKvCache), "create_tir_paged_kv_cache"}};
  if (parsed.audio.num_layers > 0) program.adapters = {{"audio", "audio_embed"}};
  plan.programs = {{"generation", std::move(program)}};
  plan.conv_template = make_conv_template(config, parsed, source);

  int32_t widest = 0;
  for (const KvLayer& layer : model.kv_layers()) {
    widest = std::max(widest, layer.head_dim);
    const int64_t bytes = 2 * int64_t{layer.kv_heads} * layer.head_dim *
                          dtype_bytes(kv_dtype(quantization, ops::Precision::kInt8));
    if (layer.window == 0) plan.kv_bytes_per_token += bytes;
    plan.kv_bytes_at_full_context +=
        bytes * (layer.window == 0
                     ? plan.context_window_size
                     : std::min<int64_t>(layer.window + plan.prefill_chunk_size, plan.context_window_size));
  }
  plan.memory_usage = memory_usage(parsed, plan.prefill_chunk_size);
  plan.kv_cache = {{"num_hidden_layers", model.kv_layers().size()},
                   {"num_attention_heads", text.num_heads},
                   {"num_key_value_heads", text.layers[0].kv_heads},
                   {"head_dim", widest}};

  for (const char* key : {"architectures", "model_type", "text_config", "audio_config", "boa_token_id",
                          "audio_token_id", "eoa_token_id", "eoa_token_index", "tie_word_embeddings"}) {
    if (config.contains(key)) plan.model_config[key] = config[key];
  }
  plan.header = "models/gemma4.h";
  plan.model_template = "dovetail::models::Gemma4";
  plan.config_type = "dovetail::models::Gemma4Config";
  plan.config_literal =
      "{.text = " + text_literal(text) + ",\n .audio = " + audio_literal(parsed.audio) + "}";
  return plan;
}

}  // namespace dovetail::models
