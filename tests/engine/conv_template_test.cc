// Every field of MLC's conversation template in the token ids of a prompt. One id per byte, so that ids can
// be written as text; system_prefix_token_ids are larger than a byte.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "engine/prompt.h"

namespace dovetail::engine {
namespace {

Json base_template() {
  return Json::parse(R"({
    "name": "test", "system_template": "[{system_message}]", "system_message": "",
    "system_prefix_token_ids": [1000], "add_role_after_system_message": true,
    "roles": {"user": "<u>", "assistant": "<a>", "tool": "<t>"},
    "role_templates": {"user": "{user_message}", "assistant": "{assistant_message}", "tool": "{tool_message}"},
    "messages": [], "seps": ["|"], "role_content_sep": ":", "role_empty_sep": ";",
    "stop_str": ["STOP"], "stop_token_ids": [7], "function_string": "", "use_function_calling": false})");
}

package::ConvTemplate parsed(const Json& value) {
  package::ProblemList problems;
  package::ConvTemplate result = package::read_conv_template(value, "chat.json", "conv_template", problems);
  problems.throw_if_any(ErrorCode::kMalformed);
  return result;
}

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<int32_t> after_prefix(const std::string& text) {
  std::vector<int32_t> ids = bytes(text);
  ids.insert(ids.begin(), 1000);
  return ids;
}

Turn turn(Role role, const std::string& text) { return {.role = role, .parts = {text}}; }

std::vector<int32_t> ids_of(const Json& conv_template, const Conversation& conversation) {
  return build_prompt(conversation, parsed(conv_template), {}, bytes, [](const Media&) { return 0; }).ids;
}

Conversation hello(std::optional<std::string> system = {}) {
  return {.system = std::move(system), .turns = {turn(Role::kUser, "hi")}};
}

Conversation two_rounds() {
  return {.turns = {turn(Role::kUser, "hi"), turn(Role::kAssistant, "yo"), turn(Role::kUser, "ok")}};
}

std::vector<int32_t> with(const char* key, Json value, const Conversation& conversation = two_rounds()) {
  Json changed = base_template();
  changed[key] = std::move(value);
  return ids_of(changed, conversation);
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ConvTemplate, PlainConversation) {
  EXPECT_EQ(ids_of(base_template(), two_rounds()), after_prefix("<u>:hi|<a>:yo|<u>:ok|<a>;"));
}

TEST(ConvTemplate, SystemPrefixTokenIds) {
  EXPECT_EQ(with("system_prefix_token_ids", Json::array()), bytes("<u>:hi|<a>:yo|<u>:ok|<a>;"));
  std::vector<int32_t> expected = bytes("<u>:hi|<a>;");
  expected.insert(expected.begin(), {1000, 1001});
  EXPECT_EQ(with("system_prefix_token_ids", {1000, 1001}, hello()), expected);
  // Null, as in old packages, is none.
  EXPECT_EQ(with("system_prefix_token_ids", nullptr, hello()), bytes("<u>:hi|<a>;"));
}

TEST(ConvTemplate, SystemTemplateAndMessage) {
  EXPECT_EQ(ids_of(base_template(), hello("be nice")), after_prefix("[be nice]<u>:hi|<a>;"));
  EXPECT_EQ(with("system_message", "own", hello()), after_prefix("[own]<u>:hi|<a>;"));
  EXPECT_EQ(with("system_message", "own", hello("other")), after_prefix("[other]<u>:hi|<a>;"));
  EXPECT_EQ(with("system_message", "own", hello("")), after_prefix("<u>:hi|<a>;"));
  EXPECT_EQ(with("system_template", "{system_message}={system_message};", hello("x")),
            after_prefix("x=x;<u>:hi|<a>;"));
  EXPECT_EQ(with("system_template", "fixed", hello()), after_prefix("fixed<u>:hi|<a>;"));
  EXPECT_EQ(with("system_template", "fixed", hello("")), after_prefix("fixed<u>:hi|<a>;"));
  EXPECT_NE(
      refusal([] { with("system_template", "fixed", hello("lost")); }).find("no place for a system message"),
      std::string::npos);
}

TEST(ConvTemplate, AddRoleAfterSystemMessage) {
  EXPECT_EQ(with("add_role_after_system_message", false, hello("s")), after_prefix("[s]hi|<a>;"));
  // Without a system message the first turn has its role, and so have all others.
  EXPECT_EQ(with("add_role_after_system_message", false), after_prefix("<u>:hi|<a>:yo|<u>:ok|<a>;"));
  Conversation conversation = two_rounds();
  conversation.system = "s";
  EXPECT_EQ(with("add_role_after_system_message", false, conversation),
            after_prefix("[s]hi|<a>:yo|<u>:ok|<a>;"));
}

TEST(ConvTemplate, RolesAndTheirTemplates) {
  EXPECT_EQ(with("roles", {{"user", "U"}, {"assistant", "A"}}), after_prefix("U:hi|A:yo|U:ok|A;"));
  EXPECT_EQ(with("role_templates", {{"user", "({user_message})"}, {"assistant", "{assistant_message}!"}}),
            after_prefix("<u>:(hi)|<a>:yo!|<u>:(ok)|<a>;"));
  EXPECT_EQ(with("role_templates", Json::object(), hello()), after_prefix("<u>:hi|<a>;"));
  // Every place of the message is filled; text of the user that looks like a placeholder stays text.
  EXPECT_EQ(with("role_templates", {{"user", "{user_message}/{user_message}"}}, hello()),
            after_prefix("<u>:hi/hi|<a>;"));
  EXPECT_EQ(ids_of(base_template(), {.turns = {turn(Role::kUser, "{user_message}{function_string}")}}),
            after_prefix("<u>:{user_message}{function_string}|<a>;"));
}

TEST(ConvTemplate, Separators) {
  EXPECT_EQ(with("seps", {"|", "</s>"}), after_prefix("<u>:hi|<a>:yo</s><u>:ok|<a>;"));
  EXPECT_EQ(with("role_content_sep", "\n"), after_prefix("<u>\nhi|<a>\nyo|<u>\nok|<a>;"));
  EXPECT_EQ(with("role_empty_sep", "\n"), after_prefix("<u>:hi|<a>:yo|<u>:ok|<a>\n"));
  EXPECT_NE(refusal([] { with("seps", Json::array()); }).find("seps"), std::string::npos);
  EXPECT_NE(refusal([] { with("seps", {"a", "b", "c"}); }).find("seps"), std::string::npos);
}

TEST(ConvTemplate, FirstMessages) {
  const Json messages = Json::parse(R"([["user", "1"], ["assistant", "2"]])");
  EXPECT_EQ(with("messages", messages, hello()), after_prefix("<u>:1|<a>:2|<u>:hi|<a>;"));
  for (const char* wrong : {R"([["user"]])", R"([["tool", "x"]])", R"(["user"])", R"([["user", null]])"}) {
    EXPECT_NE(refusal([&] { with("messages", Json::parse(wrong), hello()); }).find("messages[0]"),
              std::string::npos)
        << wrong;
  }
}

TEST(ConvTemplate, FunctionTextIsTheTemplatesOwn) {
  Json value = base_template();
  value["role_templates"]["user"] = "{user_message}{function_string}";
  value["system_template"] = "[{system_message}{function_string}]";
  value["function_string"] = "F";
  EXPECT_EQ(ids_of(value, hello("s")), after_prefix("[s]<u>:hi|<a>;"));
  value["use_function_calling"] = true;
  EXPECT_EQ(ids_of(value, hello("s")), after_prefix("[sF]<u>:hiF|<a>;"));
  value["function_string"] = "{function_string}";
  EXPECT_EQ(ids_of(value, hello()), after_prefix("<u>:hi{function_string}|<a>;"));
}

TEST(ConvTemplate, ReasoningInHistory) {
  Conversation conversation = two_rounds();
  conversation.turns[1] = turn(Role::kAssistant, "<think>so</think>\n\nyo");
  EXPECT_EQ(ids_of(base_template(), conversation),
            after_prefix("<u>:hi|<a>:<think>so</think>\n\nyo|<u>:ok|<a>;"));
  EXPECT_EQ(with("strip_reasoning_in_history", true, conversation),
            after_prefix("<u>:hi|<a>:yo|<u>:ok|<a>;"));
  EXPECT_EQ(with("strip_reasoning_in_history", true), after_prefix("<u>:hi|<a>:yo|<u>:ok|<a>;"));
}

TEST(ConvTemplate, StopStringsAndIdsAreKept) {
  const package::ConvTemplate read = parsed(base_template());
  EXPECT_EQ(read.stop_str, std::vector<std::string>{"STOP"});
  EXPECT_EQ(read.stop_token_ids, std::vector<int64_t>{7});
}

TEST(ConvTemplate, TheBeginningIsNeverDoubled) {
  // A template that spells the beginning-of-text token and a package that lists it.
  const Encode encode = [](const std::string& text) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 5, "<bos>") == 0) {
        ids.push_back(1000);
        i += 4;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return ids;
  };
  const auto build = [&](const Json& value) {
    return build_prompt(hello(), parsed(value), {}, encode, [](const Media&) { return 0; }).ids;
  };
  Json value = base_template();
  value["roles"]["user"] = "<bos><u>";
  EXPECT_EQ(build(value), after_prefix("<u>:hi|<a>;"));
  value["system_prefix_token_ids"] = Json::array();
  EXPECT_EQ(build(value), after_prefix("<u>:hi|<a>;"));
  value["roles"]["user"] = "<u>";
  value["system_prefix_token_ids"] = {1000};
  EXPECT_EQ(build(value), after_prefix("<u>:hi|<a>;"));
}

TEST(ConvTemplate, UnusualConversations) {
  using enum Role;
  const Json value = base_template();
  const auto build = [&](std::vector<Turn> turns, std::optional<std::string> system = {}) {
    return ids_of(value, {.system = std::move(system), .turns = std::move(turns)});
  };
  // Two system messages: one, with a blank line between.
  EXPECT_EQ(build({turn(kSystem, "a"), turn(kSystem, "b"), turn(kUser, "hi")}),
            after_prefix("[a\n\nb]<u>:hi|<a>;"));
  EXPECT_EQ(build({turn(kSystem, "b"), turn(kUser, "hi")}, "a"), after_prefix("[a\n\nb]<u>:hi|<a>;"));
  EXPECT_EQ(build({turn(kSystem, ""), turn(kSystem, "b"), turn(kUser, "hi")}),
            after_prefix("[b]<u>:hi|<a>;"));
  // Two turns of one role stay two turns; an empty message is an empty turn.
  EXPECT_EQ(build({turn(kUser, "a"), turn(kUser, "b")}), after_prefix("<u>:a|<u>:b|<a>;"));
  EXPECT_EQ(build({turn(kUser, "")}), after_prefix("<u>:|<a>;"));
  EXPECT_EQ(build({{.role = kUser}}), after_prefix("<u>:|<a>;"));
  // What has no place is refused with the reason.
  EXPECT_NE(refusal([&] { build({turn(kSystem, "a")}); }).find("must end with a message of the user"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              build({turn(kUser, "a"), turn(kSystem, "b"), turn(kUser, "c")});
            }).find("must stand before all other messages"),
            std::string::npos);
  EXPECT_NE(refusal([&] { build({}, "a"); }), "");
}

}  // namespace
}  // namespace dovetail::engine
