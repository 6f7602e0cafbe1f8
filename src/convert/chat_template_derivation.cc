#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "convert/chat_template.h"

namespace dovetail::convert {
namespace {

// Messages that no template contains.
constexpr const char* kUser = "QzfirstuserqZ";
constexpr const char* kAssistant = "QzassistantqZ";
constexpr const char* kSecondUser = "QzseconduserqZ";
constexpr const char* kSystem = "QzsystemqZ";

constexpr std::string_view kBlanks = " \t\r\n";

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

[[noreturn]] void refuse(const char* reason) {
  throw Error(ErrorCode::kUnsupported, Problem{.message = reason});
}

// The text before and behind each message, in order.
std::vector<std::string> between(const std::string& text, std::initializer_list<const char*> messages) {
  std::vector<std::string> out;
  size_t at = 0;
  for (const std::string_view message : messages) {
    const size_t found = text.find(message, at);
    if (found == std::string::npos) refuse("it leaves out or changes a message");
    out.push_back(text.substr(at, found - at));
    at = found + message.size();
    if (text.find(message, at) != std::string::npos) refuse("it repeats a message");
  }
  out.push_back(text.substr(at));
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
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

// The token that `text` begins with, with the blanks around it, where that is one of the tokens that mark
// turns; empty: none.
std::string_view leading_mark(std::string_view text, const package::Tokenizer& tokenizer) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::vector<int32_t> ids = tokenizer.encode(text.substr(begin));
  if (ids.empty()) return "";
  const std::string token = tokenizer.id_to_token(ids[0]).value_or("");
  const bool marks = tokenizer.is_special(ids[0]) || (token.starts_with('<') && token.ends_with('>'));
  if (!marks || token.size() < 2 || !text.substr(begin).starts_with(token)) return "";
  const size_t end = std::min(text.find_first_not_of(kBlanks, begin + token.size()), text.size());
  return text.substr(0, end);
}

Pieces take_apart(const ChatTemplate& chat_template, const package::Tokenizer& tokenizer) {
  const std::vector<Message> first{{"user", kUser}}, two{{"user", kUser}, {"assistant", kAssistant}},
      three{{"user", kUser}, {"assistant", kAssistant}, {"user", kSecondUser}};
  const auto one = between(render(chat_template, first, true), {kUser});
  const auto history = between(render(chat_template, three, false), {kUser, kAssistant, kSecondUser});
  const auto open = between(render(chat_template, three, true), {kUser, kAssistant, kSecondUser});
  const auto answered = between(render(chat_template, two, false), {kUser, kAssistant});
  Pieces out;
  const std::string& behind_user = history[1];
  const std::string& behind_reply = history[2];
  // Some templates end a conversation otherwise than a turn within it, or always ask for a reply.
  out.assistant_end = answered[2].substr(0, common_prefix(answered[2], behind_reply));
  const std::string_view mark = leading_mark(out.assistant_end, tokenizer);
  if (!mark.empty() && !behind_reply.starts_with(answered[2])) out.assistant_end.resize(mark.size());
  out.user_end = history[3];
  if (open[3] == history[3]) {
    const std::string_view end = leading_mark(out.user_end, tokenizer);
    if (!end.empty() && trimmed(end) == trimmed(out.assistant_end)) out.user_end.resize(end.size());
  }
  if (!open[3].starts_with(out.user_end) || !behind_user.starts_with(out.user_end))
    refuse("the last turn is written in another way than earlier ones");
  out.generation = open[3].substr(out.user_end.size());
  out.assistant_header = behind_user.substr(out.user_end.size());
  out.user_header = behind_reply.substr(out.assistant_end.size());
  if (!one[0].ends_with(out.user_header)) {
    // The first turn begins otherwise than the others: nothing but the start can differ.
    const size_t same = common_suffix(one[0], out.user_header);
    out.assistant_end += out.user_header.substr(0, out.user_header.size() - same);
    out.user_header = out.user_header.substr(out.user_header.size() - same);
  }
  out.before_all = one[0].substr(0, one[0].size() - out.user_header.size());
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
    size_t shared = common_suffix(user, assistant);
    // Names of roles that end alike stay whole.
    while (shared > 0 && std::isalnum(static_cast<unsigned char>(user[user.size() - shared])) != 0) --shared;
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

// The ids before all text. `written`: the template begins with the token, as text.
void set_prefix(const std::string& bos, bool written, const package::Tokenizer& tokenizer,
                package::ConvTemplate& conv) {
  conv.system_prefix_token_ids.clear();
  if (bos.empty()) return;
  const std::optional<int32_t> id = tokenizer.token_to_id(bos);
  if (!id) return;
  if (written) {
    conv.system_prefix_token_ids = {*id};
    return;
  }
  // The template leaves it to the tokenizer. One that begins every turn with it has it in the text.
  if (conv.role("user").starts_with(bos)) return;
  for (const int32_t added : tokenizer.encode("", true)) {
    if (added == *id) conv.system_prefix_token_ids = {*id};
  }
}

// False when the template takes no system message.
bool set_system(const ChatTemplate& chat_template, const Pieces& pieces, const std::string& bos_text,
                const std::string& before_all, package::ConvTemplate& conv, std::vector<std::string>& notes) {
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
    return false;
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
  return true;
}

std::string shown(const std::vector<Message>& messages) {
  std::string out;
  for (const Message& message : messages) out += (out.empty() ? "" : ", ") + message.role;
  return out;
}

// Notes the conversations whose text is another one in MLC's form. False when that is true of longer ones
// with a system message and without: then the form is not the template's at all.
bool agrees(const ChatTemplate& chat_template, const std::string& bos_text, const package::ConvTemplate& conv,
            bool takes_system, std::vector<std::string>& notes) {
  struct Case {
    const char* what;
    std::vector<Message> messages;
    bool longer = false;
  };
  const std::array<Case, 6> cases{{
      {"one message", {{"user", "hello"}}},
      {"a longer conversation",
       {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}, {"user", "e"}},
       true},
      {"a system message", {{"system", "be brief"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}}, true},
      {"two messages of the user in a row", {{"user", "a"}, {"user", "b"}}},
      {"blanks around a message", {{"user", " a\n"}, {"assistant", "\nb "}, {"user", "c"}}},
      {"an empty message", {{"user", ""}}},
  }};
  bool one_agrees = false;
  for (const Case& one : cases) {
    if (!takes_system && one.messages.front().role == "system") continue;
    std::string expected;
    try {
      expected = render(chat_template, one.messages, true);
    } catch (const Error& error) {
      notes.push_back(chat_template.source + " refuses " + one.what + " (" + shown(one.messages) +
                      "), the package does not: " + error.problems()[0].message);
      continue;
    }
    if (expected.starts_with(bos_text)) expected.erase(0, bos_text.size());
    if (expected == conversation_text(conv, one.messages)) {
      one_agrees |= one.longer;
    } else {
      notes.push_back(std::string("the conversation template differs from ") + chat_template.source +
                      " for " + one.what + " (" + shown(one.messages) + ")");
    }
  }
  return one_agrees;
}

// The MLC name of a template with these roles.
std::string name_of(const package::ConvTemplate& derived, const package::ConvTemplate& family) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> kMarks{{
      {"<|im_start|>", "chatml"},
      {"<|start_header_id|>", "llama-3"},
      {"<start_of_turn>", "gemma3_instruction"},
      {"<|turn>", "gemma4_instruction"},
      {"[INST", "llama-2"},
  }};
  for (const auto& [mark, name] : kMarks) {
    if (derived.role("user").find(mark) != std::string::npos) return name;
  }
  return derived.roles == family.roles ? family.name : "custom";
}

}  // namespace

std::string derive_conv_template(const ChatTemplate& chat_template, const package::Tokenizer& tokenizer,
                                 package::ConvTemplate& conv, std::vector<std::string>& notes) {
  Pieces pieces;
  try {
    pieces = take_apart(chat_template, tokenizer);
  } catch (const Error& error) {
    return error.problems()[0].message;
  }
  package::ConvTemplate derived = conv;
  set_turns(pieces, derived);
  const std::string bos = chat_template.tokens.value("bos_token", std::string());
  // A token that also begins turns is part of their text.
  const bool once =
      (pieces.user_header + pieces.user_end + pieces.assistant_header + pieces.assistant_end).find(bos) ==
      std::string::npos;
  const std::string bos_text = once && pieces.before_all.starts_with(bos) ? bos : "";
  set_prefix(bos, !bos_text.empty(), tokenizer, derived);
  const std::string before_all = pieces.before_all.substr(bos_text.size());
  std::vector<std::string> found;
  const bool takes_system = set_system(chat_template, pieces, bos_text, before_all, derived, found);
  derived.stop_str.clear();
  if (const std::string end(trimmed(pieces.assistant_end)); !end.empty()) {
    const std::optional<int32_t> id = tokenizer.token_to_id(end);
    std::vector<int64_t>& ids = derived.stop_token_ids;
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
    derived.stop_str = {end};
  }
  derived.name = name_of(derived, conv);
  if (!agrees(chat_template, bos_text, derived, takes_system, found))
    return "longer conversations come out in another way";
  conv = std::move(derived);
  notes.insert(notes.end(), found.begin(), found.end());
  return "";
}

}  // namespace dovetail::convert
