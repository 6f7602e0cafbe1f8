#include "models/plan_parts.h"

#include <algorithm>
#include <cstdio>

namespace dovetail::models {

Literal& Literal::add(const char* name, const std::string& value) {
  text_ += (text_.empty() ? "." : ", .") + std::string(name) + " = " + value;
  return *this;
}

std::string Literal::number(double value, const char* format) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  std::string out = buffer;
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string rotary_literal(const RotaryConfig& c) {
  const char* const scaling = c.scaling == RotaryScaling::kLinear   ? "kLinear"
                              : c.scaling == RotaryScaling::kLlama3 ? "kLlama3"
                                                                    : "kNone";
  return Literal()
      .field("theta", c.theta)
      .add("scaling", std::string("dovetail::models::RotaryScaling::") + scaling)
      .field("factor", c.factor)
      .field("low_frequency_factor", c.low_frequency_factor)
      .field("high_frequency_factor", c.high_frequency_factor)
      .field("original_context", c.original_context)
      .text();
}

std::string vit_literal(const VitConfig& c) {
  return Literal()
      .field("image_size", c.image_size)
      .field("patch_size", c.patch_size)
      .field("hidden_size", c.hidden_size)
      .field("intermediate_size", c.intermediate_size)
      .field("num_layers", c.num_layers)
      .field("num_heads", c.num_heads)
      .field("layer_norm_eps", c.layer_norm_eps)
      .text();
}

void read_rotary_scaling(const ConfigReader& entry, RotaryConfig& out) {
  out.theta = entry.number("rope_theta", 1, 1e12, out.theta);
  // "type" is the key of old configurations.
  const std::string type = entry.has("rope_type") ? entry.text("rope_type") : entry.text("type", "default");
  if (type == "default") return;
  if (type == "linear") {
    out.scaling = RotaryScaling::kLinear;
    out.factor = entry.number("factor", 1, 1e6);
  } else if (type == "llama3") {
    out.scaling = RotaryScaling::kLlama3;
    out.factor = entry.number("factor", 1, 1e6);
    out.low_frequency_factor = entry.number("low_freq_factor", 1e-3, 1e6);
    out.high_frequency_factor = entry.number("high_freq_factor", 1e-3, 1e6);
    out.original_context = entry.number("original_max_position_embeddings", 1, 1e9);
    if (out.high_frequency_factor <= out.low_frequency_factor)
      entry.problem("high_freq_factor", "not above low_freq_factor");
  } else {
    entry.problem("rope_type", "not supported", "default, linear or llama3", printable(type, 40));
  }
}

RotaryConfig read_rotary(const ConfigReader& text, double default_theta) {
  RotaryConfig out{.theta = text.number("rope_theta", 1, 1e12, default_theta)};
  if (const auto parameters = text.object("rope_parameters", false)) {
    read_rotary_scaling(*parameters, out);
  } else if (const auto scaling = text.object("rope_scaling", false)) {
    read_rotary_scaling(*scaling, out);
  }
  return out;
}

VitConfig read_vision(const ConfigReader& vision, const VitConfig& defaults) {
  VitConfig out;
  out.image_size = static_cast<int32_t>(vision.integer("image_size", 1, 4096, defaults.image_size));
  out.patch_size = static_cast<int32_t>(vision.integer("patch_size", 1, 512, defaults.patch_size));
  out.hidden_size = static_cast<int32_t>(vision.integer("hidden_size", 1, 1 << 16, defaults.hidden_size));
  out.intermediate_size =
      static_cast<int32_t>(vision.integer("intermediate_size", 1, 1 << 17, defaults.intermediate_size));
  out.num_layers = static_cast<int32_t>(vision.integer("num_hidden_layers", 1, 256, defaults.num_layers));
  out.num_heads = static_cast<int32_t>(vision.integer("num_attention_heads", 1, 1024, defaults.num_heads));
  out.layer_norm_eps = static_cast<float>(vision.number("layer_norm_eps", 0, 1, defaults.layer_norm_eps));
  if (out.hidden_size % out.num_heads != 0) {
    vision.problem("num_attention_heads", "does not divide hidden_size", std::to_string(out.hidden_size),
                   std::to_string(out.num_heads));
  }
  if (out.image_size % out.patch_size != 0) {
    vision.problem("patch_size", "does not divide image_size", std::to_string(out.image_size),
                   std::to_string(out.patch_size));
  }
  if (vision.integer("num_channels", 1, 16, 3) != 3) vision.problem("num_channels", "not supported", "3");
  return out;
}

std::string with_other_prefix(
    const std::string& name,
    std::initializer_list<std::pair<std::string_view, std::string_view>> replacements) {
  for (const auto& [prefix, other] : replacements) {
    if (name.starts_with(prefix)) return std::string(other) + name.substr(prefix.size());
  }
  return name;
}

std::string with_vision_model(const std::string& name) {
  return with_other_prefix(name, {{"vision_tower.vision_model.", "vision_tower.vision_model."},
                                  {"vision_tower.", "vision_tower.vision_model."}});
}

Json stop_token_ids(const ConfigReader& text, int64_t fallback) {
  Json out = Json::array();
  if (!text.has("eos_token_id")) return Json::array({fallback});
  const Json& eos = text.json()["eos_token_id"];
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0) {
      out.push_back(id);
    } else {
      text.problem("eos_token_id", "not a token id", "an integer from 0 on", printable(id.dump(), 40));
    }
  }
  return out;
}

contract::Program generation_program(Pair pair, const std::string& adapter,
                                     const std::string& adapter_function) {
  using namespace contract;
  Program out{.kind = std::string(kTokenGeneration)};
  out.exports.emplace_back(role::kEmbedTokens, "embed");
  if (pair == Pair::kTokens) {
    out.exports.emplace_back(role::kPrefillTokens, "prefill_tokens");
    out.exports.emplace_back(role::kDecodeTokens, "decode_tokens");
  } else {
    out.exports.emplace_back(role::kPrefillEmbeds, "prefill");
    out.exports.emplace_back(role::kDecodeEmbeds, "decode");
  }
  out.exports.emplace_back(role::kCreateKvCache, "create_tir_paged_kv_cache");
  if (!adapter.empty()) out.adapters = {{adapter, adapter_function}};
  return out;
}

contract::Tasks chat_tasks(const std::string& name, std::optional<contract::Input> input) {
  contract::Task task{.executor = "generation", .output = "text"};
  task.inputs.emplace_back("text", contract::Input{.processor = std::string(contract::kTokenizer)});
  if (input) task.inputs.emplace_back(name, std::move(*input));
  return {{std::string(contract::kChatTask), std::move(task)}};
}

void fill_plan(ModelPlan& plan, const ParameterTree& tree, const std::vector<KvLayer>& kv_layers,
               int64_t num_heads) {
  plan.quantization = &tree.quantization();
  plan.weights = tree.weights();
  plan.parameters = tree.parameters();
  int32_t widest = 0;
  const DType dtype = kv_dtype(tree.quantization(), ops::Precision::kInt8);
  for (const KvLayer& layer : kv_layers) {
    widest = std::max(widest, layer.head_dim);
    const int64_t bytes = 2 * int64_t{layer.kv_heads} * layer.head_dim * dtype_bytes(dtype);
    if (layer.window == 0) plan.kv_bytes_per_token += bytes;
    const int64_t positions = layer.window == 0 ? plan.context_window_size
                                                : std::min<int64_t>(layer.window + plan.prefill_chunk_size,
                                                                    plan.context_window_size);
    plan.kv_bytes_at_full_context += bytes * positions;
  }
  plan.kv_cache = {{"num_hidden_layers", kv_layers.size()},
                   {"num_attention_heads", num_heads},
                   {"num_key_value_heads", kv_layers.front().kv_heads},
                   {"head_dim", widest}};
}

int64_t count_decode_bytes(const ModelPlan& plan, const std::vector<std::string>& unused_prefixes,
                           const std::vector<std::string>& gathered_prefixes) {
  const auto begins = [](const std::string& name, const std::vector<std::string>& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  int64_t total = 0;
  for (const Parameter& parameter : plan.parameters) {
    if (begins(parameter.name, unused_prefixes)) continue;
    total += begins(parameter.name, gathered_prefixes) ? parameter.bytes() / parameter.shape[0]
                                                       : parameter.bytes();
  }
  return total;
}

Json conversation_template(const std::string& name, const std::string& system_template, int64_t bos,
                           const std::string& user, const std::string& assistant,
                           const std::string& content_separator, const std::string& empty_separator,
                           std::vector<std::string> separators, std::vector<std::string> stop_strings,
                           Json stop_ids) {
  Json out = Json::object();
  out["name"] = name;
  out["system_template"] = system_template;
  out["system_message"] = "";
  out["system_prefix_token_ids"] = Json::array({bos});
  out["add_role_after_system_message"] = true;
  out["roles"] = {{"user", user}, {"assistant", assistant}};
  out["role_templates"] = {
      {"user", "{user_message}"}, {"assistant", "{assistant_message}"}, {"tool", "{tool_message}"}};
  out["messages"] = Json::array();
  out["seps"] = std::move(separators);
  out["role_content_sep"] = content_separator;
  out["role_empty_sep"] = empty_separator;
  out["stop_str"] = std::move(stop_strings);
  out["stop_token_ids"] = std::move(stop_ids);
  out["strip_reasoning_in_history"] = false;
  out["function_string"] = "";
  out["use_function_calling"] = false;
  return out;
}

}  // namespace dovetail::models
