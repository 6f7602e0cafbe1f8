// Gemma 4 against the original implementation (examples/gemma4-tiny-speech/reference), in this process:
// stages of the audio adapter, logits, replies; and against itself: chunks, windows, batches.
#include "models/gemma4.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "media/audio.h"
#include "models/gemma4_plan.h"
#include "support/model_harness.h"
#include "support/npz.h"

namespace dovetail::models {
namespace {

namespace fs = std::filesystem;
using Model = Gemma4<Gemma4RuntimeConfig>;

const fs::path kExample = fs::path(DOVETAIL_EXAMPLES) / "gemma4-tiny-speech";

using Gemma4Loaded = Loaded<Model, Gemma4RuntimeConfig>;

Gemma4RuntimeConfig example_config() {
  return {parse_gemma4_config(read_json(kExample / "config.json"), "config.json")};
}

Gemma4Loaded& load(const std::string& quantization) {
  static std::map<std::string, std::unique_ptr<Gemma4Loaded>> all;
  std::unique_ptr<Gemma4Loaded>& entry = all[quantization];
  if (!entry) entry = std::make_unique<Gemma4Loaded>(kExample, example_config(), quantization);
  return *entry;
}

std::vector<float> samples_of(const std::string& file) {
  const std::string bytes = read_file(kExample / file);
  return media::decode_audio(std::as_bytes(std::span(bytes.data(), bytes.size())),
                             {.sample_rate_hz = kAudioSampleRate,
                              .min_samples = kAudioMinSamples,
                              .max_samples = kAudioMaxSamples})
      .samples;
}

// A prompt ready to be prefilled.
struct Input {
  std::vector<int32_t> ids, modality;
  std::vector<float> embeddings;
};

Input make_input(ops::Context& context, const Gemma4Loaded& loaded, std::vector<int32_t> ids,
                 const std::vector<float>& rows, int32_t placeholder) {
  Input out{.ids = std::move(ids)};
  const auto hidden = static_cast<size_t>(loaded.model.hidden_size());
  out.embeddings.resize(out.ids.size() * hidden);
  loaded.model.embed(context, out.ids, out.embeddings.data());
  size_t row = 0;
  for (size_t i = 0; i < out.ids.size(); ++i) {
    const bool filled = out.ids[i] == placeholder && !rows.empty();
    out.modality.push_back(filled);
    if (filled)
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row++ * hidden), hidden,
                  out.embeddings.begin() + static_cast<std::ptrdiff_t>(i * hidden));
  }
  EXPECT_EQ(row * hidden, rows.size());
  return out;
}

// Logits of the last position after appending input[begin, end).
std::vector<float> prefill(ops::Context& context, Gemma4Loaded& loaded, KvCache& cache, const Input& input,
                           size_t begin, size_t end, int64_t id = 0) {
  const auto hidden = static_cast<size_t>(loaded.model.hidden_size());
  std::vector<float> logits(static_cast<size_t>(loaded.model.vocab_size()));
  const int64_t length = static_cast<int64_t>(end - begin);
  cache.begin_forward({&id, 1}, {&length, 1});
  loaded.model.prefill_tokens(context, cache, input.embeddings.data() + begin * hidden,
                              std::span(input.ids).subspan(begin, end - begin),
                              std::span(input.modality).subspan(begin, end - begin), logits.data());
  cache.end_forward();
  return logits;
}

std::vector<float> prefill_in_chunks(ops::Context& context, Gemma4Loaded& loaded, KvCache& cache,
                                     const Input& input, size_t chunk) {
  std::vector<float> logits;
  for (size_t at = 0; at < input.ids.size(); at += chunk) {
    logits = prefill(context, loaded, cache, input, at, std::min(input.ids.size(), at + chunk));
  }
  return logits;
}

std::vector<float> decode(ops::Context& context, Gemma4Loaded& loaded, KvCache& cache, int32_t token,
                          int64_t id = 0) {
  std::vector<float> logits(static_cast<size_t>(loaded.model.vocab_size()));
  const int64_t one = 1;
  cache.begin_forward({&id, 1}, {&one, 1});
  loaded.model.decode_tokens(context, cache, {&token, 1}, logits.data());
  cache.end_forward();
  return logits;
}

// What a run over all reference cases measured.
struct Agreement {
  float logits = 0;  // largest difference to the reference
  int cases = 0;
  int different_replies = 0;
  double mean_divergence = 0;
  std::string differing;
};

Agreement compare_with_reference(ops::Context& context, const std::string& quantization,
                                 const std::string& reference) {
  Gemma4Loaded& loaded = load(quantization);
  const Json cases = read_json(kExample / "reference" / "cases.json")["cases"];
  const auto logits = test::read_npz(kExample / "reference" / "logits.npz");
  const int32_t placeholder = read_json(kExample / "config.json")["audio_token_id"];
  Agreement out;
  int rows_compared = 0;
  for (const Json& entry : cases) {
    std::vector<float> rows;
    if (entry.contains("audio")) {
      rows = loaded.model.audio()(context, samples_of(entry["audio"]));
      EXPECT_EQ(rows.size(),
                entry["audio_tokens"].get<size_t>() * static_cast<size_t>(loaded.model.hidden_size()));
    }
    const Input input =
        make_input(context, loaded, entry["prompt_token_ids"].get<std::vector<int32_t>>(), rows, placeholder);
    const Json& expected = entry[reference];
    const test::Array& expected_logits = logits.at(expected["logits"].get<std::string>());
    const auto vocab = static_cast<size_t>(loaded.model.vocab_size());
    const auto cache = loaded.new_cache(context);
    std::vector<float> row = prefill_in_chunks(context, loaded, *cache, input, 32);
    const auto reply = expected["reply_token_ids"].get<std::vector<int32_t>>();
    bool same = true;
    for (size_t i = 0; i <= reply.size(); ++i) {
      const std::span<const float> reference_row =
          std::span(expected_logits.values).subspan(i * vocab, vocab);
      out.logits = std::max(out.logits, largest_difference(reference_row, row));
      out.mean_divergence += divergence(reference_row, row);
      ++rows_compared;
      // After the last reply token the stop token must be the best.
      same = same && best(row) == (i < reply.size() ? reply[i] : best(reference_row));
      if (i < reply.size()) row = decode(context, loaded, *cache, reply[i]);
    }
    ++out.cases;
    out.different_replies += same ? 0 : 1;
    if (!same) out.differing += " " + expected["reply"].get<std::string>();
  }
  out.mean_divergence /= rows_compared;
  return out;
}

TEST_P(EveryLevel, AudioStagesAgreeWithTheOriginal) {
  Gemma4Loaded& loaded = load("q0f32");
  ops::Context context(GetParam(), 2);
  const auto expected = test::read_npz(kExample / "reference" / "adapter_stages_f32.npz");
  Gemma4Audio<Gemma4RuntimeConfig>::Stages stages;
  const std::vector<float> rows = loaded.model.audio()(context, samples_of("audio/utterance00.wav"), &stages);
  EXPECT_LE(largest_difference(stages.log_mel, expected.at("log_mel").values), 5e-4f);
  EXPECT_LE(largest_difference(stages.after_subsample, expected.at("after_subsample").values), 2e-3f);
  EXPECT_LE(largest_difference(stages.after_first_layer, expected.at("after_conformer_layer_0").values),
            2e-3f);
  EXPECT_LE(largest_difference(stages.after_tower, expected.at("after_audio_tower").values), 2e-3f);
  EXPECT_LE(largest_difference(rows, expected.at("adapter_output").values), 2e-3f);
}

TEST_P(EveryLevel, Float32LogitsAgreeWithTheOriginal) {
  ops::Context context(GetParam(), 2);
  const Agreement found = compare_with_reference(context, "q0f32", "f32");
  EXPECT_EQ(found.cases, 20);
  EXPECT_LE(found.logits, 2e-3f);
  EXPECT_EQ(found.different_replies, 0) << found.differing;
}

TEST_P(EveryLevel, ExactFourBitLogitsAgreeWithTheOriginal) {
  ops::Context context(GetParam(), 2);
  context.precision = ops::Precision::kExact;
  const Agreement found = compare_with_reference(context, "q4f16_1", "q4f16_1");
  std::printf("exact, %s: largest logit difference %.4f\n", std::string(ops::level_name(GetParam())).c_str(),
              found.logits);
  EXPECT_LE(found.logits, 2e-2f);
  EXPECT_EQ(found.different_replies, 0) << found.differing;
}

TEST_P(EveryLevel, EightBitActivationsStayClose) {
  ops::Context context(GetParam(), 2);
  const Agreement found = compare_with_reference(context, "q4f16_1", "q4f16_1");
  std::printf(
      "int8 activations, %s: %d of %d replies differ%s, mean KL %.5f, largest logit difference %.3f\n",
      std::string(ops::level_name(GetParam())).c_str(), found.different_replies, found.cases,
      found.differing.c_str(), found.mean_divergence, found.logits);
  EXPECT_LE(found.different_replies, 1) << found.differing;
  EXPECT_LE(found.mean_divergence, 0.01);
}

// Half of the model's vocabulary in an order without a pattern, several windows long.
std::vector<int32_t> long_text(size_t length) {
  std::vector<int32_t> out{2};
  for (size_t i = 1; i < length; ++i) out.push_back(static_cast<int32_t>(300 + (i * 7919) % 200));
  return out;
}

TEST_P(EveryLevel, ChunksDoNotMatter) {
  for (const char* quantization : {"q0f32", "q0f16", "q4f16_1"}) {
    Gemma4Loaded& loaded = load(quantization);
    ops::Context context(GetParam(), 2);
    const Input input = make_input(context, loaded, long_text(150), {}, -1);
    const std::vector<float> whole =
        prefill_in_chunks(context, loaded, *loaded.new_cache(context), input, input.ids.size());
    for (const size_t chunk : {1, 7, 64}) {
      const std::vector<float> logits =
          prefill_in_chunks(context, loaded, *loaded.new_cache(context), input, chunk);
      EXPECT_LE(largest_difference(whole, logits), 1e-4f) << quantization << " in chunks of " << chunk;
    }
  }
}

TEST_P(EveryLevel, SlidingWindowsAgreeWithAFullRecomputation) {
  Gemma4Loaded& loaded = load("q0f32");
  const auto window = static_cast<size_t>(example_config().value.text.sliding_window);
  ops::Context context(GetParam(), 2);
  ops::Context plain(ops::Level::kReference, 1);
  const Input input = make_input(context, loaded, long_text(4 * window + 1), {}, -1);
  const auto cache = loaded.new_cache(context);
  for (size_t position = 0; position < input.ids.size(); ++position) {
    const std::vector<float> logits = position == 0 ? prefill(context, loaded, *cache, input, 0, 1)
                                                    : decode(context, loaded, *cache, input.ids[position]);
    if (position + 1 != window - 1 && position + 1 != window && position + 1 != window + 1 &&
        position + 1 != 4 * window)
      continue;
    const std::vector<float> again =
        prefill(plain, loaded, *loaded.new_cache(context), input, 0, position + 1);
    EXPECT_LE(largest_difference(logits, again), 1e-3f) << position + 1 << " positions";
  }
}

TEST_P(EveryLevel, SeveralSequencesAtOnceGiveWhatEachGivesAlone) {
  Gemma4Loaded& loaded = load("q4f16_1");
  ops::Context context(GetParam(), 2);
  const std::vector<size_t> lengths{50, 1, 33};
  std::vector<std::vector<float>> alone, alone_next;
  Input all;
  std::vector<int64_t> ids, counts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<int32_t> text = long_text(lengths[i] + i);
    text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i));
    const Input input = make_input(context, loaded, text, {}, -1);
    const auto cache = loaded.new_cache(context);
    alone.push_back(prefill(context, loaded, *cache, input, 0, input.ids.size()));
    alone_next.push_back(decode(context, loaded, *cache, best(alone.back())));
    all.ids.insert(all.ids.end(), input.ids.begin(), input.ids.end());
    all.modality.insert(all.modality.end(), input.modality.begin(), input.modality.end());
    all.embeddings.insert(all.embeddings.end(), input.embeddings.begin(), input.embeddings.end());
    ids.push_back(static_cast<int64_t>(10 + i));
    counts.push_back(static_cast<int64_t>(lengths[i]));
  }
  const auto cache = loaded.new_cache(context, 4);
  for (const int64_t id : ids) cache->add_sequence(id);
  const auto vocab = static_cast<size_t>(loaded.model.vocab_size());
  std::vector<float> logits(vocab * ids.size());
  cache->begin_forward(ids, counts);
  loaded.model.prefill_tokens(context, *cache, all.embeddings.data(), all.ids, all.modality, logits.data());
  cache->end_forward();
  std::vector<int32_t> next;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_LE(largest_difference(std::span(logits).subspan(i * vocab, vocab), alone[i]), 1e-5f);
    next.push_back(best(alone[i]));
  }
  const std::vector<int64_t> ones(ids.size(), 1);
  cache->begin_forward(ids, ones);
  loaded.model.decode_tokens(context, *cache, next, logits.data());
  cache->end_forward();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_LE(largest_difference(std::span(logits).subspan(i * vocab, vocab), alone_next[i]), 1e-5f);
  }
}

TEST_P(EveryLevel, ForksAndPopsContinueLikeAFreshSequence) {
  Gemma4Loaded& loaded = load("q4f16_1");
  ops::Context context(GetParam(), 2);
  const Input input = make_input(context, loaded, long_text(60), {}, -1);
  const auto fresh = loaded.new_cache(context);
  prefill(context, loaded, *fresh, input, 0, 40);
  const std::vector<float> expected = prefill(context, loaded, *fresh, input, 40, 60);

  const auto cache = loaded.new_cache(context, 2);
  prefill(context, loaded, *cache, input, 0, 40);
  cache->fork_sequence(0, 1, -1);
  decode(context, loaded, *cache, 7, 1);
  for (int i = 0; i < 5; ++i) decode(context, loaded, *cache, 9);
  cache->popn(0, 5);
  EXPECT_EQ(largest_difference(prefill(context, loaded, *cache, input, 40, 60), expected), 0.0f);
  cache->popn(1, 1);
  EXPECT_EQ(largest_difference(prefill(context, loaded, *cache, input, 40, 60, 1), expected), 0.0f);
}

TEST_P(EveryLevel, PredictedAudioRowsAreProduced) {
  Gemma4Loaded& loaded = load("q0f16");
  ops::Context context(GetParam(), 2);
  const auto hidden = static_cast<size_t>(loaded.model.hidden_size());
  std::vector<size_t> lengths{161, 320, 321, 480, 481, 479'999, 480'000};
  for (size_t length = 161; length < 60'000; length += 997) lengths.push_back(length);
  for (const size_t length : lengths) {
    const std::vector<float> silence(length, 0.0f);
    EXPECT_EQ(loaded.model.audio()(context, silence).size(),
              static_cast<size_t>(audio_rows(static_cast<int64_t>(length))) * hidden)
        << length;
  }
}

TEST_P(EveryLevel, ThreadsDoNotChangeTheBits) {
  Gemma4Loaded& loaded = load("q4f16_1");
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    ops::Context context(GetParam(), threads);
    const std::vector<float> rows = loaded.model.audio()(context, samples_of("audio/utterance04.wav"));
    if (first.empty()) first = rows;
    EXPECT_EQ(largest_difference(rows, first), 0.0f) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Gemma4, EveryLevel, ::testing::ValuesIn(runnable_levels()),
                         [](const auto& info) { return level_label(info.param); });

TEST(Gemma4Binding, EveryWrongTensorIsNamed) {
  ParameterTree tree(find_quantization("q4f16_1"));
  const Model model(tree, example_config());
  std::vector<TensorRef> tensors;
  const std::vector<int64_t> wrong{3, 5};
  for (const Parameter& parameter : tree.parameters())
    tensors.push_back({nullptr, parameter.shape, parameter.dtype});
  tensors[0].shape = wrong;
  tensors[5].dtype = DType::kFloat32;
  try {
    tree.bind(tensors);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problems().size(), 2u) << error.what();
    EXPECT_EQ(error.problems()[0].field, tree.parameters()[0].name);
  }
  tensors.pop_back();
  EXPECT_THROW(tree.bind(tensors), Error);
}

}  // namespace
}  // namespace dovetail::models
