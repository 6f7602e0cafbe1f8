// The chat template of a Llama 3.1 GGUF file: Llama 3's turns, and a system segment that also stands where no
// system message is given, which MLC's form can't express.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint_folder_fixture.h"
#include "convert/chat_template.h"
#include "convert/source.h"
#include "engine/prompt.h"
#include "gguf_writer.h"
#include "package/chat_config.h"

namespace dovetail::convert {
namespace {

// In the manner of Llama 3.1.
constexpr const char* kTemplate = R"({{- bos_token }}
{%- if not today is defined %}{%- set today = "1 May 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
  {%- set own = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set own = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Tools are there.\n" }}{%- endif %}
{{- "Today: " + today + "\n\n" + own + "<|eot_id|>" }}
{%- for message in messages %}
  {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %})";

// llama_tiny with the tokens of Llama 3 behind its own.
fs::path write_folder(const fs::path& folder) {
  copy_folder(kLlama, folder);
  Json tokenizer = read_json(folder / "tokenizer.json"), config = read_json(folder / "config.json");
  int64_t id = static_cast<int64_t>(tokenizer["model"]["vocab"].size());
  for (const char* text : {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
    tokenizer["model"]["vocab"][text] = id;
    Json added = tokenizer["added_tokens"][0];
    added["id"] = id++;
    added["content"] = text;
    tokenizer["added_tokens"].push_back(added);
  }
  config["bos_token_id"] = id - 4;
  config["eos_token_id"] = id - 1;
  write_text(folder / "tokenizer.json", tokenizer.dump());
  write_text(folder / "config.json", config.dump());
  return folder;
}

std::vector<int32_t> prompt_ids(const package::ConvTemplate& conv, const package::Tokenizer& tokenizer,
                                const std::vector<Message>& messages) {
  engine::Conversation conversation;
  for (const Message& message : messages) {
    const engine::Role role = message.role == "system" ? engine::Role::kSystem
                              : message.role == "user" ? engine::Role::kUser
                                                       : engine::Role::kAssistant;
    conversation.turns.push_back({.role = role, .parts = {message.content}});
  }
  return engine::build_prompt(
             conversation, conv, {}, [&](const std::string& text) { return tokenizer.encode(text); },
             [](const engine::Media&) { return 0; })
      .ids;
}

TEST(GgufTemplate, OfLlama31) {
  const TempDir dir;
  CheckpointWriter writer(write_folder(dir / "hf"), "llama");
  common(writer, "llama");
  writer.text.set("tokenizer.chat_template", kTemplate);
  writer.write_tokenizer("gpt2", "llama-bpe");
  writer.write_tensors();
  write_text(dir / "model.gguf", writer.text.text());
  const ConvertSummary summary = convert({.checkpoint = dir / "model.gguf",
                                          .output = dir / "package",
                                          .quantization = &models::find_quantization("q0f16")});
  const package::ConvTemplate conv = package::read_chat_config(dir / "package").conv_template;
  const package::Tokenizer tokenizer = package::Tokenizer::from_file(dir / "package/tokenizer.json");
  EXPECT_EQ(conv.name, "llama-3");
  EXPECT_EQ(conv.system_prefix_token_ids, std::vector<int64_t>{314});
  EXPECT_EQ(conv.system_template,
            "<|start_header_id|>system<|end_header_id|>\n\nToday: 1 May 2024\n\n{system_message}<|eot_id|>");
  EXPECT_EQ(conv.system_message, "");
  EXPECT_EQ(conv.role("user"), "<|start_header_id|>user");
  EXPECT_EQ(conv.role("assistant"), "<|start_header_id|>assistant");
  EXPECT_EQ(conv.role_content_sep, "<|end_header_id|>\n\n");
  EXPECT_EQ(conv.role_empty_sep, "<|end_header_id|>\n\n");
  EXPECT_EQ(conv.seps, std::vector<std::string>{"<|eot_id|>"});
  EXPECT_EQ(conv.stop_token_ids, std::vector<int64_t>{317});

  // With a system message the ids are the template's own.
  const ChatTemplate own = *open_source(dir / "model.gguf", {}).chat_template;
  const std::vector<Message> turns{{"user", "hello world"}, {"assistant", "the quick"}, {"user", "lazy?"}};
  std::vector<Message> with_system = turns;
  with_system.insert(with_system.begin(), {"system", "be brief"});
  EXPECT_EQ(prompt_ids(conv, tokenizer, with_system), tokenizer.encode(render(own, with_system, true)));

  // Without one they are those of Llama 3, which has no segment then …
  const ChatTemplate llama3{.source = "llama3",
                            .text = read_text(fs::path(DOVETAIL_TEST_DATA) / "chat_templates/llama3.jinja"),
                            .tokens = {{"bos_token", "<|begin_of_text|>"}}};
  EXPECT_EQ(prompt_ids(conv, tokenizer, turns), tokenizer.encode(render(llama3, turns, true)));
  EXPECT_NE(prompt_ids(conv, tokenizer, turns), tokenizer.encode(render(own, turns, true)));
  // … and the conversion says so.
  for (const char* what :
       {"one message (user)", "a longer conversation (user, assistant, user, assistant, user)"}) {
    const std::string note = std::string("the conversation template differs from model.gguf for ") + what;
    EXPECT_EQ(std::count(summary.notes.begin(), summary.notes.end(), note), 1) << note;
  }
  EXPECT_FALSE(std::any_of(summary.notes.begin(), summary.notes.end(), [](const std::string& note) {
    return note.find("a system message") != std::string::npos;
  }));
}

}  // namespace
}  // namespace dovetail::convert
