#include "models/gemma4_plan.h"

#include <algorithm>
#include <span>

#include "models/config_reader.h"
#include "models/gemma4.h"
#include "models/plan_parts.h"

namespace dovetail::models {
namespace {

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

std::string text_constants(Gemma4TextConfig c) {
  c.context_length = 0;
  return text_literal(c);
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
  if (parsed.audio.num_layers == 0) return chat_tasks("", std::nullopt);
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
  return chat_tasks("audio",
                    contract::Input{.processor = contract::AudioDecode{.sample_rate_hz = kAudioSampleRate,
                                                                       .channels = 1,
                                                                       .min_samples = kAudioMinSamples,
                                                                       .max_samples = kAudioMaxSamples},
                                    .adapter = "audio",
                                    .prompt = std::move(prompt)});
}

Json make_conv_template(const Json& config, const Gemma4Config& parsed, const std::string& source) {
  std::vector<Problem> problems;
  const ConfigReader root(config, source, "", problems);
  const auto text = root.object("text_config", true);
  const int64_t bos = text->integer("bos_token_id", 0, parsed.text.vocab_size - 1, 2);
  Json out = conversation_template("gemma4_instruction", "<|turn>system\n{system_message}<turn|>\n", bos,
                                   "<|turn>user", "<|turn>model", "\n", "\n", {"<turn|>\n"}, {"<turn|>"},
                                   stop_token_ids(*text, 1));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  return out;
}

std::string canonical_gemma4_name(const std::string& name) {
  return with_other_prefix(name, {{"language_model.model.", "language_model."},
                                  {"model.language_model.", "language_model."},
                                  {"model.", ""}});
}

}  // namespace

ModelPlan plan_gemma4(const Json& config, const Quantization& quantization, const std::string& source,
                      Inputs inputs) {
  Gemma4Config parsed = parse_gemma4_config(config, source);
  if (inputs == Inputs::kText) parsed.audio = {};
  const Gemma4TextConfig& text = parsed.text;
  ParameterTree tree(quantization);
  const Gemma4<Gemma4RuntimeConfig> model(tree, Gemma4RuntimeConfig{parsed});

  ModelPlan plan;
  plan.model_type = "gemma4";
  plan.vocab_size = text.vocab_size;
  plan.context_window_size = text.context_length;
  // The windows belong to single layers. The chunk stays within them because MLC's kernels apply no window
  // inside one.
  plan.sliding_window_size = -1;
  plan.prefill_chunk_size = std::min(text.sliding_window, text.context_length);
  plan.memory_usage = memory_usage(parsed, plan.prefill_chunk_size);
  fill_plan(plan, tree, model.kv_layers(), text.num_heads);
  plan.decode_bytes =
      count_decode_bytes(plan, {"audio_", "embed_audio."}, {"language_model.embed_tokens_per_layer."});
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
  plan.always_tied = true;
  plan.canonical_name = canonical_gemma4_name;
  plan.tasks = make_tasks(config, parsed, source);

  const bool listens = parsed.audio.num_layers > 0;
  plan.programs = {{"generation", generation_program(Pair::kTokens, listens ? "audio" : "", "audio_embed")}};
  plan.conv_template = make_conv_template(config, parsed, source);

  for (const char* key : {"architectures", "model_type", "text_config", "audio_config", "boa_token_id",
                          "audio_token_id", "eoa_token_id", "eoa_token_index", "tie_word_embeddings"}) {
    if (config.contains(key)) plan.model_config[key] = config[key];
  }
  // Gemma 4 came with the manifest: there is no older form.
  plan.mlc_config = plan.model_config;
  plan.header = "models/gemma4.h";
  plan.model_template = "dovetail::models::Gemma4";
  plan.config_type = "dovetail::models::Gemma4Config";
  plan.config_literal =
      "{.text = " + text_literal(text) + ",\n .audio = " + audio_literal(parsed.audio) + "}";
  plan.constants["text"] = text_constants(text);
  if (listens) plan.constants["audio"] = audio_literal(parsed.audio);
  return plan;
}

}  // namespace dovetail::models
