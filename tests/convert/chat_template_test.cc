#include "convert/chat_template.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace dovetail::convert {
namespace {

Json derive(const std::string& text, std::vector<std::string> special,
            std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> ignored;
  return conversation_template({.text = text,
                                .bos_token = "<s>",
                                .eos_token = "</s>",
                                .bos_id = 1,
                                .special_tokens = std::move(special)},
                               "test.gguf", notes != nullptr ? *notes : ignored);
}

std::string refusal(const std::string& text) {
  try {
    derive(text, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "accepted";
}

TEST(ChatTemplate, ChatMlWithADefaultSystemMessage) {
  const Json out = derive(
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
      "'<|im_start|>system\n"
      "You are helpful<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + "
      "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
      "endif %}",
      {"<|im_start|>", "<|im_end|>"});
  EXPECT_EQ(out["name"], "chatml");
  EXPECT_EQ(out["system_template"], "<|im_start|>system\n{system_message}<|im_end|>\n");
  EXPECT_EQ(out["system_message"], "You are helpful");
  EXPECT_EQ(out["system_prefix_token_ids"], Json::array());
  EXPECT_EQ(out["roles"], (Json{{"user", "<|im_start|>user"}, {"assistant", "<|im_start|>assistant"}}));
  EXPECT_EQ(out["role_content_sep"], "\n");
  EXPECT_EQ(out["role_empty_sep"], "\n");
  EXPECT_EQ(out["seps"], Json({"<|im_end|>\n", "<|im_end|>\n"}));
  EXPECT_EQ(out["stop_str"], Json::array({"<|im_end|>"}));
}

TEST(ChatTemplate, Llama3) {
  std::vector<std::string> notes;
  const Json out = derive(
      "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
      "'<|start_header_id|>' + "
      "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if "
      "loop.index0 == 0 "
      "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{{ "
      "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
      {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, &notes);
  EXPECT_EQ(out["name"], "llama-3");
  EXPECT_EQ(out["system_prefix_token_ids"], Json::array({1}));
  EXPECT_EQ(out["system_template"],
            "<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>");
  EXPECT_EQ(out["roles"]["user"].get<std::string>() + out["role_content_sep"].get<std::string>(),
            "<|start_header_id|>user<|end_header_id|>\n\n");
  EXPECT_EQ(out["seps"], Json({"<|eot_id|>", "<|eot_id|>"}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("removes spaces"), std::string::npos);
}

TEST(ChatTemplate, AReplyAndASystemMessageInsideTheFirstTurn) {
  const Json out = derive(
      "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + "
      "'\n\n' %}"
      "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
      "{% for m in rest %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' }}"
      "{% if loop.first %}{{ system }}{% endif %}{{ m.content }}{{ '<end_of_turn>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
      {"<start_of_turn>", "<end_of_turn>"});
  EXPECT_EQ(out["name"], "gemma3_instruction");
  EXPECT_EQ(out["system_template"], "<start_of_turn>user\n{system_message}\n\n");
  EXPECT_EQ(out["add_role_after_system_message"], false);
  EXPECT_EQ(out["roles"]["assistant"], "<start_of_turn>model");
}

TEST(ChatTemplate, BracketsWithoutSpecialTokens) {
  std::vector<std::string> notes;
  const Json out = derive(
      "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' "
      "[/INST]' }}"
      "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token }}{% else %}{{ raise_exception('only "
      "user and "
      "assistant') }}{% endif %}{% endfor %}",
      {"<s>", "</s>"}, &notes);
  EXPECT_EQ(out["system_template"], "");
  EXPECT_EQ(out["stop_str"], Json::array({"</s>"}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("no system message"), std::string::npos);
}

TEST(ChatTemplate, RefusesWhatHasNoSuchForm) {
  EXPECT_NE(refusal("{% for m in messages %}{{ m.content | upper }}{% endfor %}").find("changes a message"),
            std::string::npos);
  EXPECT_NE(refusal("{{ messages[-1].content }}").find("leaves out"), std::string::npos);
  EXPECT_NE(refusal("{% for m in messages %}{{ loop.index }}:{{ m.content }}{% endfor %}")
                .find("can't be written as a conversation template"),
            std::string::npos);
  EXPECT_NE(refusal("{% if").find("can't be rendered"), std::string::npos);
  EXPECT_NE(refusal("{{ raise_exception('not today') }}").find("not today"), std::string::npos);
  EXPECT_NE(refusal("{{ 'x' * 1000000000000 }}").find("can't be rendered"), std::string::npos);
  EXPECT_NE(refusal("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}")
                .find("can't be rendered"),
            std::string::npos);
}

}  // namespace
}  // namespace dovetail::convert
