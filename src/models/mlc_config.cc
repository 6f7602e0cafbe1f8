#include "models/mlc_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

#include "base/error.h"
#include "models/config_reader.h"

namespace dovetail::models {
namespace {

// The members of "kwargs" beside all others, which win.
Json flattened(const Json& object) {
  Json out = Json::object();
  if (const auto kwargs = object.find("kwargs"); kwargs != object.end() && kwargs->is_object()) out = *kwargs;
  for (const auto& [key, value] : object.items()) {
    if (key != "kwargs" && !value.is_null()) out[key] = value;
  }
  return out;
}

// Members about MLC's deployment, which are no part of a model.
constexpr std::array<std::string_view, 5> kDeployment = {"prefill_chunk_size", "tensor_parallel_shards",
                                                         "pipeline_parallel_stages", "max_batch_size",
                                                         "disaggregation"};

// -1 means "none" and 0 "not given" for the three that are renamed.
void rename(Json& object, const char* from, const char* to) {
  const auto found = object.find(from);
  if (found == object.end()) return;
  const bool given = !found->is_number() || found->get<double>() > 0;
  if (given) object[to] = *found;
  object.erase(from);
}

Json text_from_mlc(const Json& text) {
  Json out = flattened(text);
  rename(out, "position_embedding_base", "rope_theta");
  rename(out, "context_window_size", "max_position_embeddings");
  rename(out, "sliding_window_size", "sliding_window");
  for (const std::string_view key : kDeployment) out.erase(std::string(key));
  // MLC writes 0 where there is none.
  if (const auto scaling = out.find("rope_scaling"); scaling != out.end() && scaling->is_number())
    out.erase("rope_scaling");
  return out;
}

struct Form {
  std::string_view model_type;
  std::string_view architecture;
  bool nested;       // in MLC's form
  bool nested_here;  // in config.json
};

constexpr std::array kForms{
    Form{"llama", "LlamaForCausalLM", false, false},
    Form{"llava", "LlavaForConditionalGeneration", true, true},
    Form{"gemma3_text", "Gemma3ForCausalLM", true, false},
    Form{"gemma3", "Gemma3ForConditionalGeneration", true, true},
};

const Form& find_form(const std::string& model_type, const std::string& source) {
  std::string known;
  for (const Form& form : kForms) {
    if (form.model_type == model_type) return form;
    known += (known.empty() ? "" : ", ") + std::string(form.model_type);
  }
  throw Error(ErrorCode::kUnsupported,
              Problem{.message = "models of the type \"" + printable(model_type, 60) +
                                 "\" can't be compiled from a configuration in MLC's form",
                      .source = source,
                      .field = "model_type",
                      .expected = known,
                      .hint = "known model types are those of config.json's architectures that 'dovetail "
                              "convert' takes"});
}

}  // namespace

Json config_from_mlc(const std::string& model_type, const Json& model_config, const std::string& source) {
  const Form& form = find_form(model_type, source);
  std::vector<Problem> problems;
  const ConfigReader root(model_config, source, "", problems);
  Json out;
  if (!form.nested) {
    out = text_from_mlc(model_config);
  } else if (const auto text = root.object("text_config", true)) {
    Json inner = text_from_mlc(text->json());
    // What the package says as a whole holds for its text model.
    const Json outer = text_from_mlc(model_config);
    for (const char* key : {"vocab_size", "max_position_embeddings", "sliding_window"}) {
      if (outer.contains(key)) inner[key] = outer[key];
    }
    if (form.nested_here) {
      out = flattened(model_config);
      out["text_config"] = std::move(inner);
    } else {
      out = std::move(inner);
    }
    if (out.contains("vision_config") && out["vision_config"].is_object())
      out["vision_config"] = flattened(out["vision_config"]);
  }
  if (form.model_type == "llava") {
    const std::string text = root.text("text_architecture", "LlamaForCausalLM");
    if (text != "LlamaForCausalLM")
      root.problem("text_architecture", "not supported", "LlamaForCausalLM", printable(text, 60));
  }
  if (root.integer("tensor_parallel_shards", 1, 1 << 20, 1) != 1)
    root.problem("tensor_parallel_shards", "weights divided among devices are not supported", "1",
                 std::to_string(root.integer("tensor_parallel_shards", 1, 1 << 20, 1)));
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  out["architectures"] = Json::array({form.architecture});
  return out;
}

int64_t mlc_prefill_chunk(const Json& model_config, const std::string& source) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  std::vector<Problem> problems;
  const int64_t size =
      ConfigReader(model_config, source, "", problems).integer("prefill_chunk_size", -1, kAny, kAny);
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  return size > 0 ? size : kAny;
}

Json mlc_rope_scaling(const RotaryConfig& rotary, Json none) {
  switch (rotary.scaling) {
    case RotaryScaling::kNone:
      return none;
    case RotaryScaling::kLinear:
      return {{"rope_type", "linear"}, {"factor", rotary.factor}};
    case RotaryScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rotary.factor},
              {"low_freq_factor", rotary.low_frequency_factor},
              {"high_freq_factor", rotary.high_frequency_factor},
              {"original_max_position_embeddings", static_cast<int64_t>(rotary.original_context)}};
  }
  return none;
}

Json mlc_kwargs(const Json& object, std::span<const std::string_view> known) {
  Json out = Json::object();
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) out[key] = value;
  }
  return out;
}

double shortest(float value) {
  std::array<char, 32> digits{};
  const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  double out = value;
  std::from_chars(digits.data(), end.ptr, out);
  return out;
}

}  // namespace dovetail::models
