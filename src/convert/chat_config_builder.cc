#include "convert/chat_config_builder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "package/fields.h"

namespace dovetail::convert {
namespace {

using package::ChatConfig;
using package::Fields;
using package::Presence;
using package::ProblemList;

constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;
constexpr const char* kGenerationConfig = "generation_config.json";

// The documents in which a value may stand, the first one first.
struct Documents {
  std::vector<Fields> list;

  std::optional<double> number(std::string_view name, double min, double max) {
    for (Fields& fields : list) {
      if (const auto value = fields.number(name, min, max, Presence::kOptional)) return value;
    }
    return std::nullopt;
  }

  // An id, or a list of ids.
  std::vector<int64_t> ids(std::string_view name) {
    for (Fields& fields : list) {
      const Json* value = fields.find(name);
      if (value == nullptr || value->is_null()) continue;
      if (value->is_array()) return fields.integers(name, 0, kMaxTokenId).value_or(std::vector<int64_t>{});
      if (const auto id = fields.integer(name, 0, kMaxTokenId)) return {*id};
      return {};
    }
    return {};
  }
};

void check_vocabulary(const models::ModelPlan& plan, const TokenizerFiles& files,
                      std::vector<std::string>& notes) {
  const package::Tokenizer& tokenizer = files.tokenizer;
  const int64_t extra = tokenizer.vocab_size() - plan.vocab_size;
  if (extra <= 0) return;
  for (int64_t id = plan.vocab_size; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(static_cast<int32_t>(id))) continue;
    throw Error(ErrorCode::kMismatch,
                Problem{.message = "the tokenizer has more tokens than the model's vocabulary",
                        .source = files.source,
                        .expected = "at most " + std::to_string(plan.vocab_size),
                        .actual = std::to_string(tokenizer.vocab_size()),
                        .hint = "the tokenizer belongs to another model"});
  }
  notes.push_back(files.source + " has " + std::to_string(extra) + " special token" +
                  (extra == 1 ? "" : "s") + " beyond the model's vocabulary of " +
                  std::to_string(plan.vocab_size) + "; text can't use " + (extra == 1 ? "it" : "them"));
}

void apply(const ChatTemplate& chat_template, const package::Tokenizer& tokenizer,
           package::ConvTemplate& conv, std::vector<std::string>& notes) {
  const std::string reason = derive_conv_template(chat_template, tokenizer, conv, notes);
  if (reason.empty()) return;
  if (chat_template.required) {
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = "the chat template can't be written as a conversation template: " + reason,
                        .source = chat_template.source,
                        .field = "chat_template",
                        .hint = "--chat-template family uses the template of the model's family instead"});
  }
  notes.push_back(
      "the chat template of " + chat_template.source +
      " can't be taken apart and is not used; the package has the template of the model's family: " + reason);
}

}  // namespace

ChatConfig build_chat_config(const models::ModelPlan& plan, const Json& config, const Json& generation_config,
                             const TokenizerFiles& tokenizer,
                             const std::optional<ChatTemplate>& chat_template,
                             std::vector<std::string>& notes) {
  ProblemList problems;
  Documents documents;
  documents.list.emplace_back(generation_config, kGenerationConfig, "", problems);
  documents.list.emplace_back(config, "config.json", "", problems);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    documents.list.emplace_back(*text, "config.json", "text_config", problems);
  }

  ChatConfig out;
  out.model_type = plan.model_type;
  out.quantization = std::string(plan.quantization->name);
  out.model_config = plan.model_config;
  out.vocab_size = plan.vocab_size;
  out.context_window_size = plan.context_window_size;
  out.sliding_window_size = plan.sliding_window_size;
  out.prefill_chunk_size = plan.prefill_chunk_size;
  out.active_vocab_size = std::min(tokenizer.tokenizer.vocab_size(), plan.vocab_size);
  out.temperature = documents.number("temperature", 0, 100).value_or(out.temperature);
  // A checkpoint that says it is to be decoded greedily; "temperature" means nothing then.
  if (const auto sample = generation_config.find("do_sample");
      sample != generation_config.end() && *sample == false) {
    out.temperature = 0;
  }
  out.presence_penalty = documents.number("presence_penalty", -2, 2).value_or(out.presence_penalty);
  out.frequency_penalty = documents.number("frequency_penalty", -2, 2).value_or(out.frequency_penalty);
  out.repetition_penalty = documents.number("repetition_penalty", 1e-3, 100).value_or(out.repetition_penalty);
  if (const auto top_p = documents.number("top_p", 0, 1)) out.set_top_p(*top_p);
  for (const TokenizerFile& file : tokenizer.files) out.tokenizer_files.push_back(file.name);
  out.tokenizer_info = tokenizer.tokenizer.tokenizer_info();
  out.conv_template =
      package::read_conv_template(plan.conv_template, "the model's definition", "conv_template", problems);
  if (chat_template) apply(*chat_template, tokenizer.tokenizer, out.conv_template, notes);
  if (const auto ids = documents.ids("pad_token_id"); !ids.empty()) out.pad_token_id = ids[0];
  if (const auto ids = documents.ids("bos_token_id"); !ids.empty()) out.bos_token_id = ids[0];
  if (auto ids = documents.ids("eos_token_id"); !ids.empty()) out.eos_token_ids = std::move(ids);
  std::vector<int64_t>& stop = out.conv_template.stop_token_ids;
  for (const int64_t id : out.eos_token_ids) {
    if (std::find(stop.begin(), stop.end(), id) == stop.end()) stop.push_back(id);
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  check_vocabulary(plan, tokenizer, notes);
  return out;
}

}  // namespace dovetail::convert
