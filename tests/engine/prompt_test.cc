#include "engine/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace dovetail::engine {
namespace {

const std::filesystem::path kData = DOVETAIL_TEST_DATA;

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

int64_t announced_rows(const Media& media) { return media.rows.value_or(0); }

std::shared_ptr<const Media> media(const std::string& input, int64_t rows, const std::string& hash = "h") {
  auto result = std::make_shared<Media>();
  result->input = input;
  result->sha256 = hash;
  result->rows = rows;
  return result;
}

package::ConvTemplate read_template(Json value) {
  package::ProblemList problems;
  if (!value.contains("stop_str")) value["stop_str"] = Json::array();
  if (!value.contains("stop_token_ids")) value["stop_token_ids"] = Json::array();
  package::ConvTemplate result = package::read_conv_template(value, "prompt.json", "conv_template", problems);
  problems.throw_if_any(ErrorCode::kMalformed);
  return result;
}

// "<audio, 3 rows>"
Part read_media(const std::string& text) {
  const size_t comma = text.find(',');
  return media(text.substr(1, comma - 1), std::stoll(text.substr(comma + 2)));
}

Conversation read_conversation(const Json& messages) {
  Conversation conversation;
  for (const Json& message : messages) {
    const std::string role = message["role"];
    const Json& content = message["content"];
    if (role == "system") {
      conversation.system = content.get<std::string>();
      continue;
    }
    Turn turn{.role = role == "user" ? Role::kUser : Role::kAssistant};
    if (content.is_string()) {
      turn.parts.emplace_back(content.get<std::string>());
    } else {
      for (const Json& part : content) {
        turn.parts.push_back(part.is_string() ? read_media(part) : Part(part["text"].get<std::string>()));
      }
    }
    conversation.turns.push_back(std::move(turn));
  }
  return conversation;
}

contract::Prompt read_frame(const Json& value) {
  return {.prefix_token_ids = value["prefix_token_ids"].get<std::vector<int64_t>>(),
          .placeholder_token_id = value["placeholder_token_id"].get<int64_t>(),
          .suffix_token_ids = value["suffix_token_ids"].get<std::vector<int64_t>>()};
}

class PromptVectors : public ::testing::Test {
 protected:
  PromptVectors() : document_(read_json(kData / "conformance/vectors/prompt.json")) {
    inputs_.emplace_back("audio", contract::Input{.processor = contract::AudioDecode{},
                                                  .adapter = "audio",
                                                  .prompt = read_frame(document_["audio_prompt"])});
    inputs_.emplace_back("image", contract::Input{.processor = contract::ImageDecode{},
                                                  .adapter = "image",
                                                  .prompt = read_frame(document_["image_prompt"])});
  }

  package::ConvTemplate conv_template(const Json& overrides = Json::object()) const {
    Json value = document_["conv_template"];
    for (const auto& [key, item] : overrides.items()) value[key] = item;
    return read_template(value);
  }

  Prompt build(const Conversation& conversation, const Json& overrides = Json::object()) const {
    return build_prompt(conversation, conv_template(overrides), inputs_, bytes, announced_rows);
  }

  Json document_;
  contract::Named<contract::Input> inputs_;
};

TEST_F(PromptVectors, TokensAndModalityAgree) {
  ASSERT_GE(document_["vectors"].size(), 15u);
  for (const Json& vector : document_["vectors"]) {
    SCOPED_TRACE(vector["name"].get<std::string>());
    std::vector<int32_t> ids;
    std::vector<int32_t> modality;
    for (const Json& chunk : vector["chunks"]) {
      for (const Json& id : chunk["token_ids"]) ids.push_back(id);
      for (const Json& id : chunk["modality_ids"]) modality.push_back(id);
    }
    const Json overrides = vector.value("conv_template_overrides", Json::object());
    const Prompt prompt = build(read_conversation(vector["messages"]), overrides);
    EXPECT_EQ(prompt.ids, ids);
    EXPECT_EQ(prompt.modality_ids, modality);

    // Our chunks may lie elsewhere; they cover the prompt, keep to the size, and leave spans whole that fit.
    const int64_t size = vector["prefill_chunk_size"];
    int64_t at = 0;
    for (const Chunk& chunk : plan_chunks(prompt, 0, size)) {
      EXPECT_EQ(chunk.begin, at);
      EXPECT_GT(chunk.end, chunk.begin);
      EXPECT_LE(chunk.end - chunk.begin, size);
      at = chunk.end;
      for (const MediaSpan& span : prompt.media) {
        const bool divided = span.begin < chunk.end && chunk.end < span.begin + span.rows;
        EXPECT_FALSE(divided && span.rows <= size);
      }
    }
    EXPECT_EQ(at, prompt.size());
  }
}

TEST_F(PromptVectors, BeginningOfTextIsNeverDoubled) {
  Json overrides = {{"system_prefix_token_ids", {'B'}}, {"system_template", "B{system_message}"}};
  const Conversation hi = read_conversation(Json::parse(R"([{"role":"user","content":"hi"}])"));
  EXPECT_EQ(build(hi, overrides).ids, bytes("BS<u>:hi|<a>:"));
  // A message that merely begins with the same text stays as it is.
  overrides["system_template"] = "{system_message}";
  EXPECT_EQ(build(hi, overrides).ids, bytes("BS<u>:hi|<a>:"));
  overrides = {{"system_prefix_token_ids", {'B'}},
               {"system_message", ""},
               {"roles", {{"user", "B"}, {"assistant", "<a>"}}}};
  const Prompt prompt =
      build(read_conversation(Json::parse(R"([{"role":"user","content":["<audio, 2 rows>"]}])")), overrides);
  EXPECT_EQ(prompt.ids, (std::vector<int32_t>{'B', ':', 290, 293, 299, 299, 291, '|', '<', 'a', '>', ':'}));
  EXPECT_EQ(prompt.media[0].begin, 4);
}

TEST_F(PromptVectors, EmptySystemMessageHasNoFrame) {
  Conversation conversation = read_conversation(Json::parse(R"([{"role":"user","content":"hi"}])"));
  conversation.system = "";
  EXPECT_EQ(build(conversation, {{"system_template", "[{system_message}]"}}).ids,
            build(conversation, {{"system_template", "{system_message}"}}).ids);
  conversation.system = "x";
  std::vector<int32_t> expected = bytes("[x]<u>:hi|<a>:");
  expected.insert(expected.begin(), 2);
  EXPECT_EQ(build(conversation, {{"system_template", "[{system_message}]"}}).ids, expected);
}

TEST_F(PromptVectors, TypedPlaceholderStaysText) {
  const auto encode = [](const std::string& text) {
    return std::vector<int32_t>(std::count(text.begin(), text.end(), 'P'), 299);
  };
  const Prompt prompt = build_prompt(read_conversation(Json::parse(R"([{"role":"user","content":"PP"}])")),
                                     conv_template(), inputs_, encode, announced_rows);
  EXPECT_EQ(prompt.ids, (std::vector<int32_t>{2, 299, 299}));
  EXPECT_EQ(prompt.modality_ids, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_TRUE(prompt.media.empty());
}

TEST_F(PromptVectors, ConversationsThatMakeNoSenseAreRefused) {
  const auto code = [&](const char* messages) {
    try {
      build(read_conversation(Json::parse(messages)));
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code("[]"), ErrorCode::kUsage);
  EXPECT_EQ(code(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])"), ErrorCode::kUsage);
  EXPECT_EQ(code(R"([{"role":"assistant","content":["<audio, 1 rows>"]},{"role":"user","content":"b"}])"),
            ErrorCode::kUsage);
  EXPECT_EQ(code(R"([{"role":"user","content":["<video, 1 rows>"]}])"), ErrorCode::kUnsupported);
}

Prompt with_spans(int64_t size, std::initializer_list<std::pair<int64_t, int64_t>> spans) {
  Prompt prompt;
  prompt.ids.assign(size, 1);
  prompt.modality_ids.assign(size, 0);
  for (const auto& [begin, rows] : spans) prompt.media.push_back({begin, rows, media("audio", rows)});
  return prompt;
}

std::vector<std::pair<int64_t, int64_t>> chunks(const Prompt& prompt, int64_t begin, int64_t size) {
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const Chunk& chunk : plan_chunks(prompt, begin, size)) result.emplace_back(chunk.begin, chunk.end);
  return result;
}

TEST(PlanChunks, SpansStayWholeWhereTheyFit) {
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(chunks(with_spans(10, {}), 0, 4), (Pairs{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(chunks(with_spans(10, {}), 10, 4), Pairs{});
  EXPECT_EQ(chunks(with_spans(10, {{2, 3}}), 0, 4), (Pairs{{0, 2}, {2, 6}, {6, 10}}));
  EXPECT_EQ(chunks(with_spans(10, {{2, 2}}), 0, 4), (Pairs{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(chunks(with_spans(10, {{2, 6}}), 0, 4), (Pairs{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(chunks(with_spans(10, {{1, 2}, {3, 2}}), 0, 4), (Pairs{{0, 3}, {3, 7}, {7, 10}}));
  EXPECT_EQ(chunks(with_spans(10, {{2, 3}}), 2, 4), (Pairs{{2, 6}, {6, 10}}));
}

TEST(CommonPrefix, CountsMediaOnlyInFull) {
  const std::vector<int32_t> a = {1, 2, 7, 7, 7, 3, 4};
  const std::vector<int32_t> b = {1, 2, 7, 7, 7, 3, 5, 6};
  const std::vector<MediaSpan> one = {{2, 3, media("audio", 3, "one")}};
  const std::vector<MediaSpan> same = {{2, 3, media("audio", 3, "one")}};
  const std::vector<MediaSpan> two = {{2, 3, media("audio", 3, "two")}};
  const std::vector<MediaSpan> other_kind = {{2, 3, media("image", 3, "one")}};
  const std::vector<MediaSpan> shorter = {{2, 2, media("audio", 2, "one")}};
  EXPECT_EQ(common_prefix(a, {}, b, {}), 6);
  EXPECT_EQ(common_prefix(a, one, b, same), 6);
  EXPECT_EQ(common_prefix(a, one, b, two), 2);
  EXPECT_EQ(common_prefix(a, one, b, other_kind), 2);
  EXPECT_EQ(common_prefix(a, one, b, shorter), 2);
  EXPECT_EQ(common_prefix(a, one, b, {}), 2);  // typed placeholders are not a recording
  EXPECT_EQ(common_prefix(a, {}, b, one), 2);
  EXPECT_EQ(common_prefix(std::span(a).first(4), one, b, same), 2);  // only part of the span was computed
  EXPECT_EQ(common_prefix({}, {}, b, same), 0);
}

}  // namespace
}  // namespace dovetail::engine
