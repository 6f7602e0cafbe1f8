// Chat templates against what Hugging Face transformers makes of them (tests/data/chat_templates,
// goldens.json).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "../temp_dir.h"
#include "base/error.h"
#include "convert/chat_template.h"
#include "convert/tokenizer_config.h"
#include "engine/prompt.h"
#include "models/plan.h"

namespace dovetail::convert {
namespace {

namespace fs = std::filesystem;
using namespace dovetail::testing;

const fs::path kData = fs::path(DOVETAIL_TEST_DATA) / "chat_templates";
const fs::path kExamples = fs::path(DOVETAIL_TEST_DATA) / "../../examples";

std::vector<Message> messages_of(const Json& conversation) {
  std::vector<Message> out;
  for (const Json& message : conversation["messages"]) out.push_back({message[0], message[1]});
  return out;
}

engine::Conversation engine_conversation(const std::vector<Message>& messages) {
  engine::Conversation out;
  for (const Message& message : messages) {
    const engine::Role role = message.role == "system" ? engine::Role::kSystem
                              : message.role == "user" ? engine::Role::kUser
                                                       : engine::Role::kAssistant;
    out.turns.push_back({.role = role, .parts = {message.content}});
  }
  return out;
}

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

package::ConvTemplate family_template(const fs::path& checkpoint) {
  const models::ModelPlan plan =
      models::plan_model(read_json(checkpoint / "config.json"), models::find_quantization("q0f16"), "config");
  package::ProblemList problems;
  return package::read_conv_template(plan.conv_template, "plan", "conv_template", problems);
}

std::set<std::string> named(const Json& names) {
  std::set<std::string> out;
  for (const Json& name : names) out.insert(name.get<std::string>());
  return out;
}

// Of every family the conversations that MLC's form can't express, or that the template refuses (null in the
// goldens): docs/conversation-templates.md.
const Json kDifferences = Json::parse(R"({
  "gemma4-tiny-speech": ["empty system", "two systems", "blanks around"],
  "gemma3-tiny-shapes": ["empty system", "two systems", "blanks around"],
  "llava-tiny-shapes": ["empty system", "two systems"],
  "chatml": ["empty system", "two systems"],
  "gemma3": ["empty system", "two systems", "two users", "blanks around"],
  "llama2": ["empty system", "two systems", "two users", "blanks around"],
  "llama3": ["empty system", "two systems", "blanks around"],
  "vicuna": ["empty system", "two systems"]
})");

std::optional<ChatTemplate> find_template(const fs::path& checkpoint, std::vector<std::string>& notes) {
  return find_chat_template(checkpoint, read_tokenizer_config(checkpoint, notes), notes);
}

class Ids : public ::testing::TestWithParam<const char*> {};

TEST_P(Ids, AreThoseOfTheCheckpointsOwnTemplate) {
  const fs::path checkpoint = kExamples / GetParam();
  const package::Tokenizer tokenizer = package::Tokenizer::from_file(checkpoint / "tokenizer.json");
  std::vector<std::string> notes;
  const std::optional<ChatTemplate> found = find_template(checkpoint, notes);
  ASSERT_TRUE(found.has_value());
  package::ConvTemplate conv = family_template(checkpoint);
  ASSERT_EQ(derive_conv_template(*found, tokenizer, conv, notes), "");
  const Json goldens = read_json(kData / "goldens.json")["ids"][GetParam()];
  const Json conversations = read_json(kData / "conversations.json");
  ASSERT_EQ(conversations.size(), 20u);
  const int32_t bos = static_cast<int32_t>(conv.system_prefix_token_ids.at(0));
  std::set<std::string> differ;
  for (const Json& one : conversations) {
    const std::string name = one["name"];
    const engine::Prompt prompt = engine::build_prompt(
        engine_conversation(messages_of(one)), conv, {},
        [&](const std::string& text) { return tokenizer.encode(text); },
        [](const engine::Media&) { return 0; });
    EXPECT_EQ(std::count(prompt.ids.begin(), prompt.ids.end(), bos), 1) << name;
    EXPECT_EQ(prompt.ids.front(), bos) << name;
    if (prompt.ids == goldens[name].get<std::vector<int32_t>>()) continue;
    differ.insert(name);
    if (!named(kDifferences[GetParam()]).contains(name))
      ADD_FAILURE() << name << "\n"
                    << tokenizer.decode(prompt.ids, false) << "\ninstead of\n"
                    << tokenizer.decode(goldens[name].get<std::vector<int32_t>>(), false);
  }
  EXPECT_EQ(differ, named(kDifferences[GetParam()]));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Ids,
                         ::testing::Values("gemma4-tiny-speech", "gemma3-tiny-shapes", "llava-tiny-shapes"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

ChatTemplate family(const std::string& name) {
  return {.source = name,
          .text = read_text(kData / (name + ".jinja")),
          .tokens = {{"bos_token", "<bos>"}, {"eos_token", "</s>"}}};
}

// The tokenizer of this checkpoint has a token <bos>.
package::Tokenizer any_tokenizer() {
  return package::Tokenizer::from_file(kExamples / "gemma4-tiny-speech/tokenizer.json");
}

package::ConvTemplate derived(const ChatTemplate& chat_template, std::vector<std::string>& notes) {
  package::ConvTemplate conv = family_template(kExamples / "gemma4-tiny-speech");
  EXPECT_EQ(derive_conv_template(chat_template, any_tokenizer(), conv, notes), "");
  return conv;
}

class Texts : public ::testing::TestWithParam<const char*> {};

TEST_P(Texts, AreThoseOfTheTemplate) {
  std::vector<std::string> notes;
  const package::ConvTemplate conv = derived(family(GetParam()), notes);
  const Json goldens = read_json(kData / "goldens.json")["texts"][GetParam()];
  std::set<std::string> differ;
  for (const Json& one : read_json(kData / "conversations.json")) {
    const std::string name = one["name"];
    const engine::Prompt prompt = engine::build_prompt(engine_conversation(messages_of(one)), conv, {}, bytes,
                                                       [](const engine::Media&) { return 0; });
    std::string text;
    for (const int32_t id : prompt.ids) {
      if (id == 2 && text.empty()) {
        text = "<s>";
      } else {
        text += static_cast<char>(id);
      }
    }
    for (size_t at = 0; (at = text.find("<bos>", at)) != std::string::npos;) text.replace(at, 5, "<s>");
    if (goldens[name].is_string() && goldens[name] == text) continue;
    // A template without the beginning-of-text token leaves it to the tokenizer.
    if (goldens[name].is_string() && "<s>" + goldens[name].get<std::string>() == text) continue;
    differ.insert(name);
    if (!named(kDifferences[GetParam()]).contains(name))
      ADD_FAILURE() << name << "\n" << text << "\ninstead of\n" << goldens[name];
  }
  EXPECT_EQ(differ, named(kDifferences[GetParam()]));
}

INSTANTIATE_TEST_SUITE_P(Families, Texts,
                         ::testing::Values("chatml", "gemma3", "llama2", "llama3", "vicuna"));

TEST(ChatTemplate, IsWrittenInMlcsWords) {
  std::vector<std::string> notes;
  const package::ConvTemplate llama3 = derived(family("llama3"), notes);
  EXPECT_EQ(llama3.system_prefix_token_ids, std::vector<int64_t>{2});
  EXPECT_EQ(llama3.system_template,
            "<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>");
  EXPECT_EQ(llama3.role("user"), "<|start_header_id|>user");
  EXPECT_EQ(llama3.role("assistant"), "<|start_header_id|>assistant");
  EXPECT_EQ(llama3.role_content_sep, "<|end_header_id|>\n\n");
  EXPECT_EQ(llama3.role_empty_sep, "<|end_header_id|>\n\n");
  EXPECT_EQ(llama3.seps, std::vector<std::string>{"<|eot_id|>"});
  EXPECT_EQ(llama3.stop_str, std::vector<std::string>{"<|eot_id|>"});

  const package::ConvTemplate vicuna = derived(family("vicuna"), notes);
  EXPECT_EQ(vicuna.role("user"), "USER:");
  EXPECT_EQ(vicuna.role("assistant"), "ASSISTANT:");
  EXPECT_EQ(vicuna.role_content_sep, " ");
  EXPECT_EQ(vicuna.role_empty_sep, "");
  EXPECT_EQ(vicuna.seps, (std::vector<std::string>{" ", "</s>"}));
  EXPECT_EQ(vicuna.system_message, "A chat between a user and an assistant.");

  const package::ConvTemplate gemma = derived(family("gemma3"), notes);
  EXPECT_FALSE(gemma.add_role_after_system_message);
  EXPECT_EQ(gemma.system_template, "<start_of_turn>user\n{system_message}\n\n");

  const package::ConvTemplate chatml = derived(family("chatml"), notes);
  EXPECT_EQ(chatml.system_message, "You are a helpful assistant.");
  EXPECT_EQ(chatml.system_template, "<|im_start|>system\n{system_message}<|im_end|>\n");
}

TEST(ChatTemplate, DifferencesAreNoted) {
  std::vector<std::string> notes;
  derived(family("gemma3"), notes);
  const auto has = [&](const std::string& part) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& note) { return note.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(has("blanks around a message"));
  EXPECT_TRUE(has("roles must alternate"));
  EXPECT_FALSE(has("a longer conversation"));
}

TEST(ChatTemplate, WhatCannotBeTakenApartKeepsTheFamilysTemplate) {
  const package::ConvTemplate before = family_template(kExamples / "gemma4-tiny-speech");
  for (const char* text :
       {"{% if", "always the same", "{{ messages[0]['content'] }}{{ messages[0]['content'] }}",
        "{{ raise_exception('no') }}", "{% for m in messages %}{{ loop.index }}{% endfor %}"}) {
    std::vector<std::string> notes;
    package::ConvTemplate after = before;
    EXPECT_NE(
        derive_conv_template({.source = "chat_template.jinja", .text = text}, any_tokenizer(), after, notes),
        "")
        << text;
    EXPECT_EQ(after.roles, before.roles) << text;
    EXPECT_EQ(after.seps, before.seps) << text;
    EXPECT_TRUE(notes.empty()) << text;
  }
}

TEST(ChatTemplate, TheFileComesBeforeTheTokenizersConfiguration) {
  const TempDir dir;
  std::vector<std::string> notes;
  EXPECT_FALSE(find_template(dir.path(), notes).has_value());
  write_text(
      dir.path() / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}],
                 "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  std::optional<ChatTemplate> found = find_template(dir.path(), notes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->text, "yes");
  EXPECT_EQ(found->tokens["bos_token"], "<s>");
  EXPECT_TRUE(notes.empty());
  write_text(dir.path() / "chat_template.jinja", "newer");
  found = find_template(dir.path(), notes);
  EXPECT_EQ(found->text, "newer");
  EXPECT_EQ(found->source, "chat_template.jinja");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("tokenizer_config.json"), std::string::npos);
  write_text(dir.path() / "chat_template.json", R"({"chat_template": "middle"})");
  notes.clear();
  EXPECT_EQ(find_template(dir.path(), notes)->text, "newer");
  EXPECT_EQ(notes.size(), 2u);
  std::filesystem::remove(dir.path() / "chat_template.jinja");
  found = find_template(dir.path(), notes);
  EXPECT_EQ(found->text, "middle");
  EXPECT_EQ(found->source, "chat_template.json");
  EXPECT_EQ(found->tokens["bos_token"], "<s>");
  write_text(dir.path() / "tokenizer_config.json", "[]");
  EXPECT_THROW(find_template(dir.path(), notes), Error);
}

TEST(ChatTemplate, OfAnotherTypeIsAnErrorThatNamesFileAndField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"chat_template": 5})",
       "chat_template: wrong type (expected a text, or a list of named templates, got an integer)"},
      {R"({"chat_template": {"default": "x"}})", "chat_template: wrong type"},
      {R"({"chat_template": ["x"]})", "chat_template[0]: wrong type (expected an object"},
      {R"({"chat_template": [{"name": "a", "template": "x"}, {"name": "default", "template": null}]})",
       "chat_template[1].template: wrong type (expected a text, got null)"},
      {R"({"chat_template": [{"name": "a"}]})", "chat_template[0].template: is missing (expected a text)"},
  };
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    for (const auto& [text, expected] : cases) {
      const TempDir dir;
      std::vector<std::string> notes;
      write_text(dir / file, text);
      std::string message = "accepted";
      try {
        find_template(dir.path(), notes);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_NE(message.find(std::string(file) + ": " + expected), std::string::npos) << message;
    }
  }
}

TEST(ChatTemplate, NoneOfAListForConversationsIsNoted) {
  const TempDir dir;
  std::vector<std::string> notes;
  write_text(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_FALSE(find_template(dir.path(), notes).has_value());
  EXPECT_EQ(notes, std::vector<std::string>{
                       "none of the chat templates of tokenizer_config.json is named default: rag"});
  write_text(dir / "tokenizer_config.json", R"({"chat_template": null})");
  notes.clear();
  EXPECT_FALSE(find_template(dir.path(), notes).has_value());
  EXPECT_TRUE(notes.empty());
}

}  // namespace
}  // namespace dovetail::convert
