#include "convert/checkpoint_template.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "package/fields.h"
#include "package/jinja.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr const char* kJinja = "chat_template.jinja";
constexpr const char* kJson = "chat_template.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// Messages that no template contains.
constexpr const char* kUser = "QzfirstuserqZ";
constexpr const char* kAssistant = "QzassistantqZ";
constexpr const char* kSecondUser = "QzseconduserqZ";
constexpr const char* kSystem = "QzsystemqZ";

std::optional<Json> read_object(const fs::path& dir, const char* name) {
  std::error_code ec;
  if (!fs::exists(dir / name, ec)) return std::nullopt;
  Json document = parse_json(read_file(dir / name, kMaxBytes), name);
  if (!document.is_object()) {
    throw Error(ErrorCode::kMalformed, Problem{.message = "wrong type",
                                               .source = name,
                                               .expected = "an object",
                                               .actual = std::string(package::json_type_name(document))});
  }
  return document;
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

std::string render_values(const CheckpointTemplate& chat_template, const Json& messages,
                          bool add_generation_prompt) {
  Json values = chat_template.tokens;
  values["messages"] = messages;
  values["add_generation_prompt"] = add_generation_prompt;
  try {
    return package::render_jinja(chat_template.text, values);
  } catch (const Error& error) {
    throw Error(ErrorCode::kMalformed, Problem{.message = printable(error.problems()[0].message, 300),
                                               .source = chat_template.source});
  }
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

// The text before and behind each message, in order; nullopt unless each stands there once.
std::optional<std::vector<std::string>> between(const std::string& text,
                                                std::initializer_list<const char*> messages) {
  std::vector<std::string> out;
  size_t at = 0;
  for (const std::string_view message : messages) {
    const size_t found = text.find(message, at);
    if (found == std::string::npos) return std::nullopt;
    out.push_back(text.substr(at, found - at));
    at = found + message.size();
    if (text.find(message, at) != std::string::npos) return std::nullopt;
  }
  out.push_back(text.substr(at));
  return out;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// What the rendered conversations are made of.
struct Pieces {
  std::string before_all;  // without a system message
  std::string user_header;
  std::string user_end;
  std::string assistant_header;  // in the history
  std::string assistant_end;
  std::string generation;  // what the reply follows
};

std::optional<Pieces> take_apart(const CheckpointTemplate& chat_template) {
  const std::vector<Message> first{{"user", kUser}}, two{{"user", kUser}, {"assistant", kAssistant}},
      three{{"user", kUser}, {"assistant", kAssistant}, {"user", kSecondUser}};
  const auto one = between(render(chat_template, first, true), {kUser});
  const auto history = between(render(chat_template, three, false), {kUser, kAssistant, kSecondUser});
  const auto open = between(render(chat_template, three, true), {kUser, kAssistant, kSecondUser});
  const auto answered = between(render(chat_template, two, false), {kUser, kAssistant});
  if (!one || !history || !open || !answered) return std::nullopt;
  Pieces out;
  out.user_end = history->at(3);
  if (!open->at(3).starts_with(out.user_end)) return std::nullopt;
  out.generation = open->at(3).substr(out.user_end.size());
  if (!history->at(1).starts_with(out.user_end)) return std::nullopt;
  out.assistant_header = history->at(1).substr(out.user_end.size());
  // Some templates end a conversation otherwise than a turn within it.
  out.assistant_end = answered->at(2).substr(0, common_prefix(answered->at(2), history->at(2)));
  out.user_header = history->at(2).substr(out.assistant_end.size());
  if (!one->at(0).ends_with(out.user_header)) {
    // The first turn begins otherwise than the others: nothing but the start can differ.
    const size_t same = common_suffix(one->at(0), out.user_header);
    out.assistant_end += out.user_header.substr(0, out.user_header.size() - same);
    out.user_header = out.user_header.substr(out.user_header.size() - same);
  }
  out.before_all = one->at(0).substr(0, one->at(0).size() - out.user_header.size());
  return out;
}

void set_turns(const Pieces& pieces, package::ConvTemplate& conv) {
  conv.seps = {pieces.user_end, pieces.assistant_end};
  if (pieces.user_end == pieces.assistant_end) conv.seps.pop_back();
  conv.role_templates = {
      {"user", "{user_message}"}, {"assistant", "{assistant_message}"}, {"tool", "{tool_message}"}};
  conv.role_content_sep = conv.role_empty_sep = "";
  std::string user = pieces.user_header, assistant = pieces.assistant_header;
  if (assistant == pieces.generation) {
    const size_t shared = common_suffix(user, assistant);
    conv.role_content_sep = conv.role_empty_sep = assistant.substr(assistant.size() - shared);
    assistant.resize(assistant.size() - shared);
    user.resize(user.size() - shared);
  } else {
    const size_t shared = common_prefix(assistant, pieces.generation);
    const std::string rest = assistant.substr(shared);
    conv.role_empty_sep = pieces.generation.substr(shared);
    assistant.resize(shared);
    if (user.ends_with(rest)) {
      conv.role_content_sep = rest;
      user.resize(user.size() - rest.size());
    } else {
      conv.role_templates[1].second = rest + "{assistant_message}";
    }
  }
  conv.roles = {{"user", user}, {"assistant", assistant}};
}

// The ids before all text: what the template writes as text is taken from there.
void set_prefix(const CheckpointTemplate& chat_template, const package::Tokenizer& tokenizer,
                std::string& before_all, package::ConvTemplate& conv) {
  conv.system_prefix_token_ids.clear();
  const std::string bos = chat_template.tokens.value("bos_token", std::string());
  const int32_t id = bos.empty() ? -1 : tokenizer.token_to_id(bos).value_or(-1);
  if (id >= 0 && before_all.starts_with(bos)) {
    conv.system_prefix_token_ids = {id};
    before_all.erase(0, bos.size());
    return;
  }
  // The template leaves it to the tokenizer. One that begins every turn with it has it in the text.
  if (conv.role("user").starts_with(bos) && !bos.empty()) return;
  for (const int32_t added : tokenizer.encode("", true)) {
    if (added == id && id >= 0) conv.system_prefix_token_ids = {added};
  }
}

void set_system(const CheckpointTemplate& chat_template, const Pieces& pieces, const std::string& bos_text,
                std::string before_all, package::ConvTemplate& conv, std::vector<std::string>& notes) {
  conv.system_template = "{system_message}";
  conv.system_message = "";
  conv.add_role_after_system_message = true;
  std::optional<std::vector<std::string>> parts;
  try {
    parts = between(render(chat_template, {{"system", kSystem}, {"user", kUser}}, true), {kSystem, kUser});
  } catch (const Error& error) {
    notes.push_back(chat_template.source + " takes no system message (" + error.problems()[0].message +
                    "); one that is given all the same stands before the first turn");
  }
  if (!parts) {
    if (!before_all.empty()) conv.system_template = before_all + "{system_message}";
    conv.system_message = "";
    return;
  }
  std::string before = parts->at(0), after = parts->at(1);
  if (before.starts_with(bos_text)) before.erase(0, bos_text.size());
  if (after.ends_with(pieces.user_header)) {
    after.resize(after.size() - pieces.user_header.size());
  } else {
    conv.add_role_after_system_message = false;
  }
  conv.system_template = before + "{system_message}" + after;
  // What stands before all where no system message is given is the message that the template has of its own.
  const bool own = before_all.size() > before.size() + after.size() && before_all.starts_with(before) &&
                   before_all.ends_with(after) && conv.add_role_after_system_message;
  if (own)
    conv.system_message = before_all.substr(before.size(), before_all.size() - before.size() - after.size());
}

std::string shown(const std::vector<Message>& messages) {
  std::string out;
  for (const Message& message : messages) out += (out.empty() ? "" : ", ") + message.role;
  return out;
}

// Conversations whose text is another one in MLC's form.
void note_differences(const CheckpointTemplate& chat_template, const std::string& bos_text,
                      const package::ConvTemplate& conv, std::vector<std::string>& notes) {
  struct Case {
    const char* what;
    std::vector<Message> messages;
  };
  const std::array<Case, 6> cases{{
      {"one message", {{"user", "hello"}}},
      {"a longer conversation",
       {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}, {"user", "e"}}},
      {"a system message", {{"system", "be brief"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}}},
      {"two messages of the user in a row", {{"user", "a"}, {"user", "b"}}},
      {"blanks around a message", {{"user", " a\n"}, {"assistant", "\nb "}, {"user", "c"}}},
      {"an empty message", {{"user", ""}}},
  }};
  for (const Case& one : cases) {
    std::string expected;
    try {
      expected = render(chat_template, one.messages, true);
    } catch (const Error& error) {
      notes.push_back(chat_template.source + " refuses " + one.what + " (" + shown(one.messages) +
                      "), the package does not: " + error.problems()[0].message);
      continue;
    }
    if (expected.starts_with(bos_text)) expected.erase(0, bos_text.size());
    if (expected != conversation_text(conv, one.messages))
      notes.push_back(std::string("the conversation template differs from ") + chat_template.source +
                      " for " + one.what + " (" + shown(one.messages) + ")");
  }
}

}  // namespace

std::optional<CheckpointTemplate> find_chat_template(const fs::path& checkpoint,
                                                     std::vector<std::string>& notes) {
  std::error_code ec;
  std::vector<CheckpointTemplate> found;
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

std::string render(const CheckpointTemplate& chat_template, const std::vector<Message>& messages,
                   bool add_generation_prompt) {
  // Templates of models with media may know lists of parts only.
  const std::string probe = render_values(chat_template, message_list({{"user", kUser}}, false), false);
  const bool parts = probe.find(kUser) == std::string::npos;
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

void derive_conv_template(const CheckpointTemplate& chat_template, const package::Tokenizer& tokenizer,
                          package::ConvTemplate& conv, std::vector<std::string>& notes) {
  const std::string unused = "the chat template of " + chat_template.source +
                             " can't be taken apart and is not used; the package has the template of the "
                             "model's family";
  std::optional<Pieces> pieces;
  try {
    pieces = take_apart(chat_template);
  } catch (const Error& error) {
    notes.push_back(unused + ": " + error.problems()[0].message);
    return;
  }
  if (!pieces) {
    notes.push_back(unused);
    return;
  }
  package::ConvTemplate derived = conv;
  set_turns(*pieces, derived);
  const std::string bos = chat_template.tokens.value("bos_token", std::string());
  const std::string bos_text = pieces->before_all.starts_with(bos) ? bos : "";
  std::string before_all = pieces->before_all;
  set_prefix(chat_template, tokenizer, before_all, derived);
  set_system(chat_template, *pieces, bos_text, before_all, derived, notes);
  derived.stop_str.clear();
  if (const std::string end = trimmed(pieces->assistant_end); !end.empty()) {
    const std::optional<int32_t> id = tokenizer.token_to_id(end);
    std::vector<int64_t>& ids = derived.stop_token_ids;
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
    derived.stop_str = {end};
  }
  conv = std::move(derived);
  note_differences(chat_template, bos_text, conv, notes);
}

}  // namespace dovetail::convert
