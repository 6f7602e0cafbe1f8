#include "convert/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "convert/pieces.h"

namespace dovetail::convert {
namespace {

// "<s>" is token 1, "</s>" token 2.
package::Tokenizer tokenizer_with(const std::vector<std::string>& special) {
  std::vector<std::string> all{"<unk>", "<s>", "</s>"};
  for (const std::string& token : special)
    if (std::find(all.begin(), all.end(), token) == all.end()) all.push_back(token);
  PieceVocabulary pieces;
  for (const std::string& token : all) pieces.add(token, kControl, false);
  Json out = {{"version", "1.0"}, {"added_tokens", pieces.added_tokens()}};
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) out[part] = nullptr;
  out["model"] = bpe_model({.unknown = "<unk>"}, pieces.ids(), Json::array());
  return package::Tokenizer::from_json(out.dump(), "test");
}

struct Derived {
  std::string reason;
  package::ConvTemplate conv;
  std::vector<std::string> notes;
};

Derived derive(const std::string& text, const std::vector<std::string>& special) {
  Derived out;
  out.conv.name = "family";
  out.reason = derive_conv_template(
      {.source = "test.gguf", .text = text, .tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
      tokenizer_with(special), out.conv, out.notes);
  return out;
}

std::string refusal(const std::string& text) {
  const Derived out = derive(text, {});
  EXPECT_EQ(out.conv.name, "family");
  EXPECT_TRUE(out.notes.empty());
  return out.reason;
}

using Ids = std::vector<int64_t>;
using Texts = std::vector<std::string>;

TEST(ChatTemplate, ChatMlWithADefaultSystemMessage) {
  const Derived out = derive(
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
      "'<|im_start|>system\n"
      "You are helpful<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + "
      "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
      "endif %}",
      {"<|im_start|>", "<|im_end|>"});
  EXPECT_EQ(out.conv.name, "chatml");
  EXPECT_EQ(out.conv.system_template, "<|im_start|>system\n{system_message}<|im_end|>\n");
  EXPECT_EQ(out.conv.system_message, "You are helpful");
  EXPECT_EQ(out.conv.system_prefix_token_ids, Ids());
  EXPECT_EQ(out.conv.role("user"), "<|im_start|>user");
  EXPECT_EQ(out.conv.role("assistant"), "<|im_start|>assistant");
  EXPECT_EQ(out.conv.role_content_sep, "\n");
  EXPECT_EQ(out.conv.role_empty_sep, "\n");
  EXPECT_EQ(out.conv.seps, Texts{"<|im_end|>\n"});
  EXPECT_EQ(out.conv.stop_str, Texts{"<|im_end|>"});
}

TEST(ChatTemplate, ATokenThatBeginsEveryTurnIsNoPrefix) {
  const Derived out = derive(
      "{{ '<s>system\nbe kind</s>\n' }}{% for m in messages %}{{ '<s>' + m.role + '\n' + m.content + "
      "'</s>\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}",
      {});
  EXPECT_EQ(out.reason, "");
  EXPECT_EQ(out.conv.system_prefix_token_ids, Ids());
  EXPECT_EQ(out.conv.role("user"), "<s>user");
  EXPECT_EQ(out.conv.seps, Texts{"</s>\n"});
}

TEST(ChatTemplate, Llama3) {
  const Derived out = derive(
      "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
      "'<|start_header_id|>' + "
      "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if "
      "loop.index0 == 0 "
      "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{{ "
      "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
      {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  EXPECT_EQ(out.conv.name, "llama-3");
  EXPECT_EQ(out.conv.system_prefix_token_ids, Ids{1});
  EXPECT_EQ(out.conv.system_template,
            "<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>");
  EXPECT_EQ(out.conv.role("user") + out.conv.role_content_sep,
            "<|start_header_id|>user<|end_header_id|>\n\n");
  EXPECT_EQ(out.conv.seps, Texts{"<|eot_id|>"});
  ASSERT_EQ(out.notes.size(), 1u);
  EXPECT_NE(out.notes[0].find("blanks around a message"), std::string::npos);
}

TEST(ChatTemplate, AReplyAndASystemMessageInsideTheFirstTurn) {
  const Derived out = derive(
      "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + "
      "'\n\n' %}"
      "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
      "{% for m in rest %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' }}"
      "{% if loop.first %}{{ system }}{% endif %}{{ m.content }}{{ '<end_of_turn>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
      {"<start_of_turn>", "<end_of_turn>"});
  EXPECT_EQ(out.conv.name, "gemma3_instruction");
  EXPECT_EQ(out.conv.system_template, "<start_of_turn>user\n{system_message}\n\n");
  EXPECT_EQ(out.conv.add_role_after_system_message, false);
  EXPECT_EQ(out.conv.role("assistant"), "<start_of_turn>model");
}

TEST(ChatTemplate, BracketsWithoutSpecialTokens) {
  const Derived out = derive(
      "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' "
      "[/INST]' }}"
      "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token }}{% else %}{{ raise_exception('only "
      "user and "
      "assistant') }}{% endif %}{% endfor %}",
      {"<s>", "</s>"});
  EXPECT_EQ(out.conv.system_template, "{system_message}");
  EXPECT_EQ(out.conv.stop_str, Texts{"</s>"});
  ASSERT_EQ(out.notes.size(), 1u);
  EXPECT_NE(out.notes[0].find("takes no system message"), std::string::npos);
}

TEST(ChatTemplate, RefusesWhatHasNoSuchForm) {
  EXPECT_NE(refusal("{% for m in messages %}{{ m.content | upper }}{% endfor %}").find("changes a message"),
            std::string::npos);
  EXPECT_NE(refusal("{{ messages[-1].content }}").find("leaves out"), std::string::npos);
  EXPECT_NE(refusal("{% for m in messages %}{{ loop.index }}:{{ m.content }}{% endfor %}")
                .find("come out in another way"),
            std::string::npos);
  EXPECT_NE(refusal("{% if").find("line 1"), std::string::npos);
  EXPECT_NE(refusal("{{ raise_exception('not today') }}").find("not today"), std::string::npos);
  EXPECT_NE(refusal("{{ 'x' * 1000000000000 }}").find("line 1"), std::string::npos);
  EXPECT_NE(
      refusal("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}").find("line 1"),
      std::string::npos);
}

}  // namespace
}  // namespace dovetail::convert
