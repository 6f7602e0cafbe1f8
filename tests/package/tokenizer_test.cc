#include "package/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace dovetail::package {
namespace {

const std::filesystem::path kCheckpoint =
    std::filesystem::path(DOVETAIL_TEST_DATA "/../../examples/gemma4-tiny-speech").lexically_normal();
constexpr const char* kUnderline = "\xE2\x96\x81";

Tokenizer gemma() { return Tokenizer::from_file(kCheckpoint / "tokenizer.json"); }

std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// Token i + 1 is the byte i written as GPT-2 writes it; 0 is a special token.
Tokenizer byte_level() {
  Json vocab;
  vocab["<end>"] = 0;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    vocab[utf8(visible ? byte : next++)] = byte + 1;
  }
  const Json file = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", 0},
         {"content", "<end>"},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(file.dump(), "byte-level");
}

// Llama 2 style: a space before the text, byte tokens 3…258, words after them, leading space stripped.
Tokenizer llama_style() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[name] = 3 + byte;
  }
  vocab[kUnderline] = 259;
  vocab[std::string(kUnderline) + "a"] = 260;
  vocab["a"] = 261;
  vocab["\xEF\xBF\xBD"] = 262;
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const Json file = {
      {"version", "1.0"},
      {"truncation",
       {{"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Right"}}},
      {"padding",
       {{"strategy", {{"Fixed", 100}}},
        {"direction", "Right"},
        {"pad_to_multiple_of", nullptr},
        {"pad_id", 0},
        {"pad_type_id", 0},
        {"pad_token", "<unk>"}}},
      {"added_tokens", Json::array()},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", kUnderline}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kUnderline}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", kUnderline}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          strip}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", {std::string(kUnderline) + " a"}}}}};
  return Tokenizer::from_json(file.dump(), "llama-style");
}

std::vector<std::string> stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                bool skip = true) {
  StreamDecoder decoder(tokenizer, skip);
  std::vector<std::string> pieces;
  for (int32_t id : ids) pieces.push_back(decoder.push(id));
  pieces.push_back(decoder.finish());
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

bool is_utf8(const std::string& text) {
  try {
    Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

TEST(Tokenizer, PromptsOfTheCheckpoint) {
  const Tokenizer tokenizer = gemma();
  const Json cases = read_json(kCheckpoint / "reference/cases.json")["cases"];
  ASSERT_FALSE(cases.empty());
  for (const Json& item : cases) {
    const auto prompt = item["prompt_token_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(tokenizer.decode(prompt, false)), prompt);
    const auto reply = item["f32"]["reply_token_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(reply), item["f32"]["reply"].get<std::string>());
    EXPECT_EQ(joined(stream(tokenizer, reply)), item["f32"]["reply"].get<std::string>());
  }
}

TEST(Tokenizer, SpecialTokensInText) {
  const Tokenizer tokenizer = gemma();
  EXPECT_EQ(tokenizer.encode("<|turn>user\n"), (std::vector<int32_t>{4, 480, 269}));
  EXPECT_EQ(tokenizer.encode("", true), std::vector<int32_t>{2});
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{4, 480, 269}), "user\n");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{4, 480, 269}, false), "<|turn>user\n");
  EXPECT_TRUE(tokenizer.is_special(4));
  EXPECT_FALSE(tokenizer.is_special(480));
  EXPECT_FALSE(tokenizer.is_special(-1));
}

TEST(Tokenizer, Vocabulary) {
  const Tokenizer tokenizer = gemma();
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(tokenizer.token_to_id("<|turn>"), 4);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.token_to_id("\xFF"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(23), "<0x0A>");
  EXPECT_EQ(tokenizer.id_to_token(512), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  for (int32_t id = 0; id < 512; ++id) {
    const std::optional<std::string> token = tokenizer.id_to_token(id);
    ASSERT_TRUE(token) << id;
    EXPECT_EQ(tokenizer.token_to_id(*token), id);
  }
}

TEST(Tokenizer, RoundTrips) {
  const std::string texts[] = {"turn on the lights",
                               "  two  spaces ",
                               "caf\u00e9",
                               "\u4f60\u597d\uff0c\u4e16\u754c",
                               "\U0001F468\u200D\U0001F469\u200D\U0001F467",
                               std::string("\0x", 2),
                               "\n\n\t",
                               "\uFEFF"};
  for (const Tokenizer& tokenizer : {gemma(), byte_level(), llama_style()}) {
    for (const std::string& text : texts) {
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
      EXPECT_EQ(joined(stream(tokenizer, tokenizer.encode(text))), text);
    }
  }
}

TEST(Tokenizer, InfoLikeMlc) {
  EXPECT_EQ(gemma().tokenizer_info(), (TokenizerInfo{"byte_fallback", false, false}));
  EXPECT_EQ(byte_level().tokenizer_info(), (TokenizerInfo{"byte_level", false, false}));
  EXPECT_EQ(llama_style().tokenizer_info(), (TokenizerInfo{"byte_fallback", true, true}));
}

TEST(Tokenizer, TruncationAndPaddingOfTheFileAreNotApplied) {
  EXPECT_EQ(llama_style().encode("a a a a a a").size(), 6u);
}

TEST(Tokenizer, WrongArguments) {
  const Tokenizer tokenizer = gemma();
  EXPECT_THROW(tokenizer.encode("bad \xC3"), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{100000, 480}), "user");
  EXPECT_THROW(Tokenizer::from_file(kCheckpoint / "missing.json"), Error);
}

TEST(Tokenizer, HostileFiles) {
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  const std::string nested = [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += R"({"type":"Sequence","normalizers":[)";
    return R"({"version":"1.0","normalizer":)" + text;
  }();
  for (const std::string& json :
       {std::string(), std::string("{}"), std::string("null"), std::string("\xFF\xFE"), deep, nested,
        std::string(R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}})"),
        std::string(R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
        std::string(R"({"version":"1.0","model":{"type":"Nothing"}})")}) {
    try {
      Tokenizer::from_json(json, "hostile.json");
      ADD_FAILURE() << "accepted: " << json.substr(0, 80);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kMalformed);
      EXPECT_NE(std::string(e.what()).find("hostile.json"), std::string::npos);
    }
  }
  // An id that fits 32 bits but not 31 can't become a token id.
  EXPECT_THROW(Tokenizer::from_json(R"({"version":"1.0","added_tokens":[{"id":4294967295,"content":"x",
      "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
      "model":{"type":"BPE","vocab":{"x":4294967295},"merges":[]}})",
                                    "hostile.json"),
               Error);
}

TEST(Tokenizer, ReplacementsThatExplodeAreRefused) {
  auto file = [](int doublings) {
    Json normalizers = Json::array();
    for (int i = 0; i < doublings; ++i) {
      normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
    }
    return Json{{"version", "1.0"},
                {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
                {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}}
        .dump();
  };
  EXPECT_EQ(Tokenizer::from_json(file(3), "small").encode("a").size(), 8u);
  try {
    Tokenizer::from_json(file(64), "bomb.json");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("more than 1024 times"), std::string::npos) << e.what();
  }
}

TEST(Tokenizer, TruncatedFileIsAnErrorAtEveryLength) {
  const std::string json = read_file(kCheckpoint / "tokenizer.json");
  const size_t end = json.find_last_of('}');
  for (size_t size = 0; size <= end; size += size + 40 < end ? 37 : 1) {
    EXPECT_THROW(Tokenizer::from_json(std::string_view(json).substr(0, size), "cut.json"), Error) << size;
  }
}

TEST(StreamDecoder, WaitsForWholeCharacters) {
  const Tokenizer tokenizer = byte_level();
  const std::string text = "a\u00e9\u4f60\U0001F600!";
  const std::vector<std::string> pieces = stream(tokenizer, tokenizer.encode(text));
  const std::vector<std::string> expected = {"a", "", "\u00e9", "",           "",  "\u4f60",
                                             "",  "", "",       "\U0001F600", "!", ""};
  EXPECT_EQ(pieces, expected);
}

TEST(StreamDecoder, ByteTokensAppearWhenTheirRunEnds) {
  const Tokenizer tokenizer = llama_style();
  // "é", then a word, then the first two of the three bytes of a character.
  const std::vector<int32_t> ids = {3 + 0xC3, 3 + 0xA9, 260, 3 + 0xE4, 3 + 0xBD};
  const std::vector<std::string> pieces = stream(tokenizer, ids);
  const std::vector<std::string> expected = {"", "", "\u00e9 a", "", "", "\uFFFD\uFFFD"};
  EXPECT_EQ(pieces, expected);
}

TEST(StreamDecoder, CutInsideACharacterEndsWithOneReplacement) {
  const Tokenizer tokenizer = byte_level();
  std::vector<int32_t> ids = tokenizer.encode("ok \U0001F600");
  ids.pop_back();
  const std::vector<std::string> pieces = stream(tokenizer, ids);
  EXPECT_EQ(pieces.back(), "\uFFFD");
  EXPECT_EQ(joined(pieces), "ok \uFFFD");
}

TEST(StreamDecoder, SpecialAndUnknownIds) {
  const Tokenizer tokenizer = byte_level();
  EXPECT_EQ(joined(stream(tokenizer, {0, 'h' + 1, 0, 'i' + 1, 5000, 0})), "hi");
  EXPECT_EQ(joined(stream(tokenizer, {'h' + 1, 0, 'i' + 1}, false)), "h<end>i");
  StreamDecoder decoder(tokenizer);
  EXPECT_THROW(decoder.push(-1), Error);
  EXPECT_EQ(decoder.push('x' + 1), "x");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push('y' + 1), "y");
}

TEST(StreamDecoder, PiecesEqualDecodeForRandomIds) {
  std::mt19937 random(1);
  for (const Tokenizer& tokenizer : {gemma(), byte_level(), llama_style()}) {
    const auto size = static_cast<uint32_t>(tokenizer.vocab_size());
    for (int round = 0; round < 2000; ++round) {
      // Half of the rounds draw from the byte tokens only, where broken UTF-8 is dense.
      const uint32_t range = round % 2 ? size + 3 : std::min<uint32_t>(size, 262);
      std::vector<int32_t> ids(random() % 40);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % range);
      for (bool skip : {true, false}) {
        const std::vector<std::string> pieces = stream(tokenizer, ids, skip);
        ASSERT_EQ(joined(pieces), tokenizer.decode(ids, skip)) << "round " << round;
        for (const std::string& piece : pieces) ASSERT_TRUE(is_utf8(piece));
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::package
