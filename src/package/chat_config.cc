#include "package/chat_config.h"

#include <algorithm>
#include <system_error>

#include "base/file.h"
#include "package/paths.h"

namespace dovetail::package {
namespace {

constexpr int64_t kMaxDocumentBytes = int64_t{16} << 20;
constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxCount = int64_t{1} << 40;

ConvTemplate::Texts read_texts(Fields& parent, const Json* object, std::string_view name) {
  ConvTemplate::Texts out;
  if (object == nullptr) return out;
  for (const auto& [key, value] : object->items()) {
    if (value.is_string()) {
      out.emplace_back(key, value.get<std::string>());
    } else {
      parent.problem(std::string(name) + "." + printable(key), "wrong type", "a string",
                     std::string(json_type_name(value)));
    }
  }
  return out;
}

// [role, text] each.
void read_messages(Fields& fields, const Json& messages, ConvTemplate& out) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const bool fits = message.is_array() && message.size() == 2 &&
                      (message[0] == "user" || message[0] == "assistant") && message[1].is_string();
    if (fits) {
      out.messages.push_back(message);
    } else {
      fields.problem("messages[" + std::to_string(i) + "]", "not a message",
                     R"(["user", text] or ["assistant", text])",
                     printable(message.dump(-1, ' ', false, Json::error_handler_t::replace), 80));
    }
  }
}

const std::string* find_text(const ConvTemplate::Texts& texts, std::string_view name) {
  const auto it =
      std::find_if(texts.begin(), texts.end(), [&](const auto& item) { return item.first == name; });
  return it == texts.end() ? nullptr : &it->second;
}

Json texts_json(const ConvTemplate::Texts& texts) {
  Json out = Json::object();
  for (const auto& [name, text] : texts) out[name] = text;
  return out;
}

template <typename T>
void set(T& out, std::optional<T> value) {
  if (value) out = std::move(*value);
}

}  // namespace

const std::string& ConvTemplate::role(std::string_view role_name) const {
  if (const std::string* text = find_text(roles, role_name)) return *text;
  throw Error(ErrorCode::kNotFound,
              Problem{.message = "the conversation template has no role \"" + printable(role_name) + "\"",
                      .source = std::string(kChatConfigFile),
                      .field = "conv_template.roles"});
}

std::string ConvTemplate::role_template(std::string_view role_name) const {
  if (const std::string* text = find_text(role_templates, role_name)) return *text;
  return "{" + std::string(role_name) + "_message}";
}

ConvTemplate read_conv_template(const Json& value, std::string_view source, std::string path,
                                ProblemList& problems) {
  ConvTemplate out;
  if (value.is_string()) {
    problems.add({.message = "is only the name of a template",
                  .source = std::string(source),
                  .field = std::move(path),
                  .expected = "the whole conversation template",
                  .actual = "\"" + printable(value.get<std::string>()) + "\"",
                  .hint = "convert the checkpoint again"});
    return out;
  }
  Fields fields(value, source, std::move(path), problems);
  const Presence optional = Presence::kOptional;
  set(out.name, fields.string("name", optional));
  set(out.system_template, fields.string("system_template"));
  set(out.system_message, fields.string("system_message"));
  set(out.system_prefix_token_ids, fields.integers("system_prefix_token_ids", 0, kMaxTokenId, optional));
  set(out.add_role_after_system_message, fields.boolean("add_role_after_system_message", optional));
  const Json* roles = fields.object("roles");
  out.roles = read_texts(fields, roles, "roles");
  for (const std::string_view role : {"user", "assistant"}) {
    if (roles != nullptr && !roles->contains(role))
      fields.problem("roles." + std::string(role), "is missing");
  }
  out.role_templates = read_texts(fields, fields.object("role_templates", optional), "role_templates");
  for (const std::string role : {"user", "assistant"}) {
    const std::string placeholder = "{" + role + "_message}";
    const std::string text = out.role_template(role);
    if (text.find(placeholder) != std::string::npos) continue;
    fields.problem("role_templates." + role, "has no place for the message", "a text with " + placeholder,
                   "\"" + printable(text, 80) + "\"");
  }
  if (const Json* messages = fields.array("messages", optional)) read_messages(fields, *messages, out);
  set(out.seps, fields.strings("seps"));
  if (fields.find("seps") != nullptr && fields.find("seps")->is_array() &&
      (out.seps.empty() || out.seps.size() > 2)) {
    fields.problem("seps", "wrong number of separators", "1 or 2", std::to_string(out.seps.size()));
  }
  set(out.role_content_sep, fields.string("role_content_sep"));
  set(out.role_empty_sep, fields.string("role_empty_sep"));
  set(out.stop_str, fields.strings("stop_str", optional));
  set(out.stop_token_ids, fields.integers("stop_token_ids", 0, kMaxTokenId, optional));
  set(out.strip_reasoning_in_history, fields.boolean("strip_reasoning_in_history", optional));
  set(out.function_string, fields.string("function_string", optional));
  set(out.use_function_calling, fields.boolean("use_function_calling", optional));
  return out;
}

ChatConfig parse_chat_config(std::string_view json, const std::string& source) {
  const Json document = parse_json(json, source);
  ProblemList problems;
  Fields fields(document, source, "", problems);
  ChatConfig out;
  const Presence optional = Presence::kOptional;
  set(out.version, fields.string("version", optional));
  set(out.model_type, fields.string("model_type"));
  set(out.quantization, fields.string("quantization"));
  if (const Json* config = fields.object("model_config")) out.model_config = *config;
  set(out.vocab_size, fields.integer("vocab_size", 1, kMaxTokenId));
  set(out.context_window_size, fields.integer("context_window_size", -1, kMaxCount));
  set(out.sliding_window_size, fields.integer("sliding_window_size", -1, kMaxCount, optional));
  set(out.prefill_chunk_size, fields.integer("prefill_chunk_size", 1, kMaxCount));
  set(out.attention_sink_size, fields.integer("attention_sink_size", -1, kMaxCount, optional));
  set(out.tensor_parallel_shards, fields.integer("tensor_parallel_shards", 1, 1 << 20, optional));
  set(out.pipeline_parallel_stages, fields.integer("pipeline_parallel_stages", 1, 1 << 20, optional));
  out.active_vocab_size = out.vocab_size;
  set(out.active_vocab_size, fields.integer("active_vocab_size", 1, kMaxTokenId, optional));
  if (out.vocab_size > 0 && out.active_vocab_size > out.vocab_size) {
    fields.problem("active_vocab_size", "is larger than vocab_size",
                   "at most " + std::to_string(out.vocab_size), std::to_string(out.active_vocab_size));
  }
  set(out.temperature, fields.number("temperature", 0, 100, optional));
  set(out.presence_penalty, fields.number("presence_penalty", -2, 2, optional));
  set(out.frequency_penalty, fields.number("frequency_penalty", -2, 2, optional));
  set(out.repetition_penalty, fields.number("repetition_penalty", 1e-3, 100, optional));
  if (const auto top_p = fields.number("top_p", 0, 1, optional)) out.set_top_p(*top_p);
  set(out.tokenizer_files, fields.strings("tokenizer_files"));
  for (size_t i = 0; i < out.tokenizer_files.size(); ++i) {
    if (const auto why = bad_relative_path(out.tokenizer_files[i])) {
      fields.problem("tokenizer_files[" + std::to_string(i) + "]", "file name " + *why, {},
                     "\"" + printable(out.tokenizer_files[i]) + "\"");
    }
  }
  if (const Json* value = fields.object("tokenizer_info", optional)) {
    Fields info(*value, source, "tokenizer_info", problems);
    TokenizerInfo& target = out.tokenizer_info.emplace();
    set(target.token_postproc_method, info.string("token_postproc_method", optional));
    set(target.prepend_space_in_encode, info.boolean("prepend_space_in_encode", optional));
    set(target.strip_space_in_decode, info.boolean("strip_space_in_decode", optional));
  }
  if (const Json* value = fields.find("conv_template")) {
    out.conv_template = read_conv_template(*value, source, "conv_template", problems);
  } else {
    fields.problem("conv_template", "is missing");
  }
  set(out.pad_token_id, fields.integer("pad_token_id", -1, kMaxTokenId, optional));
  set(out.bos_token_id, fields.integer("bos_token_id", -1, kMaxTokenId, optional));
  const Json* eos = fields.find("eos_token_id");
  if (eos != nullptr && eos->is_array()) {
    set(out.eos_token_ids, fields.integers("eos_token_id", -1, kMaxTokenId));
  } else if (const auto id = fields.integer("eos_token_id", -1, kMaxTokenId, optional)) {
    out.eos_token_ids = {*id};
  }
  set(out.model_task, fields.string("model_task", optional));
  if (const Json* value = fields.find("embedding_metadata")) out.embedding_metadata = *value;
  problems.throw_if_any(ErrorCode::kMalformed);
  return out;
}

ChatConfig read_chat_config(const std::filesystem::path& dir) {
  if (std::optional<Problem> bad = bad_package_file(dir, std::string(kChatConfigFile))) {
    std::error_code ec;
    if (std::filesystem::exists(dir / "config.json", ec))
      bad->hint = "this looks like a checkpoint: make a package of it with 'dovetail convert'";
    throw Error(ErrorCode::kNotFound, std::move(*bad));
  }
  return parse_chat_config(read_file(dir / kChatConfigFile, kMaxDocumentBytes));
}

std::string chat_config_text(const ChatConfig& config) {
  const ConvTemplate& conv = config.conv_template;
  const Json conv_template = {{"name", conv.name},
                              {"system_template", conv.system_template},
                              {"system_message", conv.system_message},
                              {"system_prefix_token_ids", conv.system_prefix_token_ids},
                              {"add_role_after_system_message", conv.add_role_after_system_message},
                              {"roles", texts_json(conv.roles)},
                              {"role_templates", texts_json(conv.role_templates)},
                              {"messages", conv.messages},
                              {"seps", conv.seps},
                              {"role_content_sep", conv.role_content_sep},
                              {"role_empty_sep", conv.role_empty_sep},
                              {"stop_str", conv.stop_str},
                              {"stop_token_ids", conv.stop_token_ids},
                              {"strip_reasoning_in_history", conv.strip_reasoning_in_history},
                              {"function_string", conv.function_string},
                              {"use_function_calling", conv.use_function_calling}};
  const TokenizerInfo info = config.tokenizer_info.value_or(TokenizerInfo{});
  const Json document = {{"version", config.version},
                         {"model_type", config.model_type},
                         {"quantization", config.quantization},
                         {"model_config", config.model_config},
                         {"vocab_size", config.vocab_size},
                         {"context_window_size", config.context_window_size},
                         {"sliding_window_size", config.sliding_window_size},
                         {"prefill_chunk_size", config.prefill_chunk_size},
                         {"attention_sink_size", config.attention_sink_size},
                         {"tensor_parallel_shards", config.tensor_parallel_shards},
                         {"pipeline_parallel_stages", config.pipeline_parallel_stages},
                         {"active_vocab_size", config.active_vocab_size},
                         {"temperature", config.temperature},
                         {"presence_penalty", config.presence_penalty},
                         {"frequency_penalty", config.frequency_penalty},
                         {"repetition_penalty", config.repetition_penalty},
                         {"top_p", config.top_p},
                         {"tokenizer_files", config.tokenizer_files},
                         {"tokenizer_info",
                          {{"token_postproc_method", info.token_postproc_method},
                           {"prepend_space_in_encode", info.prepend_space_in_encode},
                           {"strip_space_in_decode", info.strip_space_in_decode}}},
                         {"conv_template", conv_template},
                         {"pad_token_id", config.pad_token_id},
                         {"bos_token_id", config.bos_token_id},
                         {"eos_token_id", config.eos_token_ids.size() == 1 ? Json(config.eos_token_ids[0])
                                                                           : Json(config.eos_token_ids)},
                         {"model_task", config.model_task},
                         {"embedding_metadata", config.embedding_metadata}};
  return document.dump(2);
}

}  // namespace dovetail::package
