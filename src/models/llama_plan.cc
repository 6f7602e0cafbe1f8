#include "models/llama_plan.h"

#include <algorithm>
#include <array>

#include "models/llama.h"
#include "models/mlc_config.h"
#include "models/plan_parts.h"

namespace dovetail::models {
namespace {

constexpr int64_t kMaxWidth = 1 << 17;
// Keeps the activations of a chunk of a 7 B model below 200 MB.
constexpr int64_t kPrefillChunk = 1024;

// Missing values are those of transformers' LlamaConfig: LLaVA's checkpoints rely on them.
LlamaTextConfig read_text(const ConfigReader& text) {
  LlamaTextConfig out;
  out.vocab_size = static_cast<int32_t>(text.integer("vocab_size", 1, 1 << 24, 32000));
  out.hidden_size = static_cast<int32_t>(text.integer("hidden_size", 1, kMaxWidth, 4096));
  out.intermediate_size = static_cast<int32_t>(text.integer("intermediate_size", 1, kMaxWidth, 11008));
  out.num_layers = static_cast<int32_t>(text.integer("num_hidden_layers", 1, 1024, 32));
  out.num_heads = static_cast<int32_t>(text.integer("num_attention_heads", 1, 1024, 32));
  out.kv_heads = static_cast<int32_t>(text.integer("num_key_value_heads", 1, 1024, out.num_heads));
  out.head_dim =
      static_cast<int32_t>(text.integer("head_dim", 2, 1024, std::max(2, out.hidden_size / out.num_heads)));
  out.context_length = static_cast<int32_t>(text.integer("max_position_embeddings", 1, 1 << 24, 2048));
  out.tied_embeddings = text.boolean("tie_word_embeddings", false);
  out.rms_norm_eps = static_cast<float>(text.number("rms_norm_eps", 0, 1, 1e-6));
  out.rotary = read_rotary(text, 10000.0);
  if (out.num_heads % out.kv_heads != 0) {
    text.problem("num_key_value_heads", "does not divide num_attention_heads", std::to_string(out.num_heads),
                 std::to_string(out.kv_heads));
  }
  if (out.head_dim % 2 != 0)
    text.problem("head_dim", "is odd", "an even number", std::to_string(out.head_dim));
  if (text.boolean("attention_bias", false)) text.problem("attention_bias", "not supported", "false", "true");
  if (text.boolean("mlp_bias", false)) text.problem("mlp_bias", "not supported", "false", "true");
  if (text.text("hidden_act", "silu") != "silu")
    text.problem("hidden_act", "not supported", "silu", printable(text.text("hidden_act"), 40));
  return out;
}

std::string text_literal(const LlamaTextConfig& c) {
  return Literal()
      .field("vocab_size", c.vocab_size)
      .field("hidden_size", c.hidden_size)
      .field("intermediate_size", c.intermediate_size)
      .field("num_layers", c.num_layers)
      .field("num_heads", c.num_heads)
      .field("kv_heads", c.kv_heads)
      .field("head_dim", c.head_dim)
      .field("context_length", c.context_length)
      .field("tied_embeddings", c.tied_embeddings)
      .field("rms_norm_eps", c.rms_norm_eps)
      .add("rotary", rotary_literal(c.rotary))
      .text();
}

std::string text_constants(LlamaTextConfig c) {
  c.context_length = 0;
  return text_literal(c);
}

// Bytes of activations that a function needs at its largest input.
Json memory_usage(const LlamaTextConfig& c, int64_t chunk) {
  const int64_t per_row = 3 * int64_t{c.hidden_size} +
                          int64_t{c.head_dim} * (2 * c.num_heads + 2 * c.kv_heads) +
                          3 * int64_t{c.intermediate_size};
  return {{"embed", 0},
          {"prefill", 4 * per_row * chunk},
          {"decode", 4 * per_row},
          {"create_tir_paged_kv_cache", 0}};
}

// The configuration as MLC's tools write it. `batch` is MLC's default of the model.
Json mlc_text_config(const LlamaTextConfig& c, int64_t chunk, int64_t batch) {
  return {{"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_attention_heads", c.num_heads},
          {"num_hidden_layers", c.num_layers},
          {"rms_norm_eps", shortest(c.rms_norm_eps)},
          {"vocab_size", c.vocab_size},
          {"tie_word_embeddings", c.tied_embeddings},
          {"position_embedding_base", c.rotary.theta},
          {"rope_scaling", mlc_rope_scaling(c.rotary, nullptr)},
          {"context_window_size", c.context_length},
          {"prefill_chunk_size", chunk},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"tensor_parallel_shards", 1},
          {"pipeline_parallel_stages", 1},
          {"max_batch_size", batch},
          {"disaggregation", false}};
}

void common(ModelPlan& plan, const LlamaTextConfig& text) {
  plan.vocab_size = text.vocab_size;
  plan.context_window_size = text.context_length;
  plan.prefill_chunk_size = std::min<int64_t>(kPrefillChunk, text.context_length);
  plan.memory_usage = memory_usage(text, plan.prefill_chunk_size);
}

// Either part may be left out: then all its values are the defaults.
Json with_both_parts(Json config) {
  for (const char* part : {"text_config", "vision_config"}) {
    if (config.is_object() && (!config.contains(part) || config[part].is_null()))
      config[part] = Json::object();
  }
  return config;
}

LlavaConfig read_llava(const ConfigReader& root) {
  LlavaConfig out;
  if (const auto text = root.object("text_config", true)) {
    const std::string type = text->text("model_type", "llama");
    if (type != "llama" && type != "vicuna")
      text->problem("model_type", "not supported", "llama", printable(type, 40));
    out.text = read_text(*text);
  }
  if (const auto vision = root.object("vision_config", true)) {
    out.vision = read_vision(*vision, {.image_size = 336,
                                       .patch_size = 14,
                                       .hidden_size = 1024,
                                       .intermediate_size = 4096,
                                       .num_layers = 24,
                                       .num_heads = 16,
                                       .layer_norm_eps = 1e-5f});
    const std::string activation = vision->text("hidden_act", "quick_gelu");
    if (activation != "quick_gelu")
      vision->problem("hidden_act", "not supported", "quick_gelu", printable(activation, 40));
  }
  const int64_t layers = out.vision.num_layers;
  const int64_t layer = root.integer("vision_feature_layer", -layers - 1, layers, -2);
  out.vision_layers_used = static_cast<int32_t>(layer < 0 ? layers + 1 + layer : layer);
  const std::string strategy = root.text("vision_feature_select_strategy", "default");
  if (strategy != "default")
    root.problem("vision_feature_select_strategy", "not supported", "default", printable(strategy, 40));
  const std::string activation = root.text("projector_hidden_act", "gelu");
  if (activation != "gelu")
    root.problem("projector_hidden_act", "not supported", "gelu", printable(activation, 40));
  if (!root.boolean("multimodal_projector_bias", true))
    root.problem("multimodal_projector_bias", "not supported", "true", "false");
  return out;
}

Json mlc_llava_config(const Json& config, const LlavaConfig& c, const ModelPlan& plan) {
  static constexpr std::array<std::string_view, 17> kText = {"hidden_size",
                                                             "intermediate_size",
                                                             "num_attention_heads",
                                                             "num_hidden_layers",
                                                             "rms_norm_eps",
                                                             "vocab_size",
                                                             "tie_word_embeddings",
                                                             "rope_theta",
                                                             "rope_scaling",
                                                             "rope_parameters",
                                                             "max_position_embeddings",
                                                             "num_key_value_heads",
                                                             "head_dim",
                                                             "attention_bias",
                                                             "mlp_bias",
                                                             "use_cache",
                                                             "hidden_act"};
  static constexpr std::array<std::string_view, 10> kVision = {
      "hidden_size", "image_size",     "intermediate_size", "num_attention_heads", "num_hidden_layers",
      "patch_size",  "projection_dim", "num_channels",      "layer_norm_eps",      "vocab_size"};
  const auto member = [](const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_object() ? *found : Json::object();
  };
  const Json text = member(config, "text_config"), vision = member(config, "vision_config");
  Json text_config = mlc_text_config(c.text, c.text.context_length, 1);
  text_config["kwargs"] = mlc_kwargs(text, kText);
  const Json image_token = config.value("image_token_index", config.value("image_token_id", Json(32000)));
  return {{"image_token_index", image_token},
          {"text_config", text_config},
          {"vision_config",
           {{"hidden_size", c.vision.hidden_size},
            {"image_size", c.vision.image_size},
            {"intermediate_size", c.vision.intermediate_size},
            {"num_attention_heads", c.vision.num_heads},
            {"num_hidden_layers", c.vision.num_layers},
            {"patch_size", c.vision.patch_size},
            {"projection_dim", vision.value("projection_dim", Json(768))},
            {"vocab_size", c.text.vocab_size},
            {"num_channels", 3},
            {"layer_norm_eps", shortest(c.vision.layer_norm_eps)},
            {"kwargs", mlc_kwargs(vision, kVision)}}},
          {"vocab_size", c.text.vocab_size},
          {"context_window_size", c.text.context_length},
          {"sliding_window_size", -1},
          {"prefill_chunk_size", plan.prefill_chunk_size},
          {"tensor_parallel_shards", 1},
          {"max_batch_size", plan.max_batch_size},
          {"text_architecture", "LlamaForCausalLM"}};
}

std::string canonical_llava_name(const std::string& name) {
  const std::string out = with_other_prefix(name, {{"model.language_model.", "language_model.model."},
                                                   {"lm_head.", "language_model.lm_head."},
                                                   {"model.", ""}});
  return with_vision_model(out);
}

}  // namespace

LlamaTextConfig parse_llama_config(const Json& config, const std::string& source) {
  std::vector<Problem> problems;
  const LlamaTextConfig out = read_text(ConfigReader(config, source, "", problems));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  return out;
}

LlavaConfig parse_llava_config(const Json& config, const std::string& source) {
  std::vector<Problem> problems;
  const Json complete = with_both_parts(config);
  const LlavaConfig out = read_llava(ConfigReader(complete, source, "", problems));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  return out;
}

ModelPlan plan_llama(const Json& config, const Quantization& quantization, const std::string& source,
                     Inputs /*inputs*/) {
  const LlamaTextConfig parsed = parse_llama_config(config, source);
  ParameterTree tree(quantization);
  const Llama<LlamaRuntimeConfig> model(tree, {parsed});
  ModelPlan plan;
  plan.model_type = "llama";
  plan.model_config = config;
  common(plan, parsed);
  plan.mlc_config = mlc_text_config(parsed, plan.prefill_chunk_size, plan.max_batch_size);
  fill_plan(plan, tree, model.kv_layers(), parsed.num_heads);
  plan.decode_bytes = count_decode_bytes(
      plan, {},
      parsed.tied_embeddings ? std::vector<std::string>{} : std::vector<std::string>{"model.embed_tokens."});
  plan.skipped = {{"model.rotary_emb.", "computed from the configuration"}};
  plan.canonical_name = [](const std::string& name) { return name; };
  plan.tasks = chat_tasks("", std::nullopt);
  plan.programs = {{"generation", generation_program(Pair::kEmbeddings, "", "")}};
  std::vector<Problem> problems;
  const ConfigReader root(config, source, "", problems);
  const int64_t bos = root.integer("bos_token_id", 0, parsed.vocab_size - 1, 1);
  plan.conv_template =
      conversation_template("llama_default", "{system_message}\n\n", bos, "USER", "ASSISTANT", ": ", ":",
                            {" ", "</s>"}, {}, stop_token_ids(root, 2));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  plan.header = "models/llama.h";
  plan.model_template = "dovetail::models::Llama";
  plan.config_type = "dovetail::models::LlamaTextConfig";
  plan.config_literal = text_literal(parsed);
  plan.constants["text"] = text_constants(parsed);
  return plan;
}

ModelPlan plan_llava(const Json& original, const Quantization& quantization, const std::string& source,
                     Inputs inputs) {
  const Json config = with_both_parts(original);
  LlavaConfig parsed = parse_llava_config(config, source);
  if (inputs == Inputs::kText) parsed.vision = {};
  const bool pictures = parsed.vision.num_layers > 0;
  ParameterTree tree(quantization);
  const Llava<LlavaRuntimeConfig> model(tree, {parsed});
  ModelPlan plan;
  plan.model_type = "llava";
  plan.model_config = config;
  common(plan, parsed.text);
  plan.mlc_config = mlc_llava_config(config, parsed, plan);
  fill_plan(plan, tree, model.kv_layers(), parsed.text.num_heads);
  plan.decode_bytes = count_decode_bytes(plan, {"vision_tower.", "multi_modal_projector."},
                                         {"language_model.model.embed_tokens."});
  plan.skipped = {{"vision_tower.vision_model.embeddings.position_ids", "computed from the configuration"}};
  plan.canonical_name = canonical_llava_name;
  std::vector<Problem> problems;
  const ConfigReader root(config, source, "", problems);
  const int64_t top = parsed.text.vocab_size - 1;
  const int64_t placeholder =
      root.integer(root.has("image_token_id") ? "image_token_id" : "image_token_index", 0, top, 32000);
  const std::optional<ConfigReader> text = root.object("text_config", true);
  const int64_t bos = text->integer("bos_token_id", 0, top, 1);
  plan.conv_template = conversation_template("llava", "{system_message} ", bos, "USER", "ASSISTANT", ": ",
                                             ":", {" ", "</s>"}, {}, stop_token_ids(*text, 2));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  const VitConfig& vision = parsed.vision;
  std::optional<contract::Input> image;
  if (pictures) {
    image =
        contract::Input{.processor = contract::ImageDecode{.resize = {contract::ResizeMode::kCenterCrop,
                                                                      vision.image_size, vision.image_size},
                                                           .num_embeddings = vision.patches()},
                        .adapter = "image",
                        .prompt = contract::Prompt{.placeholder_token_id = placeholder}};
    plan.picture = {.mean = kClipNormalization.mean, .deviation = kClipNormalization.std, .resample = 3};
    const int64_t rows = vision.patches() + 1;
    plan.memory_usage["image_embed"] =
        4 * rows *
        (7 * int64_t{vision.hidden_size} + vision.intermediate_size + 2 * int64_t{parsed.text.hidden_size});
  }
  plan.tasks = chat_tasks("image", std::move(image));
  plan.programs = {
      {"generation", generation_program(Pair::kEmbeddings, pictures ? "image" : "", "image_embed")}};
  plan.header = "models/llava.h";
  plan.model_template = "dovetail::models::Llava";
  plan.config_type = "dovetail::models::LlavaConfig";
  plan.config_literal = Literal()
                            .add("text", text_literal(parsed.text))
                            .add("vision", vit_literal(vision))
                            .field("vision_layers_used", parsed.vision_layers_used)
                            .text();
  plan.constants["text"] = text_constants(parsed.text);
  if (pictures) {
    plan.constants["image"] = Literal()
                                  .add("vision", vit_literal(vision))
                                  .field("vision_layers_used", parsed.vision_layers_used)
                                  .text();
  }
  return plan;
}

}  // namespace dovetail::models
