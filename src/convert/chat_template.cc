#include "convert/chat_template.h"

#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "convert/checkpoint_folder.h"
#include "package/fields.h"
#include "package/jinja.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr const char* kJinja = "chat_template.jinja";
constexpr const char* kJson = "chat_template.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kProbe = "QzprobeqZ";  // a message that no template contains

std::optional<Json> read_object(const fs::path& dir, const char* name) {
  std::error_code ec;
  if (!fs::exists(dir / name, ec)) return std::nullopt;
  return read_json_object(dir, name, kMaxBytes);
}

// A text, or [{"name": "default", "template": text}, …].
std::optional<std::string> template_text(const Json& document) {
  const auto found = document.find("chat_template");
  if (found == document.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const Json& entry : *found) {
    if (entry.is_object() && entry.contains("name") && entry["name"] == "default" &&
        entry.contains("template") && entry["template"].is_string())
      return entry["template"].get<std::string>();
  }
  return std::nullopt;
}

// "<s>", or {"content": "<s>", …}.
Json token_texts(const Json& document) {
  Json out = Json::object();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto found = document.find(name);
    if (found == document.end()) continue;
    if (found->is_string()) out[name] = *found;
    if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
      out[name] = (*found)["content"];
  }
  return out;
}

Json message_list(const std::vector<Message>& messages, bool parts) {
  Json out = Json::array();
  for (const Message& message : messages) {
    const Json content =
        parts ? Json::array({{{"type", "text"}, {"text", message.content}}}) : Json(message.content);
    out.push_back({{"role", message.role}, {"content", content}});
  }
  return out;
}

std::string render_values(const ChatTemplate& chat_template, const Json& messages,
                          bool add_generation_prompt) {
  Json values = chat_template.tokens;
  values["messages"] = messages;
  values["add_generation_prompt"] = add_generation_prompt;
  values["tools"] = nullptr;
  values["documents"] = nullptr;
  try {
    return package::render_jinja(chat_template.text, values);
  } catch (const Error& error) {
    throw Error(ErrorCode::kMalformed, Problem{.message = printable(error.problems()[0].message, 300),
                                               .source = chat_template.source});
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

std::optional<ChatTemplate> find_chat_template(const fs::path& checkpoint, std::vector<std::string>& notes) {
  std::error_code ec;
  std::vector<ChatTemplate> found;
  if (fs::exists(checkpoint / kJinja, ec))
    found.push_back({.source = kJinja, .text = read_file(checkpoint / kJinja, kMaxBytes)});
  const std::optional<Json> config = read_object(checkpoint, kTokenizerConfig);
  for (const char* name : {kJson, kTokenizerConfig}) {
    const std::optional<Json> document =
        std::string_view(name) == kJson ? read_object(checkpoint, kJson) : config;
    const std::optional<std::string> text = document ? template_text(*document) : std::nullopt;
    if (text) found.push_back({.source = name, .text = *text});
  }
  if (found.empty()) return std::nullopt;
  for (size_t i = 1; i < found.size(); ++i) {
    if (found[i].text != found[0].text)
      notes.push_back(found[i].source + " has another chat template than " + found[0].source +
                      ", which is the one that counts");
  }
  if (config) found[0].tokens = token_texts(*config);
  return std::move(found[0]);
}

std::string render(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                   bool add_generation_prompt) {
  // Templates of models with media may know lists of parts only.
  const std::string probe = render_values(chat_template, message_list({{"user", kProbe}}, false), false);
  const bool parts = probe.find(kProbe) == std::string::npos;
  return render_values(chat_template, message_list(messages, parts), add_generation_prompt);
}

std::string conversation_text(const package::ConvTemplate& conv, const std::vector<Message>& messages) {
  std::string system = conv.system_message, out;
  for (const Message& message : messages) {
    if (message.role == "system") system = message.content;
  }
  if (!system.empty()) {
    out = conv.system_template;
    replace_all(out, "{system_message}", system);
  }
  bool with_role = out.empty() || conv.add_role_after_system_message;
  for (const Message& message : messages) {
    if (message.role == "system") continue;
    if (with_role) out += conv.role(message.role) + conv.role_content_sep;
    with_role = true;
    std::string text = conv.role_template(message.role);
    replace_all(text, "{" + message.role + "_message}", message.content);
    out += text + (message.role == "user" ? conv.seps.front() : conv.seps.back());
  }
  return out + conv.role("assistant") + conv.role_empty_sep;
}

}  // namespace dovetail::convert
