#include "models/gemma3_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "models/mlc_config.h"
#include "models/plan_parts.h"

namespace dovetail::models {
namespace {

constexpr int64_t kMaxWidth = 1 << 17;

void read_layers(const ConfigReader& text, Gemma3Config& out) {
  std::vector<std::string> types = text.texts("layer_types");
  if (types.empty()) {
    const char* const key =
        text.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    const int64_t pattern = text.integer(key, 1, kGemma3MaxLayers, 6);
    for (int32_t i = 0; i < out.num_layers; ++i)
      types.push_back((i + 1) % pattern != 0 ? "sliding_attention" : "full_attention");
  }
  if (static_cast<int32_t>(types.size()) != out.num_layers) {
    text.problem("layer_types", "not one entry per layer", std::to_string(out.num_layers),
                 std::to_string(types.size()));
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention") {
      text.problem("layer_types[" + std::to_string(i) + "]", "unknown kind of layer",
                   "sliding_attention or full_attention", printable(types[i], 40));
    }
    out.sliding[i] = types[i] == "sliding_attention";
  }
}

// "rope_parameters" by kind of layer (transformers 5), or rope_theta, rope_local_base_freq and rope_scaling,
// which acts on full-attention layers only (before).
void read_rope(const ConfigReader& text, Gemma3Config& out) {
  out.full_rotary.theta = text.number("rope_theta", 1, 1e12, 1000000.0);
  out.sliding_rotary.theta = text.number("rope_local_base_freq", 1, 1e12, 10000.0);
  if (const auto scaling = text.object("rope_scaling", false)) read_rotary_scaling(*scaling, out.full_rotary);
  if (const auto parameters = text.object("rope_parameters", false)) {
    if (const auto sliding = parameters->object("sliding_attention", false))
      read_rotary_scaling(*sliding, out.sliding_rotary);
    if (const auto full = parameters->object("full_attention", false))
      read_rotary_scaling(*full, out.full_rotary);
  }
}

void read_text(const ConfigReader& text, Gemma3Config& out) {
  out.vocab_size = static_cast<int32_t>(text.integer("vocab_size", 1, 1 << 24, 262208));
  out.hidden_size = static_cast<int32_t>(text.integer("hidden_size", 1, kMaxWidth, 2304));
  out.intermediate_size = static_cast<int32_t>(text.integer("intermediate_size", 1, kMaxWidth, 9216));
  out.num_layers = static_cast<int32_t>(text.integer("num_hidden_layers", 1, kGemma3MaxLayers, 26));
  out.num_heads = static_cast<int32_t>(text.integer("num_attention_heads", 1, 1024, 8));
  out.kv_heads = static_cast<int32_t>(text.integer("num_key_value_heads", 1, 1024, 4));
  out.head_dim = static_cast<int32_t>(text.integer("head_dim", 2, 1024, 256));
  out.sliding_window = static_cast<int32_t>(text.integer("sliding_window", 1, 1 << 24, 4096));
  out.context_length = static_cast<int32_t>(text.integer("max_position_embeddings", 1, 1 << 24, 131072));
  out.rms_norm_eps = static_cast<float>(text.number("rms_norm_eps", 0, 1, 1e-6));
  out.attention_scale =
      static_cast<float>(1.0 / std::sqrt(text.number("query_pre_attn_scalar", 1e-3, 1e6, 256)));
  out.logit_softcap = static_cast<float>(text.number("final_logit_softcapping", 0, 1e6, 0));
  out.attention_softcap = static_cast<float>(text.number("attn_logit_softcapping", 0, 1e6, 0));
  if (out.num_heads % out.kv_heads != 0) {
    text.problem("num_key_value_heads", "does not divide num_attention_heads", std::to_string(out.num_heads),
                 std::to_string(out.kv_heads));
  }
  if (out.head_dim % 2 != 0)
    text.problem("head_dim", "is odd", "an even number", std::to_string(out.head_dim));
  if (text.boolean("attention_bias", false)) text.problem("attention_bias", "not supported", "false", "true");
  if (text.boolean("use_bidirectional_attention", false))
    text.problem("use_bidirectional_attention", "not supported", "false", "true");
  const std::string activation = text.text("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh")
    text.problem("hidden_activation", "not supported", "gelu_pytorch_tanh", printable(activation, 40));
  check_tied(text);
  read_layers(text, out);
  read_rope(text, out);
}

void read_image(const ConfigReader& root, const ConfigReader& vision, Gemma3Config& out) {
  out.vision = read_vision(vision, {.image_size = 224,
                                    .patch_size = 16,
                                    .hidden_size = 768,
                                    .intermediate_size = 3072,
                                    .num_layers = 12,
                                    .num_heads = 12,
                                    .layer_norm_eps = 1e-6f});
  const std::string activation = vision.text("hidden_act", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh")
    vision.problem("hidden_act", "not supported", "gelu_pytorch_tanh", printable(activation, 40));
  const int64_t rows = root.integer("mm_tokens_per_image", 1, 1 << 20, 256);
  out.image_rows_per_side = static_cast<int32_t>(std::lround(std::sqrt(static_cast<double>(rows))));
  if (int64_t{out.image_rows_per_side} * out.image_rows_per_side != rows ||
      out.vision.patches_per_side() % out.image_rows_per_side != 0) {
    root.problem(
        "mm_tokens_per_image",
        "is not the square of a divisor of " + std::to_string(out.vision.patches_per_side()) + " patches", "",
        std::to_string(rows));
    out.image_rows_per_side = 1;
  }
}

Gemma3Config parse(const ConfigReader& root) {
  Gemma3Config out;
  if (!root.has("text_config")) {
    read_text(root, out);
    return out;
  }
  check_tied(root);
  if (const auto text = root.object("text_config", true)) read_text(*text, out);
  if (const auto vision = root.object("vision_config", false)) read_image(root, *vision, out);
  return out;
}

std::string literal(const Gemma3Config& c) {
  std::string sliding;
  for (int32_t i = 0; i < c.num_layers; ++i)
    sliding += (i ? ", " : "") + std::string(c.sliding[static_cast<size_t>(i)] ? "true" : "false");
  return Literal()
      .field("vocab_size", c.vocab_size)
      .field("hidden_size", c.hidden_size)
      .field("intermediate_size", c.intermediate_size)
      .field("num_layers", c.num_layers)
      .field("num_heads", c.num_heads)
      .field("kv_heads", c.kv_heads)
      .field("head_dim", c.head_dim)
      .field("sliding_window", c.sliding_window)
      .field("context_length", c.context_length)
      .field("rms_norm_eps", c.rms_norm_eps)
      .field("attention_scale", c.attention_scale)
      .field("logit_softcap", c.logit_softcap)
      .field("attention_softcap", c.attention_softcap)
      .add("sliding_rotary", rotary_literal(c.sliding_rotary))
      .add("full_rotary", rotary_literal(c.full_rotary))
      .add("sliding", "{" + sliding + "}")
      .add("vision", vit_literal(c.vision))
      .field("image_rows_per_side", c.image_rows_per_side)
      .text();
}

std::string text_constants(Gemma3Config c) {
  c.context_length = 0;
  c.vision = {};
  c.image_rows_per_side = 0;
  return literal(c);
}

// Bytes of activations that a function needs at its largest input.
Json memory_usage(const Gemma3Config& c, bool pictures, int64_t chunk) {
  const int64_t per_row = 2 * int64_t{c.hidden_size} +
                          int64_t{c.head_dim} * (2 * c.num_heads + 2 * c.kv_heads) +
                          3 * int64_t{c.intermediate_size};
  Json out = {{"embed", 0},
              {pictures ? "prefill_tokens" : "prefill", 4 * per_row * chunk},
              {pictures ? "decode_tokens" : "decode", 4 * per_row},
              {"create_tir_paged_kv_cache", 0}};
  if (pictures)
    out["embed_image"] =
        4 * int64_t{c.vision.patches()} * (7 * int64_t{c.vision.hidden_size} + c.vision.intermediate_size);
  return out;
}

// The configuration as MLC's tools write it, for which a text model alone is a text_config too.
Json mlc_config(const Json& config, const Gemma3Config& c, const ModelPlan& plan) {
  static constexpr std::array<std::string_view, 15> kKnown = {
      "hidden_size",           "intermediate_size",   "num_hidden_layers", "attention_bias",
      "num_attention_heads",   "num_key_value_heads", "head_dim",          "rms_norm_eps",
      "hidden_activation",     "rope_theta",          "rope_scaling",      "rope_parameters",
      "query_pre_attn_scalar", "vocab_size",          "use_cache"};
  const bool nested = config.contains("text_config");
  const Json& text = nested ? config["text_config"] : config;
  Json kwargs = mlc_kwargs(text, kKnown);
  kwargs["rope_local_base_freq"] = c.sliding_rotary.theta;
  return {{"text_config",
           {{"hidden_size", c.hidden_size},
            {"intermediate_size", c.intermediate_size},
            {"num_hidden_layers", c.num_layers},
            {"attention_bias", false},
            {"num_attention_heads", c.num_heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"rms_norm_eps", shortest(c.rms_norm_eps)},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"position_embedding_base", c.full_rotary.theta},
            {"rope_scaling", mlc_rope_scaling(c.full_rotary, 0)},
            {"context_window_size", c.context_length},
            {"prefill_chunk_size", c.context_length},
            {"query_pre_attn_scalar", text.value("query_pre_attn_scalar", Json(256))},
            {"sliding_window_size", c.sliding_window},
            {"kwargs", std::move(kwargs)}}},
          {"vocab_size", c.vocab_size},
          {"tensor_parallel_shards", 1},
          {"max_batch_size", plan.max_batch_size},
          {"context_window_size", c.context_length},
          {"sliding_window_size", c.sliding_window},
          {"prefill_chunk_size", plan.prefill_chunk_size},
          {"is_text_model", !nested}};
}

std::string canonical_gemma3_name(const std::string& name) {
  const std::string out = with_other_prefix(name, {{"model.language_model.", "language_model.model."},
                                                   {"model.vision_tower.", "vision_tower."},
                                                   {"model.multi_modal_projector.", "multi_modal_projector."},
                                                   {"model.", "language_model.model."},
                                                   {"lm_head.", "language_model.lm_head."}});
  return with_vision_model(out);
}

}  // namespace

Gemma3Config parse_gemma3_config(const Json& config, const std::string& source) {
  std::vector<Problem> problems;
  const Gemma3Config out = parse(ConfigReader(config, source, "", problems));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  return out;
}

ModelPlan plan_gemma3(const Json& config, const Quantization& quantization, const std::string& source,
                      Inputs inputs) {
  Gemma3Config parsed = parse_gemma3_config(config, source);
  if (inputs == Inputs::kText) parsed.vision = {};
  const bool pictures = parsed.vision.num_layers > 0;
  ParameterTree tree(quantization);
  const Gemma3<Gemma3RuntimeConfig> model(tree, {parsed});
  ModelPlan plan;
  plan.model_type = config.contains("text_config") ? "gemma3" : "gemma3_text";
  plan.model_config = config;
  plan.always_tied = true;
  plan.vocab_size = parsed.vocab_size;
  plan.context_window_size = parsed.context_length;
  // The windows belong to single layers; the chunk stays within them because MLC's kernels apply no window
  // inside one.
  plan.prefill_chunk_size = std::min(parsed.sliding_window, parsed.context_length);
  plan.mlc_config = mlc_config(config, parsed, plan);
  plan.mlc_sliding_window_size = parsed.sliding_window;
  plan.memory_usage = memory_usage(parsed, pictures, plan.prefill_chunk_size);
  fill_plan(plan, tree, model.kv_layers(), parsed.num_heads);
  plan.decode_bytes = count_decode_bytes(plan, {"vision_tower.", "multi_modal_projector."}, {});
  plan.skipped = {{"vision_tower.vision_model.head.",
                   "the pooling head is not used: pictures become rows, not one vector"}};
  plan.canonical_name = canonical_gemma3_name;
  plan.programs = {{"generation", generation_program(pictures ? Pair::kTokens : Pair::kEmbeddings,
                                                     pictures ? "image" : "", "embed_image")}};

  std::vector<Problem> problems;
  const ConfigReader root(config, source, "", problems);
  const std::optional<ConfigReader> text =
      config.contains("text_config") ? root.object("text_config", true) : root;
  const int64_t top = parsed.vocab_size - 1;
  std::optional<contract::Input> image;
  if (pictures) {
    plan.picture = {.mean = kSiglipNormalization.mean, .deviation = kSiglipNormalization.std, .resample = 2};
    const auto token = [&](const char* index, const char* id, int64_t fallback) {
      return root.integer(root.has(id) ? id : index, 0, top, fallback);
    };
    image = contract::Input{
        .processor = contract::ImageDecode{.resize = {contract::ResizeMode::kStretch,
                                                      parsed.vision.image_size, parsed.vision.image_size},
                                           .num_embeddings = int64_t{parsed.image_rows_per_side} *
                                                             parsed.image_rows_per_side},
        .adapter = "image",
        .prompt =
            contract::Prompt{.prefix_token_ids = {token("boi_token_index", "boi_token_id", 255999)},
                             .placeholder_token_id = token("image_token_index", "image_token_id", 262144),
                             .suffix_token_ids = {token("eoi_token_index", "eoi_token_id", 256000)}}};
  }
  plan.tasks = chat_tasks("image", std::move(image));
  const int64_t bos = text->integer("bos_token_id", 0, top, 2);
  // A system message stands in the first user turn, as in the checkpoint's own template.
  plan.conv_template = conversation_template(
      "gemma3_instruction", "{system_message}\n\n", bos, "<start_of_turn>user", "<start_of_turn>model", "\n",
      "\n", {"<end_of_turn>\n"}, {"<end_of_turn>"}, stop_token_ids(*text, 1));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  plan.header = "models/gemma3.h";
  plan.model_template = "dovetail::models::Gemma3";
  plan.config_type = "dovetail::models::Gemma3Config";
  plan.config_literal = literal(parsed);
  plan.constants["text"] = text_constants(parsed);
  if (pictures) {
    plan.constants["image"] = Literal()
                                  .add("vision", vit_literal(parsed.vision))
                                  .field("image_rows_per_side", parsed.image_rows_per_side)
                                  .text();
  }
  return plan;
}

}  // namespace dovetail::models
