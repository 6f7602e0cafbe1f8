// Pieces that the plans of several models are made of.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "contract/artifact.h"
#include "contract/manifest.h"
#include "models/config_reader.h"
#include "models/kv_cache.h"
#include "models/plan.h"
#include "models/rotary.h"
#include "models/vit.h"

namespace dovetail::models {

// C++ designated initialisers of a configuration: the compiled library holds it as a constant.
class Literal {
 public:
  Literal& field(const char* name, int32_t value) { return add(name, std::to_string(value)); }
  Literal& field(const char* name, bool value) { return add(name, value ? "true" : "false"); }
  Literal& field(const char* name, float value) { return add(name, number(value, "%.9g") + "f"); }
  Literal& field(const char* name, double value) { return add(name, number(value, "%.17g")); }
  Literal& add(const char* name, const std::string& value);
  std::string text() const { return "{" + text_ + "}"; }

 private:
  static std::string number(double value, const char* format);
  std::string text_;
};

std::string rotary_literal(const RotaryConfig& config);
std::string vit_literal(const VitConfig& config);

// "rope_parameters" (transformers 5) or "rope_theta" with "rope_scaling" (before).
RotaryConfig read_rotary(const ConfigReader& text, double default_theta);
// One entry of rope_parameters, or of rope_scaling.
void read_rotary_scaling(const ConfigReader& entry, RotaryConfig& out);

VitConfig read_vision(const ConfigReader& vision, const VitConfig& defaults);

// Only the type: the checkpoint's tensors say whether it is true.
inline void check_tied(const ConfigReader& part) { part.boolean("tie_word_embeddings", true); }

// A tensor's name with the first of these prefixes that it has replaced by the text beside it.
std::string with_other_prefix(
    const std::string& name,
    std::initializer_list<std::pair<std::string_view, std::string_view>> replacements);
// Towers are stored with "vision_tower.vision_model." and, by newer versions, without the second part.
std::string with_vision_model(const std::string& name);

// The ids that end a reply, of "eos_token_id" (a number or a list).
Json stop_token_ids(const ConfigReader& text, int64_t fallback);

// A program whose prefill and decode take embeddings, or token ids with modality ids.
enum class Pair { kEmbeddings, kTokens };
contract::Program generation_program(Pair pair, const std::string& adapter,
                                     const std::string& adapter_function);

// chat.completions: text, and `input` under `name` when there is one.
contract::Tasks chat_tasks(const std::string& name, std::optional<contract::Input> input);

// Everything in a plan that follows from the parameter tree and the layers that store keys and values.
void fill_plan(ModelPlan& plan, const ParameterTree& tree, const std::vector<KvLayer>& kv_layers,
               int64_t num_heads);

// Bytes of parameters that one decode step reads: all but those with one of these prefixes, and of a table
// from which only rows are taken one row.
int64_t count_decode_bytes(const ModelPlan& plan, const std::vector<std::string>& unused_prefixes,
                           const std::vector<std::string>& gathered_prefixes);

// A conversation template without tools. Roles and separators are MLC's.
Json conversation_template(const std::string& name, const std::string& system_template, int64_t bos,
                           const std::string& user, const std::string& assistant,
                           const std::string& content_separator, const std::string& empty_separator,
                           std::vector<std::string> separators, std::vector<std::string> stop_strings,
                           Json stop_ids);

}  // namespace dovetail::models
