#include "convert/chat_template.h"

#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "convert/checkpoint_folder.h"
#include "convert/pieces.h"
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

[[noreturn]] void wrong_type(const std::string& source, std::string field, const char* expected,
                             const Json& value) {
  throw Error(ErrorCode::kMalformed, Problem{.message = "wrong type",
                                             .source = source,
                                             .field = std::move(field),
                                             .expected = expected,
                                             .actual = std::string(package::json_type_name(value))});
}

// A text, or [{"name": "default", "template": text}, …].
std::optional<std::string> template_text(const Json& document, const std::string& source,
                                         std::vector<std::string>& notes) {
  const auto found = document.find("chat_template");
  if (found == document.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) wrong_type(source, "chat_template", "a text, or a list of named templates", *found);
  std::string names;
  for (size_t i = 0; i < found->size(); ++i) {
    const Json& entry = (*found)[i];
    const std::string field = "chat_template[" + std::to_string(i) + "]";
    if (!entry.is_object()) wrong_type(source, field, "an object with a name and a template", entry);
    for (const char* member : {"name", "template"}) {
      const auto value = entry.find(member);
      if (value == entry.end()) {
        throw Error(ErrorCode::kMalformed, Problem{.message = "is missing",
                                                   .source = source,
                                                   .field = field + "." + member,
                                                   .expected = "a text"});
      }
      if (!value->is_string()) wrong_type(source, field + "." + member, "a text", *value);
    }
    if (entry["name"] == "default") return entry["template"].get<std::string>();
    names += (names.empty() ? "" : ", ") + printable(entry["name"].get<std::string>(), 40);
  }
  notes.push_back("none of the chat templates of " + source +
                  " is named default: " + (names.empty() ? "the list is empty" : names));
  return std::nullopt;
}

Json token_texts(const Json& config) {
  Json out = Json::object();
  for (const char* name : kNamedTokens) {
    if (const auto found = config.find(name); found != config.end() && found->is_string()) out[name] = *found;
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

std::optional<ChatTemplate> find_chat_template(const fs::path& checkpoint, const Json& tokenizer_config,
                                               std::vector<std::string>& notes) {
  std::error_code ec;
  std::vector<ChatTemplate> found;
  if (fs::exists(checkpoint / kJinja, ec))
    found.push_back({.source = kJinja, .text = read_file(checkpoint / kJinja, kMaxBytes)});
  const auto add = [&](const char* name, const Json& holder) {
    if (const auto text = template_text(holder, name, notes))
      found.push_back({.source = name, .text = *text});
  };
  add(kJson, read_json_object(checkpoint, kJson, kMaxBytes));
  add(kTokenizerConfig, tokenizer_config);
  if (found.empty()) return std::nullopt;
  for (size_t i = 1; i < found.size(); ++i) {
    if (found[i].text != found[0].text)
      notes.push_back(found[i].source + " has another chat template than " + found[0].source +
                      ", which is the one that counts");
  }
  found[0].tokens = token_texts(tokenizer_config);
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
