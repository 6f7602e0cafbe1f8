// Answers conversations with one model. One Engine serves one conversation at a time; it keeps the KV cache
// of the last one, so that a conversation that goes on is not computed again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/adapter_cache.h"
#include "engine/conversation.h"
#include "engine/prompt.h"
#include "engine/sampler.h"
#include "library/model.h"

namespace dovetail::engine {

struct EngineOptions {
  int threads = 0;     // 0: the library's choice
  bool exact = false;  // float32 activations instead of int8
  int64_t adapter_cache_bytes = int64_t{256} << 20;
};

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = 0;  // 0: until the context window is full
};

struct Callbacks {
  // The whole prompt, once, before anything is computed: where its media are.
  std::function<void(const Prompt& prompt)> prompt;
  // A piece of the reply; whole UTF-8 characters.
  std::function<void(std::string_view text)> text;
  // What is being done before the first token, for a progress line.
  std::function<void(std::string_view status)> status;
  // Asked before every token, prefill chunk and adapter call; true ends the reply with what there is.
  std::function<bool()> cancelled;
};

enum class FinishReason { kStop, kLength, kCancelled };
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

struct Usage {
  int64_t prompt_tokens = 0;      // all positions, media included
  int64_t media_tokens = 0;       // positions that adapters fill
  int64_t cached_tokens = 0;      // prompt positions that were still in the KV cache
  int64_t completion_tokens = 0;  // without the stop token
};

struct Timings {
  double adapter_seconds = 0;  // in adapters
  double prefill_seconds = 0;
  double decode_seconds = 0;       // after the first token
  double first_token_seconds = 0;  // from the call to the first sampled token
};

struct Reply {
  std::string text;
  std::vector<int32_t> token_ids;  // without the stop token
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  Timings timings;
};

class Engine {
 public:
  // Throws Error for a library that refuses the options or the cache's size.
  Engine(library::Model model, const EngineOptions& options = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const library::Model& model() const { return model_; }
  int64_t context_window() const { return context_window_; }
  int64_t prefill_chunk() const { return prefill_chunk_; }
  // Tokens that can be sampled; the rest of the vocabulary's rows is padding.
  int64_t active_vocab() const { return active_vocab_; }

  // Media for this model: see engine/media.h.
  std::shared_ptr<const Media> audio(std::string_view bytes, const std::string& source) const;
  std::shared_ptr<const Media> audio(std::span<const float> samples) const;
  std::shared_ptr<const Media> image(std::string_view bytes, const std::string& source) const;
  std::shared_ptr<const Media> image(std::vector<uint8_t> pixels) const;

  // Token ids of a conversation, media rows counted but nothing computed unless the library can't count.
  Prompt prompt(const Conversation& conversation);

  // Throws Error kLimit before any adapter runs when the prompt exceeds the context window, kMismatch when an
  // adapter returns another number of rows than the library announced, kNumeric for non-finite logits.
  Reply generate(const Conversation& conversation, const GenerateOptions& options,
                 const Callbacks& callbacks = {});

  // Logits [1 + reply ids, vocab], row-major: at the prompt's last position, then after each token of the
  // reply.
  struct Logits {
    std::vector<int32_t> prompt_ids;
    std::vector<float> values;
    int64_t rows = 0;
    int64_t vocab = 0;
  };
  Logits logits(const Conversation& conversation, std::span<const int32_t> reply_ids);
  // The same for the ids of a prompt of text.
  Logits logits(std::span<const int32_t> prompt_ids, std::span<const int32_t> reply_ids);

  // Token by token without a conversation, for measurements: forgets what the KV cache holds, ...
  void restart();
  // ... and appends `ids`: [ids, vocab], the logits after each of them. Throws Error kLimit when the context
  // window is full, kUsage for an id that is not in the vocabulary.
  library::Rows append(std::span<const int32_t> ids);

  // Computes the prompt anew and returns the logits of its last position; for measurements.
  library::Rows prefill(const Prompt& prompt);
  // Appends one token and returns the logits after it.
  library::Rows decode(int32_t id);
  // Runs the medium's adapter without the cache.
  library::Rows run_adapter(const Media& media) const;

 private:
  Logits logits(const Prompt& prompt, std::span<const int32_t> reply_ids);
  int64_t media_rows(const Media& media);
  library::Rows adapter_output(const Media& media, Timings& timings, const Callbacks& callbacks);
  void check_context(const Prompt& prompt, int64_t extra) const;
  int64_t reuse_cache(const Prompt& prompt);
  void reset_cache();
  bool fill(const Prompt& prompt, const Callbacks& callbacks, Reply& reply, library::Rows& logits);
  library::Rows prefill_chunk(const Prompt& prompt, const Chunk& chunk, std::span<const library::Rows> media);
  library::Rows append_pass(std::span<const int32_t> ids);
  void check_ids(std::span<const int32_t> ids) const;
  void check_logits(const library::Rows& logits, int64_t rows = 1) const;

  static constexpr int64_t kSequence = 0;  // the only one

  library::Model model_;
  int64_t context_window_ = 0;
  int64_t prefill_chunk_ = 0;
  int64_t hidden_size_ = 0;
  int64_t active_vocab_ = 0;
  AdapterCache adapter_cache_;
  // What the KV cache holds. It is written before the library's state changes for the worse and after it
  // changes for the better, so that an error in between costs a recomputation and never a wrong answer.
  std::vector<int32_t> cached_ids_;
  std::vector<MediaSpan> cached_media_;
  bool cache_valid_ = false;
};

}  // namespace dovetail::engine
