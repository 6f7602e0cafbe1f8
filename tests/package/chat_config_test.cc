#include "package/chat_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "../temp_dir.h"
#include "base/error.h"

namespace dovetail::package {
namespace {
namespace fs = std::filesystem;
using dovetail::testing::read_text;

const fs::path kPackages = fs::path(DOVETAIL_TEST_DATA) / "mlc-packages";

TEST(ChatConfig, WritesBackWhatMlcWrote) {
  for (const char* package : {"gemma3_tiny/q0f32", "llava_tiny/q0f32", "llava_tiny/q4f16_1"}) {
    const std::string text = read_text(kPackages / package / kChatConfigFile);
    EXPECT_EQ(chat_config_text(parse_chat_config(text)), text) << package;
  }
  // This one has a list of one eos id, which is written as the id alone.
  std::string text = read_text(kPackages / "llama_tiny/q4f16_1" / kChatConfigFile);
  const std::string list = "\"eos_token_id\": [\n    2\n  ]";
  text.replace(text.find(list), list.size(), "\"eos_token_id\": 2");
  EXPECT_EQ(chat_config_text(read_chat_config(kPackages / "llama_tiny/q4f16_1")), text);
}

TEST(ChatConfig, ReadsValues) {
  const ChatConfig config = read_chat_config(kPackages / "llama_tiny/q4f16_1");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.active_vocab_size, 314);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(config.tokenizer_info->token_postproc_method, "byte_level");
  EXPECT_EQ(config.conv_template.role("user"), "<|start_header_id|>user");
  EXPECT_EQ(config.conv_template.role_template("assistant"), "{assistant_message}");
  EXPECT_EQ(config.conv_template.stop_token_ids, (std::vector<int64_t>{128001, 128009}));
  EXPECT_THROW(config.conv_template.role("nobody"), Error);
}

TEST(ChatConfig, OptionalMembersHaveDefaults) {
  Json document = parse_json(read_text(kPackages / "llama_tiny/q4f16_1" / kChatConfigFile), "test");
  for (const char* name : {"version", "active_vocab_size", "temperature", "top_p", "tokenizer_info",
                           "eos_token_id", "model_task", "attention_sink_size", "embedding_metadata"}) {
    document.erase(name);
  }
  document["something_new"] = 1;
  ChatConfig config = parse_chat_config(document.dump());
  EXPECT_EQ(config.active_vocab_size, 320);
  EXPECT_EQ(config.temperature, 1.0);
  EXPECT_FALSE(config.tokenizer_info.has_value());
  // Sampling from nothing is the most likely token alone.
  document["top_p"] = 0;
  config = parse_chat_config(document.dump());
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.top_p, 1);
}

TEST(ChatConfig, RefusesBadMembers) {
  struct Case {
    std::function<void(Json&)> change;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](Json& d) { d.erase("conv_template"); }, "conv_template: is missing"},
      {[](Json& d) { d["conv_template"] = "llama-3"; }, "only the name of a template"},
      {[](Json& d) { d["conv_template"]["roles"].erase("user"); }, "conv_template.roles.user: is missing"},
      {[](Json& d) { d["conv_template"]["roles"]["user"] = 1; }, "conv_template.roles.user: wrong type"},
      {[](Json& d) { d["conv_template"]["seps"] = Json::array(); }, "expected 1 or 2, got 0"},
      {[](Json& d) {
         d["conv_template"]["stop_token_ids"] = {1, -1};
       },
       "stop_token_ids[1]: out of range"},
      {[](Json& d) { d["conv_template"]["stop_str"] = "x"; }, "expected an array, got a string"},
      {[](Json& d) { d["vocab_size"] = 0; }, "vocab_size: out of range"},
      {[](Json& d) { d["vocab_size"] = 1e9; }, "vocab_size: out of range"},
      {[](Json& d) { d["active_vocab_size"] = 321; }, "expected at most 320, got 321"},
      {[](Json& d) { d["temperature"] = -0.5; }, "temperature: out of range"},
      {[](Json& d) { d["top_p"] = 1.5; }, "top_p: out of range"},
      {[](Json& d) { d["tokenizer_files"] = {"../tokenizer.json"}; }, "leaves the package"},
      {[](Json& d) { d["conv_template"]["role_templates"]["user"] = "x"; },
       "conv_template.role_templates.user: has no place for the message (expected a text with "
       "{user_message}, "
       "got \"x\")"},
      {[](Json& d) { d["conv_template"]["role_templates"]["assistant"] = ""; },
       "conv_template.role_templates.assistant: has no place for the message"},
      {[](Json& d) { d["model_config"] = Json::array(); }, "model_config: wrong type"},
      {[](Json& d) { d["prefill_chunk_size"] = -1; }, "prefill_chunk_size: out of range"},
      {[](Json& d) { d["eos_token_id"] = "2"; }, "eos_token_id: wrong type"},
      {[](Json& d) { d = Json::array(); }, "expected an object"},
  };
  const Json good = parse_json(read_text(kPackages / "llama_tiny/q4f16_1" / kChatConfigFile), "test");
  for (const Case& item : cases) {
    Json bad = good;
    item.change(bad);
    try {
      parse_chat_config(bad.dump());
      ADD_FAILURE() << "accepted; expected: " << item.message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(item.message), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace dovetail::package
