// tokenizer_config.json together with special_tokens_map.json.
#include "convert/tokenizer_config.h"

#include <gtest/gtest.h>

#include "../temp_dir.h"
#include "base/error.h"
#include "checkpoint_folder_fixture.h"
#include "convert/source.h"
#include "convert/tokenizer_files.h"
#include "package/chat_config.h"

namespace dovetail::convert {
namespace {

const fs::path kPieces = fs::path(DOVETAIL_TEST_DATA) / "sentencepiece/bpe.model";

class TokenizerConfig : public ::testing::Test {
 protected:
  void write(const char* name, const Json& document) { write_text(dir_ / name, document.dump()); }
  Json read() {
    notes_.clear();
    return read_tokenizer_config(dir_.path(), notes_);
  }
  std::string error() {
    try {
      read();
    } catch (const Error& error) {
      return std::string(error_code_name(error.code())) + ": " + error.what();
    }
    return "accepted";
  }

  TempDir dir_;
  std::vector<std::string> notes_;
};

TEST_F(TokenizerConfig, TheMapGivesWhatTheConfigurationLacks) {
  EXPECT_EQ(read(), Json::object());
  write("special_tokens_map.json", {{"bos_token", {{"content", "<s>"}, {"lstrip", false}}},
                                    {"eos_token", "</s>"},
                                    {"unk_token", "<unk>"},
                                    {"additional_special_tokens", {"<x>"}}});
  EXPECT_EQ(read(), (Json{{"bos_token", "<s>"},
                          {"eos_token", "</s>"},
                          {"unk_token", "<unk>"},
                          {"additional_special_tokens", {"<x>"}}}));
  write("tokenizer_config.json", {{"legacy", true}, {"bos_token", nullptr}, {"eos_token", "</s>"}});
  const Json both = read();
  EXPECT_EQ(both["legacy"], true);
  EXPECT_EQ(both["bos_token"], "<s>");
  EXPECT_EQ(both["eos_token"], "</s>");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(TokenizerConfig, DisagreementsAreNotedAndTheConfigurationCounts) {
  write("special_tokens_map.json",
        {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"additional_special_tokens", {"b", "a"}}});
  write("tokenizer_config.json", {{"bos_token", {{"content", "<bos>"}}},
                                  {"eos_token", "</s>"},
                                  {"additional_special_tokens", {"a", "b"}}});
  EXPECT_EQ(read()["bos_token"], "<bos>");
  EXPECT_EQ(notes_, std::vector<std::string>{
                        "special_tokens_map.json has another bos_token (\"<s>\") than tokenizer_config.json "
                        "(\"<bos>\"), which is the one that counts"});
}

TEST_F(TokenizerConfig, WrongTypesAreNamed) {
  write("special_tokens_map.json", {{"bos_token", 5}, {"additional_special_tokens", {"a", nullptr}}});
  write("tokenizer_config.json",
        {{"eos_token", {{"id", 2}}}, {"unk_token", {{"content", 7}}}, {"added_tokens_decoder", 1}});
  const std::string text = error();
  EXPECT_HAS(text, "malformed");
  EXPECT_HAS(text, "special_tokens_map.json: bos_token: wrong type (expected a text");
  EXPECT_HAS(text, "special_tokens_map.json: additional_special_tokens[1]: wrong type");
  EXPECT_HAS(text, "tokenizer_config.json: eos_token.content: is missing");
  EXPECT_HAS(text, "tokenizer_config.json: unk_token.content: wrong type (expected a text, got an integer)");
  EXPECT_HAS(text, "tokenizer_config.json: added_tokens_decoder: wrong type");
  write("special_tokens_map.json", Json::array());
  EXPECT_HAS(error(), "special_tokens_map.json: wrong type (expected an object");
}

TEST_F(TokenizerConfig, OneTextUnderTwoIdsIsRefused) {
  write("tokenizer_config.json", {{"added_tokens_decoder",
                                   {{"700", {{"content", "<x>"}}},
                                    {"701", {{"content", "<y>"}}},
                                    {"705", {{"content", "<x>"}, {"special", true}}}}}});
  EXPECT_HAS(
      error(),
      "malformed: tokenizer_config.json: added_tokens_decoder: \"<x>\" stands under two ids, 700 and 705");
}

// … also where the two ids stand in two documents.
TEST_F(TokenizerConfig, OneTextUnderTwoIdsOfTwoDocumentsIsRefused) {
  fs::copy_file(kPieces, dir_ / "tokenizer.model");
  write("tokenizer_config.json", {{"added_tokens_decoder", {{"700", {{"content", "<x>"}}}}}});
  write("added_tokens.json", {{"<x>", 701}});
  std::string message;
  try {
    read_tokenizer(dir_.path(), read(), notes_);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_HAS(message, "added_tokens.json: \"<x>\": \"<x>\" stands under two ids, 700 and 701");
}

TEST_F(TokenizerConfig, ATokenizerThatIsMadeBeginsAsTheMapSays) {
  fs::copy_file(kPieces, dir_ / "tokenizer.model");
  write("special_tokens_map.json", {{"bos_token", "</s>"}});
  EXPECT_EQ(read_tokenizer(dir_.path(), read(), notes_).tokenizer.encode("x", true).front(), 2);
}

// A template that writes the token of a folder that names it in the map alone.
TEST_F(CheckpointFolder, TheTemplateGetsTheTokensOfTheMap) {
  write_whole();
  edit_config([](Json&) {});
  write_text(hf() / "chat_template.jinja",
             "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}");
  const package::Tokenizer tokenizer = package::Tokenizer::from_file(hf() / "tokenizer.json");
  const std::string begin = tokenizer.id_to_token(0).value(), end = tokenizer.id_to_token(1).value();
  write_text(hf() / "special_tokens_map.json", Json{{"bos_token", begin}, {"eos_token", end}}.dump());
  run(hf());
  const package::ConvTemplate conv = package::read_chat_config(output()).conv_template;
  EXPECT_EQ(conv.system_prefix_token_ids, std::vector<int64_t>{0});
  EXPECT_EQ(conv.seps, std::vector<std::string>{end});
  // The contradiction is a note of the conversion.
  write_text(hf() / "tokenizer_config.json", Json{{"bos_token", end}}.dump());
  const ConvertSummary summary = run(hf());
  EXPECT_TRUE(std::any_of(summary.notes.begin(), summary.notes.end(), [](const std::string& note) {
    return note.starts_with("special_tokens_map.json has another bos_token");
  }));
  fs::remove(hf() / "special_tokens_map.json");
  fs::create_symlink("nowhere", hf() / "special_tokens_map.json");
  EXPECT_HAS(error(), "special_tokens_map.json: is a link to a file that is missing");
}

}  // namespace
}  // namespace dovetail::convert
