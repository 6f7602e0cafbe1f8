#include "convert/chat_template.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "package/jinja.h"

namespace dovetail::convert {
namespace {

// Messages that no template contains. Letters alone, so that nothing trims or escapes them.
constexpr std::string_view kSystem = "qzSystemzq", kUser1 = "qzFirstzq", kReply = "qzReplyzq",
                           kUser2 = "qzSecondzq";

std::string common_suffix(std::string_view a, std::string_view b) {
  size_t size = 0;
  while (size < std::min(a.size(), b.size()) && a[a.size() - 1 - size] == b[b.size() - 1 - size]) ++size;
  return std::string(a.substr(a.size() - size));
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

struct Message {
  std::string_view role, text;
};

class Deriver {
 public:
  Deriver(const ChatTemplate& chat, const std::string& source, std::vector<std::string>& notes)
      : chat_(chat), source_(source), notes_(notes) {}

  Json derive() {
    const std::vector<std::string> two =
        parts({{"user", kUser1}, {"assistant", kReply}, {"user", kUser2}}, {kUser1, kReply, kUser2});
    const std::vector<std::string> one = parts({{"user", kUser1}}, {kUser1});
    if (one[0] != two[0] || one[1] != two[3])
      refuse("earlier turns are written in another way than the last one");
    take_turns(one[0], two);
    take_system(one[0]);
    check();
    return result();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = "the chat template can't be written as a conversation template: " + why,
                        .source = source_,
                        .field = "chat_template",
                        .hint = "--chat-template family uses the template of the model's family instead"});
  }

  // Without the beginning-of-text token, which goes into the template as an id, unless every turn begins with
  // it.
  std::string rendered(const std::vector<Message>& messages) {
    Json values = {{"messages", Json::array()}, {"add_generation_prompt", true}, {"tools", nullptr}};
    for (const Message& message : messages)
      values["messages"].push_back({{"role", message.role}, {"content", message.text}});
    values["bos_token"] = chat_.bos_token;
    values["eos_token"] = chat_.eos_token;
    std::string out;
    try {
      out = package::render_jinja(chat_.text, values);
    } catch (const Error& error) {
      refuse(error.problems().front().message);
    }
    const std::string& bos = chat_.bos_token;
    begins_with_bos_ = !bos.empty() && out.starts_with(bos) &&
                       (messages.size() < 3 ? once_ : out.find(bos, 1) == std::string::npos);
    if (messages.size() >= 3) once_ = begins_with_bos_;
    if (begins_with_bos_) out.erase(0, bos.size());
    return out;
  }

  // What stands before, between and behind the messages.
  std::vector<std::string> parts(const std::vector<Message>& messages, std::vector<std::string_view> texts) {
    std::string left = rendered(messages);
    std::vector<std::string> out;
    for (const std::string_view text : texts) {
      const size_t at = left.find(text);
      if (at == std::string::npos) refuse("it leaves out or changes a message");
      out.push_back(left.substr(0, at));
      left.erase(0, at + text.size());
      if (left.find(text) != std::string::npos) refuse("it repeats a message");
    }
    out.push_back(left);
    return out;
  }

  // The token that ends a turn, where a text begins with one, spaces around it included.
  std::string terminator_of(std::string_view text) {
    size_t at = 0;
    while (at < text.size() && is_space(text[at])) ++at;
    std::string_view found;
    for (const std::string& token : chat_.special_tokens) {
      if (text.substr(at).starts_with(token) && token.size() > found.size()) found = token;
    }
    if (found.empty()) return "";
    size_t end = at + found.size();
    while (end < text.size() && is_space(text[end])) ++end;
    terminator_ = found;
    return std::string(text.substr(0, end));
  }

  void take_turns(const std::string& before_user, const std::vector<std::string>& two) {
    // two[2] is the end of a reply, then the header of the user's turn.
    after_reply_ = terminator_of(two[2]);
    user_header_ = two[2].substr(after_reply_.size());
    if (!before_user.ends_with(user_header_) || user_header_.empty()) {
      user_header_ = common_suffix(before_user, two[2]);
      after_reply_ = two[2].substr(0, two[2].size() - user_header_.size());
    }
    const std::string reply_terminator = terminator_;
    // two[1] is the end of a user's message, then the header of a reply; two[3] ends where a reply is asked
    // for.
    after_user_ = terminator_of(two[1]);
    if (terminator_ != reply_terminator || !two[3].starts_with(after_user_)) after_user_.clear();
    terminator_ = reply_terminator;
    const std::string reply_header = two[1].substr(after_user_.size());
    const std::string open_header = two[3].substr(after_user_.size());
    content_separator_ = common_suffix(user_header_, reply_header);
    while (!content_separator_.empty() &&
           std::isalnum(static_cast<unsigned char>(content_separator_[0])) != 0)
      content_separator_.erase(0, 1);
    const auto without_separator = [&](const std::string& header) {
      return header.substr(0, header.size() - content_separator_.size());
    };
    user_ = without_separator(user_header_);
    assistant_ = without_separator(reply_header);
    if (!open_header.starts_with(assistant_)) refuse("an empty reply begins in another way than a whole one");
    empty_separator_ = open_header.substr(assistant_.size());
  }

  void take_system(const std::string& before_user) {
    const std::string fixed = before_user.substr(0, before_user.size() - user_header_.size());
    std::vector<std::string> with;
    try {
      with = parts({{"system", kSystem}, {"user", kUser1}}, {kSystem, kUser1});
    } catch (const Error&) {
      system_template_ = fixed;
      notes_.push_back("the chat template takes no system message");
      return;
    }
    role_after_system_ = with[1].ends_with(user_header_);
    if (role_after_system_) with[1].erase(with[1].size() - user_header_.size());
    system_template_ = with[0] + "{system_message}" + with[1];
    if (fixed.empty()) return;
    const bool has_default = role_after_system_ && fixed.size() > with[0].size() + with[1].size() &&
                             fixed.starts_with(with[0]) && fixed.ends_with(with[1]);
    if (!has_default)
      refuse("a conversation without a system message begins in another way than one with it");
    system_message_ = fixed.substr(with[0].size(), fixed.size() - with[0].size() - with[1].size());
  }

  // By the rules of MLC's templates.
  std::string composed(const std::vector<Message>& messages) const {
    std::string message = system_message_, out;
    if (messages.front().role == "system") message = messages.front().text;
    const size_t at = system_template_.find("{system_message}");
    if (at == std::string::npos) {
      out = system_template_;
    } else if (!message.empty()) {
      out = system_template_;
      out.replace(at, 16, message);
    }
    bool role = role_after_system_ || out.empty();
    for (const Message& entry : messages) {
      if (entry.role == "system") continue;
      const bool user = entry.role == "user";
      if (role) out += (user ? user_ : assistant_) + content_separator_;
      role = true;
      out += std::string(entry.text) + (user ? after_user_ : after_reply_);
    }
    return out + assistant_ + empty_separator_;
  }

  void check() {
    const std::vector<Message> turns{
        {"user", kUser1}, {"assistant", kReply}, {"user", kUser2}, {"assistant", kSystem}, {"user", kUser1}};
    std::vector<Message> with_system{{"system", kSystem}};
    with_system.insert(with_system.end(), turns.begin(), turns.begin() + 3);
    if (composed(turns) != rendered(turns)) refuse("a long conversation comes out in another way");
    const bool takes_system = system_template_.find("{system_message}") != std::string::npos;
    if (takes_system && composed(with_system) != rendered(with_system))
      refuse("a conversation with a system message comes out in another way");
    const std::vector<Message> spaces{{"user", "  x\n"}};
    if (composed(spaces) != rendered(spaces))
      notes_.push_back("the chat template removes spaces around messages; the package's does not");
    rendered({{"user", kUser1}});  // sets begins_with_bos_ for a plain conversation
  }

  std::string family_name() const {
    const auto has = [&](std::string_view text) { return user_.find(text) != std::string::npos; };
    if (has("<|im_start|>")) return "chatml";
    if (has("<|start_header_id|>")) return "llama-3";
    if (has("<start_of_turn>")) return "gemma3_instruction";
    if (has("<|turn>")) return "gemma4_instruction";
    if (has("[INST")) return "llama-2";
    return "custom";
  }

  Json result() const {
    Json out = Json::object();
    out["name"] = family_name();
    out["system_template"] = system_template_;
    out["system_message"] = system_message_;
    out["system_prefix_token_ids"] = Json::array();
    if (begins_with_bos_ && chat_.bos_id) out["system_prefix_token_ids"].push_back(*chat_.bos_id);
    out["add_role_after_system_message"] = role_after_system_;
    out["roles"] = {{"user", user_}, {"assistant", assistant_}};
    out["role_templates"] = {
        {"user", "{user_message}"}, {"assistant", "{assistant_message}"}, {"tool", "{tool_message}"}};
    out["messages"] = Json::array();
    out["seps"] = Json::array({after_user_, after_reply_});
    out["role_content_sep"] = content_separator_;
    out["role_empty_sep"] = empty_separator_;
    out["stop_str"] = Json::array();
    if (!terminator_.empty()) out["stop_str"].push_back(terminator_);
    out["stop_token_ids"] = Json::array();
    out["strip_reasoning_in_history"] = false;
    out["function_string"] = "";
    out["use_function_calling"] = false;
    return out;
  }

  const ChatTemplate& chat_;
  const std::string& source_;
  std::vector<std::string>& notes_;
  bool begins_with_bos_ = false;
  bool once_ = false;  // the token stands before the first turn alone; told by a conversation of several
  bool role_after_system_ = true;
  std::string user_header_, after_user_, after_reply_, user_, assistant_, content_separator_,
      empty_separator_;
  std::string system_template_, system_message_, terminator_;
};

}  // namespace

Json conversation_template(const ChatTemplate& chat, const std::string& source,
                           std::vector<std::string>& notes) {
  return Deriver(chat, source, notes).derive();
}

}  // namespace dovetail::convert
