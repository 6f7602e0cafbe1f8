// tokenizer.model as tokenizer.json: the ids are those of SentencePiece itself (tests/data/sentencepiece,
// made with make.py).
#include "convert/sentencepiece.h"

#include <gtest/gtest.h>

#include <random>

#include "../temp_dir.h"
#include "base/error.h"
#include "convert/sentencepiece_tokenizer.h"
#include "convert/tokenizer_config.h"
#include "convert/tokenizer_files.h"
#include "package/tokenizer.h"

namespace dovetail::convert {
namespace {
namespace fs = std::filesystem;
using namespace dovetail::testing;

const fs::path kData = fs::path(DOVETAIL_TEST_DATA) / "sentencepiece";

SentencePieceModel model_of(const std::string& name) {
  return parse_sentencepiece(read_text(kData / (name + ".model")), name + ".model");
}

package::Tokenizer tokenizer_of(const SentencePieceModel& model, const Json& config = Json::object(),
                                const Json& added = Json::object(),
                                std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> unused;
  return package::Tokenizer::from_json(
      sentencepiece_tokenizer_json(model, "t.model", config, added, notes != nullptr ? *notes : unused), "t");
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "accepted";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class SentencePieceIds : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePieceIds, AreThoseOfSentencePiece) {
  const package::Tokenizer tokenizer = tokenizer_of(model_of(GetParam()));
  const Json expected = read_json(kData / "expected.json");
  const Json& ids = expected["ids"][GetParam()];
  ASSERT_EQ(ids.size(), expected["texts"].size());
  ASSERT_GE(ids.size(), 40u);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto text = expected["texts"][i].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), ids[i].get<std::vector<int32_t>>()) << "\"" << text << "\"";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceIds,
                         ::testing::Values("bpe", "spaces", "unigram", "unigram_bytes"));

// Everything that a text has comes back, but for what a model's normalization takes away.
TEST(SentencePieceTokenizer, DecodesWhatItEncodes) {
  for (const char* name : {"bpe", "spaces"}) {
    const package::Tokenizer tokenizer = tokenizer_of(model_of(name));
    for (const char* text : {"hello the other way", " two\n\n lines", "ä€ 😀", "a     b"})
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
  }
}

TEST(SentencePieceTokenizer, BeginsTextsAsItsConfigurationSays) {
  const SentencePieceModel model = model_of("bpe");
  EXPECT_EQ(tokenizer_of(model).encode("x", true).front(), 1);
  EXPECT_EQ(tokenizer_of(model, {{"add_bos_token", false}}).encode("x", true),
            tokenizer_of(model).encode("x"));
  EXPECT_EQ(tokenizer_of(model, {{"bos_token", {{"content", "</s>"}}}}).encode("x", true).front(), 2);
  // Without "legacy" the text behind a special token goes on.
  const std::vector<int32_t> before = tokenizer_of(model).encode("</s>x");
  const std::vector<int32_t> after = tokenizer_of(model, {{"legacy", false}}).encode("</s>x");
  EXPECT_EQ(before[0], 2);
  EXPECT_EQ(after[0], 2);
  EXPECT_NE(before, after);
  EXPECT_EQ(tokenizer_of(model, {{"legacy", false}}).encode("a word"), tokenizer_of(model).encode("a word"));
}

TEST(SentencePieceTokenizer, TokensOfTheOtherDocumentsFollowThePieces) {
  const SentencePieceModel model = model_of("bpe");
  const auto size = static_cast<int32_t>(model.pieces.size());
  const Json config = {
      {"additional_special_tokens", {"<|im_end|>"}},
      {"eos_token", "<|end|>"},
      {"added_tokens_decoder",
       {{"1", {{"content", "<s>"}, {"special", true}}},
        {std::to_string(size), {{"content", "<|im_start|>"}, {"special", true}, {"rstrip", true}}}}}};
  const Json added = {
      {"<|im_start|>", size}, {"<|im_end|>", size + 1}, {"<think>", size + 2}, {"<|end|>", size + 3}};
  const package::Tokenizer tokenizer = tokenizer_of(model, config, added);
  EXPECT_EQ(tokenizer.vocab_size(), size + 4);
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), size + 1);
  EXPECT_TRUE(tokenizer.is_special(size));
  EXPECT_TRUE(tokenizer.is_special(size + 1));
  EXPECT_FALSE(tokenizer.is_special(size + 2));
  EXPECT_TRUE(tokenizer.is_special(size + 3));
  const std::vector<int32_t> ids = tokenizer.encode("<|im_start|>  a<think><|im_end|>");
  EXPECT_EQ(ids.front(), size);
  EXPECT_EQ(ids.back(), size + 1);
  EXPECT_EQ(ids[ids.size() - 2], size + 2);

  const auto error = [&](const Json& config, const Json& added) {
    return error_of([&] { tokenizer_of(model, config, added); });
  };
  EXPECT_HAS(error(Json::object(), {{"<far>", size + 7}}),
             "added_tokens.json: token " + std::to_string(size + 7) +
                 ": the ids of added tokens leave a hole (expected " + std::to_string(size));
  EXPECT_HAS(error(Json::object(), {{"<other>", 5}}), "the model has another piece of this id");
  EXPECT_HAS(error(Json::object(), {{"<s>", size}}), "the model has a piece of this text");
  for (const Json& id : {Json(-1), Json("7"), Json(1.5), Json(int64_t{1} << 40)})
    EXPECT_HAS(error(Json::object(), {{"<x>", id}}), "is no token");
  for (const char* key : {"", "x", "-1", "99999999999999999999"})
    EXPECT_HAS(error({{"added_tokens_decoder", {{key, {{"content", "<x>"}}}}}}, Json::object()),
               "is no token");
}

// --- hostile files ---

TEST(SentencePiece, EveryTruncationIsAnErrorOrAnotherModel) {
  const std::string file = read_text(kData / "spaces.model");
  const size_t pieces = model_of("spaces").pieces.size();
  int errors = 0;
  for (size_t size = 0; size < file.size(); ++size) {
    try {
      // Ends between two fields: a message with fewer of them.
      EXPECT_LE(parse_sentencepiece(file.substr(0, size), "t").pieces.size(), pieces);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
      ++errors;
    }
  }
  EXPECT_GT(errors, static_cast<int>(file.size() * 8 / 10));
}

TEST(SentencePiece, ChangedBytesNeverDoMoreThanFail) {
  const std::string file = read_text(kData / "unigram.model");
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string changed = file;
    for (int i = 0; i < 1 + round % 5; ++i)
      changed[random() % (round % 2 == 0 ? changed.size() : 200)] = static_cast<char>(random());
    std::vector<std::string> notes;
    try {
      tokenizer_of(parse_sentencepiece(changed, "t")).encode("some text <tool>");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 30);
  EXPECT_LT(refused, 300);
}

std::string field(int number, int wire, const std::string& value) {
  return std::string(1, static_cast<char>(number << 3 | wire)) + value;
}
std::string text_field(int number, const std::string& value) {
  return field(number, 2, std::string(1, static_cast<char>(value.size())) + value);
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  const auto error = [](const std::string& file) {
    return error_of([&] { parse_sentencepiece(file, "m"); });
  };
  EXPECT_EQ(error(text_field(1, text_field(1, "a"))), "accepted");
  const std::string ones(9, '\xff');
  const std::pair<std::string, const char*> cases[] = {
      {"", "has no pieces"},
      {"{\"a\": 1}", "unknown type (3)"},
      {text_field(1, ""), "a piece is empty"},
      {text_field(1, text_field(1, "\xff")), "not UTF-8, at byte 2"},
      {text_field(1, field(2, 5, std::string("\0\0\x80\x7f", 4))), "not finite"},
      {text_field(1, field(2, 0, "\1")), "field 2 has another type"},
      {text_field(1, field(3, 0, "\7")), "unknown type"},
      {field(1, 2, ones + "\1"), "18446744073709551615 bytes where 0 are left"},
      {field(1, 2, ones + "\2"), "more than 64 bits"},
      {field(1, 2, ones + ones), "more than 64 bits"},
      {field(1, 2, "\x7f"), "127 bytes where 0 are left"},
      {field(9, 5, "abc"), "4 bytes where 3 are left"},
      {field(9, 3, ""), "unknown type (3)"},
      {field(0, 0, "\1"), "no valid number"},
      {ones + "\1" + "\1", "no valid number"},
      {field(1, 0, "\1"), "another type"},
      {"\x80", "ends inside a number"},
  };
  for (const auto& [file, message] : cases) EXPECT_HAS(error(file), message);
}

TEST(SentencePieceTokenizer, RefusesOtherKindsByName) {
  SentencePieceModel model = model_of("bpe");
  const auto error = [&] { return error_of([&] { tokenizer_of(model); }); };
  model.model_type = 3;
  EXPECT_HAS(error(), "a word model");
  model.model_type = 4;
  EXPECT_HAS(error(), "a character model");
  model = model_of("bpe");
  model.whitespace_as_suffix = true;
  EXPECT_HAS(error(), "treat_whitespace_as_suffix");
  model = model_of("bpe");
  model.pieces[9].text = model.pieces[8].text;
  EXPECT_HAS(error(), "piece 9: repeats an earlier piece");
  model.pieces[0].type = 1;
  EXPECT_HAS(error(), "has no unknown piece");
}

// --- folders ---

class TokenizerFolder : public ::testing::Test {
 protected:
  TokenizerFiles read() {
    notes_.clear();
    const Json config = read_tokenizer_config(dir_.path(), notes_);
    return read_tokenizer(dir_.path(), config, notes_);
  }
  void copy(const char* name, const char* as) {
    fs::copy_file(kData / name, dir_ / as, fs::copy_options::overwrite_existing);
  }

  TempDir dir_;
  std::vector<std::string> notes_;
};

TEST_F(TokenizerFolder, OfAModelAloneIsConverted) {
  copy("bpe.model", "tokenizer.model");
  write_text(dir_ / "added_tokens.json", R"({"<|end|>": 700})");
  const TokenizerFiles files = read();
  ASSERT_EQ(files.files.size(), 3u);
  EXPECT_EQ(files.files[0].name, "tokenizer.model");
  EXPECT_EQ(files.files[0].copied_from, dir_ / "tokenizer.model");
  EXPECT_EQ(files.files[1].name, "tokenizer.json");
  EXPECT_EQ(files.tokenizer.vocab_size(), 701);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_HAS(notes_[0], "made from tokenizer.model, a SentencePiece model of 700 pieces (BPE)");
}

TEST_F(TokenizerFolder, FilesToBlame) {
  copy("bpe.model", "tokenizer.model");
  EXPECT_EQ(read().source, "tokenizer.model");
  write_text(dir_ / "tokenizer.json", read().files[1].text);
  EXPECT_EQ(read().source, "tokenizer.json");
  fs::remove(dir_ / "tokenizer.json");
  std::string file = read_text(dir_ / "tokenizer.model");
  const std::string piece = text_field(1, text_field(1, "one more"));
  write_text(dir_ / "tokenizer.model", file + piece + piece);
  EXPECT_HAS(error_of([&] { read(); }), "tokenizer.model: piece 701: repeats an earlier piece");
  // A folder is no such file.
  copy("bpe.model", "tokenizer.model");
  fs::create_directory(dir_ / "added_tokens.json");
  EXPECT_HAS(error_of([&] { read(); }), "added_tokens.json: is a directory, not a file");
}

TEST_F(TokenizerFolder, OfAJsonAloneIsTakenAsItIs) {
  copy("bpe.model", "tokenizer.model");
  const std::string json = read().files[1].text;
  fs::remove(dir_ / "tokenizer.model");
  write_text(dir_ / "tokenizer.json", json);
  const TokenizerFiles files = read();
  ASSERT_EQ(files.files.size(), 1u);
  EXPECT_EQ(files.files[0].copied_from, dir_ / "tokenizer.json");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(TokenizerFolder, OfBothSaysInWhatTheyDisagree) {
  copy("bpe.model", "tokenizer.model");
  write_text(dir_ / "tokenizer.json", read().files[1].text);
  EXPECT_EQ(read().tokenizer.vocab_size(), 700);
  EXPECT_TRUE(notes_.empty());
  copy("spaces.model", "tokenizer.model");
  EXPECT_EQ(read().tokenizer.vocab_size(), 700);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_HAS(notes_[0],
             "of 600 pieces of tokenizer.model differ from tokenizer.json (700 tokens), which is used: "
             "id 0 is \"<pad>\" in tokenizer.model and \"<unk>\" in tokenizer.json");
  write_text(dir_ / "tokenizer.model", "garbage");
  EXPECT_EQ(read().tokenizer.vocab_size(), 700);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_HAS(notes_[0], "tokenizer.model: is no SentencePiece model");
}

TEST_F(TokenizerFolder, OfTiktokenAloneIsRefused) {
  write_text(dir_ / "tokenizer.model", "IQ== 0\nIg== 1\n");
  EXPECT_HAS(error_of([&] { read(); }), "a vocabulary of tiktoken");
}

}  // namespace
}  // namespace dovetail::convert
