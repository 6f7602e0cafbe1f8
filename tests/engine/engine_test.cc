#include "engine/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "base/error.h"
#include "fake_package.h"

namespace dovetail::engine {
namespace {

// The fake model repeats the user's last message; a row of audio is the character 'A' + 10 * sample.
class EngineTest : public ::testing::Test {
 protected:
  void open(const test::Edits& edits = {}, const EngineOptions& options = {}) {
    // A new folder each time: the system's loader knows libraries by their path.
    package_ = dir_.path() / std::to_string(opened_++);
    test::write_fake_package(package_, edits);
    engine_.emplace(library::open_model(package_), options);
  }

  static Conversation say(const std::string& text) {
    return {.turns = {{.role = Role::kUser, .parts = {text}}}};
  }

  static void add_turns(Conversation& conversation, const std::string& reply, const std::string& text) {
    conversation.turns.push_back({.role = Role::kAssistant, .parts = {reply}});
    conversation.turns.push_back({.role = Role::kUser, .parts = {text}});
  }

  std::shared_ptr<const Media> recording(int64_t rows, float sample) const {
    return engine_->audio(std::vector<float>(rows * 100, sample));
  }

  Reply generate(const Conversation& conversation, int64_t max_tokens = 0, const Callbacks& callbacks = {}) {
    return engine_->generate(conversation, {.sampling = {.temperature = 0}, .max_tokens = max_tokens},
                             callbacks);
  }

  Error failure(const Conversation& conversation) {
    try {
      generate(conversation);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "nothing was thrown");
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path package_;
  int opened_ = 0;
  std::optional<Engine> engine_;
};

TEST_F(EngineTest, RepliesAndStops) {
  open();
  const Reply reply = generate(say("hello"));
  EXPECT_EQ(reply.text, "hello");
  EXPECT_EQ(reply.finish_reason, FinishReason::kStop);
  EXPECT_EQ(reply.token_ids.size(), 5u);
  EXPECT_EQ(reply.usage.completion_tokens, 5);
  // <bos><|turn>user\n hello <turn|>\n <|turn>model\n
  EXPECT_EQ(reply.usage.prompt_tokens, 1 + 6 + 5 + 2 + 7);
  EXPECT_EQ(reply.usage.cached_tokens, 0);
}

TEST_F(EngineTest, EmbeddingPairGivesTheSame) {
  open({{R"("prefill_tokens":"prefill_tokens")", R"("prefill_embeds":"prefill_embeds")"},
        {R"("decode_tokens":"decode_tokens")", R"("decode_embeds":"decode_embeds")"}});
  EXPECT_EQ(generate(say("a longer message than one chunk has room for")).text,
            "a longer message than one chunk has room for");
}

TEST_F(EngineTest, MediaRowsStandWhereTheirPlaceholdersAre) {
  open();
  Conversation conversation;
  conversation.turns.push_back(
      {.role = Role::kUser, .parts = {"x", recording(3, 0.1f), "y", recording(20, 0.25f), "z"}});
  const Reply reply = generate(conversation);
  // The fake repeats the prefix and suffix tokens too; they are special and leave no text.
  EXPECT_EQ(reply.text, "xBBBy" + std::string(20, 'D') + "z");
  EXPECT_EQ(reply.usage.media_tokens, 23);
  EXPECT_GT(reply.timings.adapter_seconds, 0);
}

TEST_F(EngineTest, ConversationContinuesFromTheCache) {
  open();
  Conversation conversation;
  conversation.turns.push_back({.role = Role::kUser, .parts = {recording(8, 0.1f), "hi"}});
  int adapter_calls = 0;
  const Callbacks count = {.status = [&](std::string_view) { ++adapter_calls; }};
  const Reply first = generate(conversation, 0, count);
  EXPECT_EQ(first.text, "BBBBBBBBhi");
  EXPECT_EQ(adapter_calls, 1);
  add_turns(conversation, "okay", "and now");
  const Reply second = generate(conversation, 0, count);
  EXPECT_EQ(second.text, "and now");
  EXPECT_EQ(second.usage.cached_tokens, first.usage.prompt_tokens);
  EXPECT_EQ(adapter_calls, 1);

  // The same answers as without anything cached.
  Engine fresh(library::open_model(package_));
  EXPECT_EQ(fresh.generate(conversation, {.sampling = {.temperature = 0}}).text, "and now");
}

TEST_F(EngineTest, RepeatedQuestionComputesOnlyTheLastPosition) {
  open();
  const Reply first = generate(say("hello"));
  const Reply second = generate(say("hello"));
  EXPECT_EQ(second.text, "hello");
  EXPECT_EQ(second.usage.cached_tokens, first.usage.prompt_tokens - 1);
}

TEST_F(EngineTest, OtherRecordingIsNotMistakenForTheFirst) {
  open();
  Conversation first;
  first.turns.push_back({.role = Role::kUser, .parts = {recording(4, 0.1f)}});
  Conversation second;
  second.turns.push_back({.role = Role::kUser, .parts = {recording(4, 0.2f)}});
  EXPECT_EQ(generate(first).text, "BBBB");
  const Reply reply = generate(second);
  EXPECT_EQ(reply.text, "CCCC");
  EXPECT_LE(reply.usage.cached_tokens, 1 + 6 + 1);
  // Typed placeholder tokens are not a recording either.
  EXPECT_EQ(generate(say("<|audio><|audio|><|audio|><|audio|><|audio|><audio|>")).text, "");
}

TEST_F(EngineTest, WindowThatMovedOnMeansComputingAnew) {
  open();
  const std::string text(80, 'a');
  EXPECT_EQ(generate(say(text)).text, text);
  const Reply reply = generate(say("b"));  // more than the fake can take off
  EXPECT_EQ(reply.text, "b");
  EXPECT_EQ(reply.usage.cached_tokens, 0);
}

TEST_F(EngineTest, SystemMessageIsUsed) {
  open();
  Conversation conversation = say("hi");
  conversation.system = "be nice";
  const Reply reply = generate(conversation);
  EXPECT_EQ(reply.text, "hi");
  EXPECT_EQ(reply.usage.prompt_tokens, 1 + 8 + 7 + 2 + 6 + 2 + 2 + 7);
}

TEST_F(EngineTest, StopStringsEndTheReply) {
  open();
  std::string shown;
  const Reply reply =
      generate(say("go STOP here"), 0, {.text = [&](std::string_view text) { shown += text; }});
  EXPECT_EQ(reply.text, "go ");
  EXPECT_EQ(shown, "go ");
  EXPECT_EQ(reply.finish_reason, FinishReason::kStop);
  EXPECT_EQ(generate(say("go STO")).text, "go STO");
}

TEST_F(EngineTest, CharactersAreNeverCut) {
  open();
  const std::string text = "caf\xC3\xA9 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x94\xAC!";
  std::vector<std::string> pieces;
  const std::string message = text.substr(0, text.size() - 1) + "?";
  const Reply reply =
      generate(say(message), 0, {.text = [&](std::string_view piece) { pieces.emplace_back(piece); }});
  EXPECT_EQ(reply.text, message);
  EXPECT_GT(pieces.size(), 3u);
  for (const std::string& piece : pieces)
    EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xC0, 0x80) << piece;
  // Cut in the middle of a character: what is left of it becomes U+FFFD, once.
  EXPECT_EQ(generate(say("\xE2\x82\xAC"), 2).text.substr(0, 3), "\xEF\xBF\xBD");
}

TEST_F(EngineTest, SamplesKeepTheLimitsOfTheContract) {
  open();
  EXPECT_THROW(engine_->audio(std::vector<float>(160, 0.1f)), Error);
  EXPECT_THROW(engine_->audio(std::vector<float>(4001, 0.1f)), Error);
  EXPECT_THROW(engine_->audio(std::vector<float>(400, std::numeric_limits<float>::quiet_NaN())), Error);
}

TEST_F(EngineTest, AMediumThatIsLargerThanTheWindowIsRefusedByItself) {
  open({{R"("context_window_size":256)", R"("context_window_size":32 )"}});
  Conversation conversation;
  conversation.turns.push_back({.role = Role::kUser, .parts = {recording(40, 0.1f)}});
  const Error error = failure(conversation);
  EXPECT_EQ(error.code(), ErrorCode::kLimit);
  EXPECT_EQ(error.problems().front().expected, "1 to 32 tokens") << error.what();
  EXPECT_EQ(error.problems().front().actual, "40") << error.what();
}

TEST_F(EngineTest, AdapterRowsThatAreNotFiniteAreNamed) {
  open();
  Conversation conversation;
  conversation.turns.push_back({.role = Role::kUser, .parts = {recording(4, 1e38f)}});
  const Error error = failure(conversation);
  EXPECT_EQ(error.code(), ErrorCode::kNumeric);
  EXPECT_EQ(error.problems().front().field, "audio") << error.what();
}

TEST_F(EngineTest, LengthLimits) {
  open();
  Reply reply = generate(say("hello"), 3);
  EXPECT_EQ(reply.text, "hel");
  EXPECT_EQ(reply.finish_reason, FinishReason::kLength);
  // A prompt of exactly the context window is accepted and leaves room for one token.
  const int64_t frame = 1 + 6 + 2 + 7;
  reply = generate(say(std::string(256 - frame, 'a')));
  EXPECT_EQ(reply.text, "a");
  EXPECT_EQ(reply.finish_reason, FinishReason::kLength);
  reply = generate(say(std::string(256 - frame - 3, 'a')));
  EXPECT_EQ(reply.text, "aaaa");
}

TEST_F(EngineTest, TooLongPromptsAreRefusedBeforeTheAdapterRuns) {
  open();
  Conversation conversation;
  conversation.turns.push_back({.role = Role::kUser, .parts = {recording(40, 0.1f), std::string(300, 'a')}});
  bool adapter_ran = false;
  try {
    generate(conversation, 0, {.status = [&](std::string_view) { adapter_ran = true; }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLimit);
    const std::string text = error.what();
    EXPECT_NE(text.find("at most 256"), std::string::npos) << text;
    EXPECT_NE(text.find("358 (318 text, 40 audio)"), std::string::npos) << text;
  }
  EXPECT_FALSE(adapter_ran);
  EXPECT_EQ(generate(say("still works")).text, "still works");
}

TEST_F(EngineTest, AnotherNumberOfRowsIsRefused) {
  open({{R"("audio":"audio_embed")", R"("audio":"audio_extra")"}});
  Conversation conversation;
  conversation.turns.push_back({.role = Role::kUser, .parts = {recording(3, 0.1f)}});
  const Error error = failure(conversation);
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_NE(std::string(error.what()).find("expected 4, got 3"), std::string::npos) << error.what();
}

TEST_F(EngineTest, LibraryThatCanNotCountIsAsked) {
  open({{"__tvm_ffi_audio_embed_length", "__tvm_ffi_audio_embed_lengtX"}});
  Conversation conversation;
  conversation.turns.push_back({.role = Role::kUser, .parts = {recording(3, 0.1f)}});
  EXPECT_EQ(generate(conversation).text, "BBB");
}

TEST_F(EngineTest, NonFiniteLogitsStopTheRequestByName) {
  open();
  const Error error = failure(say("ab!"));
  EXPECT_EQ(error.code(), ErrorCode::kNumeric);
  EXPECT_NE(std::string(error.what()).find("logits["), std::string::npos);
  EXPECT_EQ(generate(say("ab")).text, "ab");
}

TEST_F(EngineTest, CancelIsHonouredWithinOneToken) {
  open();
  std::string shown;
  const Reply reply = generate(say("hello"), 0,
                               {.text = [&](std::string_view text) { shown += text; },
                                .cancelled = [&] { return shown.size() >= 2; }});
  EXPECT_EQ(reply.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(reply.text, "he");
  // During the prompt: no answer at all, and the next one is right.
  int asked = 0;
  const std::string text(100, 'a');
  const Reply early = generate(say(text), 0, {.cancelled = [&] { return ++asked > 2; }});
  EXPECT_EQ(early.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(early.text, "");
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(generate(say(text)).text, text);
}

TEST_F(EngineTest, RecordingsAreCheckedAndDecoded) {
  open();
  EXPECT_THROW(engine_->audio("not audio", "x.wav"), Error);
  // 8-bit WAV, mono, 16 kHz, 200 samples of 0.
  std::string wav =
      std::string("RIFF\xEC\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3E\0\0\x80\x3E\0\0\1\0\x08\0data\xC8\0\0\0",
                  44) +
      std::string(200, '\x80');
  const std::shared_ptr<const Media> media = engine_->audio(wav, "x.wav");
  EXPECT_EQ(media->samples.size(), 200u);
  EXPECT_EQ(media->rows, 2);
  wav.resize(44 + 100);
  wav[40] = 100;
  try {
    engine_->audio(wav, "x.wav");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("161"), std::string::npos) << text;
    EXPECT_NE(text.find("100"), std::string::npos) << text;
  }
}

TEST_F(EngineTest, LogitsHaveARowForEveryReplyToken) {
  open();
  const int32_t a = 265 + 'a' - ' ';
  const Engine::Logits logits = engine_->logits(say("ab"), std::vector<int32_t>{a, a + 1});
  EXPECT_EQ(logits.rows, 3);
  EXPECT_EQ(logits.vocab, 368);
  EXPECT_EQ(logits.prompt_ids.size(), 18u);
  EXPECT_EQ(logits.prompt_ids[0], 2);
  const auto likely = [&](int64_t row, int32_t id) { return logits.values[row * 368 + id] == 10.0f; };
  EXPECT_TRUE(likely(0, a));
  EXPECT_TRUE(likely(1, a + 1));
  EXPECT_TRUE(likely(2, 5));
  EXPECT_THROW(engine_->logits(say("ab"), std::vector<int32_t>{368}), Error);
}

TEST_F(EngineTest, SamplingWithASeedIsRepeatable) {
  open();
  const GenerateOptions options = {.sampling = {.temperature = 5, .seed = 42}, .max_tokens = 8};
  EXPECT_EQ(engine_->generate(say("hello"), options).token_ids,
            engine_->generate(say("hello"), options).token_ids);
}

TEST_F(EngineTest, OptionsReachTheLibrary) {
  open({}, {.threads = 1, .exact = true});
  EXPECT_EQ(generate(say("hi")).text, "hi");
  EXPECT_THROW(open({{"__tvm_ffi_set_precision", "__tvm_ffi_set_precisioX"}}, {.exact = true}), Error);
}

}  // namespace
}  // namespace dovetail::engine
