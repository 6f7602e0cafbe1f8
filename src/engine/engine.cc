#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "base/progress.h"
#include "engine/media.h"
#include "engine/stop_strings.h"

namespace dovetail::engine {
namespace {

constexpr int64_t kPageSize = 16;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

std::string adapter_status(const Media& media) {
  if (media.height == 0) return "listening to " + format_seconds(media.seconds) + " of " + media.input;
  return "looking at " + (media.source.empty() ? "the picture" : media.source);
}

bool cancelled(const Callbacks& callbacks) { return callbacks.cancelled && callbacks.cancelled(); }

std::vector<int64_t> stop_ids(const package::ChatConfig& config) {
  return config.conv_template.stop_token_ids.empty() ? config.eos_token_ids
                                                     : config.conv_template.stop_token_ids;
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

Engine::Engine(library::Model model, const EngineOptions& options)
    : model_(std::move(model)), adapter_cache_(options.adapter_cache_bytes) {
  const package::ChatConfig& config = model_.chat_config;
  const contract::LibraryMetadata& metadata = model_.metadata();
  context_window_ =
      std::min(config.context_window_size, metadata.context_window_size.value_or(config.context_window_size));
  prefill_chunk_ = std::min(metadata.prefill_chunk_size.value_or(config.prefill_chunk_size), context_window_);
  active_vocab_ = config.active_vocab_size > 0 ? config.active_vocab_size : config.vocab_size;
  library::Program& program = model_.program;
  if (options.threads > 0 && !program.set_threads(options.threads)) {
    throw Error(ErrorCode::kUnsupported, "this library does not let the number of threads be set");
  }
  if (options.exact && !program.set_precision("exact")) {
    throw Error(ErrorCode::kUnsupported, "this library has no exact mode");
  }
  model_.program.create_kv_cache(
      {.max_total_length = context_window_,
       .prefill_chunk = prefill_chunk_,
       .page_size = kPageSize,
       .sliding_window = metadata.sliding_window_size.value_or(config.sliding_window_size) > 0});
  // As a library copies its weights, the mapped ones go: the two together would be twice the model.
  program.bind_parameters([&](size_t position) {
    model_.weights.release_pages(model_.weights.get((*metadata.params)[position].name));
  });
  const std::array<int32_t, 1> any_token = {0};
  hidden_size_ = program.embed(any_token).width;
  // A library without bind_parameters has copied them by now.
  model_.weights.release_pages();
}

std::shared_ptr<const Media> Engine::audio(std::string_view bytes, const std::string& source) const {
  return read_audio(model_, bytes, source);
}

std::shared_ptr<const Media> Engine::audio(std::span<const float> samples) const {
  return audio_from_samples(model_, samples);
}

std::shared_ptr<const Media> Engine::image(std::string_view bytes, const std::string& source) const {
  return read_image(model_, bytes, source);
}

std::shared_ptr<const Media> Engine::image(std::vector<uint8_t> pixels) const {
  return image_from_pixels(model_, std::move(pixels));
}

Prompt Engine::prompt(const Conversation& conversation) {
  const auto encode = [&](const std::string& text) { return model_.tokenizer.encode(text); };
  const auto rows = [&](const Media& media) { return media_rows(media); };
  Prompt prompt =
      build_prompt(conversation, model_.chat_config.conv_template, model_.task.inputs, encode, rows);
  for (int32_t id : prompt.ids) {
    if (id >= 0 && id < model_.chat_config.vocab_size) continue;
    throw Error(
        ErrorCode::kMismatch,
        Problem{.message = "the prompt has a token that the model does not have",
                .expected = "below " + std::to_string(model_.chat_config.vocab_size),
                .actual = std::to_string(id),
                .hint = "the package's tokenizer or conversation template belongs to another model: convert "
                        "the package again"});
  }
  return prompt;
}

// Where the library can't count, the adapter has to run before the context check.
int64_t Engine::media_rows(const Media& media) {
  Timings unused;
  const int64_t rows = media.rows ? *media.rows : adapter_output(media, unused, {}).rows;
  if (rows >= 1 && rows <= context_window_) return rows;
  // Checked for each medium, before as many positions are written down.
  throw Error(rows < 1 ? ErrorCode::kMismatch : ErrorCode::kLimit,
              Problem{.message = rows < 1 ? "the library gives the medium no positions"
                                          : "one medium does not fit into the context window",
                      .field = media.input,
                      .expected = "1 to " + std::to_string(context_window_) + " tokens",
                      .actual = std::to_string(rows),
                      .hint = rows < 1           ? "compile the library again with 'dovetail compile'"
                              : media.height > 0 ? "use a package with a larger context window"
                                                 : "send a shorter recording"});
}

library::Rows Engine::run_adapter(const Media& media) const {
  if (media.height > 0)
    return model_.program.run_adapter(media.adapter, media.pixels, media.height, media.width);
  const std::array<int64_t, 1> shape = {static_cast<int64_t>(media.samples.size())};
  return model_.program.run_adapter(media.adapter,
                                    library::borrow_tensor(media.samples.data(), shape, DType::kFloat32));
}

library::Rows Engine::adapter_output(const Media& media, Timings& timings, const Callbacks& callbacks) {
  const std::string key = media.input + ":" + media.sha256;
  if (std::optional<library::Rows> rows = adapter_cache_.find(key)) return *rows;
  if (callbacks.status) callbacks.status(adapter_status(media));
  const Stopwatch watch;
  library::Rows rows = run_adapter(media);
  timings.adapter_seconds += watch.seconds();
  const auto refuse = [&](const char* what, int64_t expected, int64_t actual) {
    throw Error(ErrorCode::kMismatch,
                Problem{.message = std::string("the adapter returned another ") + what + " than announced",
                        .source = model_.library.path().string(),
                        .field = media.adapter,
                        .expected = std::to_string(expected),
                        .actual = std::to_string(actual),
                        .hint = "compile the library again with 'dovetail compile'"});
  };
  if (media.rows && rows.rows != *media.rows) refuse("number of rows", *media.rows, rows.rows);
  if (rows.width != hidden_size_) refuse("row width", hidden_size_, rows.width);
  if (!std::ranges::all_of(rows.all(), [](float value) { return std::isfinite(value); })) {
    throw Error(
        ErrorCode::kNumeric,
        Problem{.message = "the adapter computed a value that is not a finite number",
                .field = media.input,
                .hint = "samples far beyond -1 to 1 lead to this; otherwise the weights may be damaged: "
                        "check them with 'dovetail verify --deep'"});
  }
  adapter_cache_.insert(key, rows);
  return rows;
}

void Engine::check_context(const Prompt& prompt, int64_t extra) const {
  if (prompt.size() + extra <= context_window_) return;
  std::map<std::string, int64_t> media_tokens;
  for (const MediaSpan& span : prompt.media) media_tokens[span.media->input] += span.rows;
  std::string parts = std::to_string(prompt.size() - prompt.media_tokens()) + " text";
  for (const auto& [input, tokens] : media_tokens) parts += ", " + std::to_string(tokens) + " " + input;
  if (extra > 0) parts += ", " + std::to_string(extra) + " reply";
  throw Error(ErrorCode::kLimit,
              Problem{.message = "the conversation does not fit into the context window",
                      .expected = "at most " + std::to_string(context_window_) + " tokens",
                      .actual = std::to_string(prompt.size() + extra) + " (" + parts + ")",
                      .hint = "shorten the message, leave media out, or begin a new conversation"});
}

void Engine::reset_cache() {
  cached_ids_.clear();
  cached_media_.clear();
  cache_valid_ = false;
  model_.program.kv_clear();
  model_.program.kv_add_sequence(kSequence);
  cache_valid_ = true;
}

// Makes the KV cache hold a beginning of the prompt, as long as possible but not all of it (the last position
// has to be computed for its logits). Returns its length.
int64_t Engine::reuse_cache(const Prompt& prompt) {
  if (!cache_valid_) {
    reset_cache();
    return 0;
  }
  int64_t keep = common_prefix(cached_ids_, cached_media_, prompt.ids, prompt.media);
  keep = std::min(keep, prompt.size() - 1);
  for (const MediaSpan& span : prompt.media) {
    if (span.begin < keep && keep < span.begin + span.rows) keep = span.begin;
  }
  const int64_t surplus = static_cast<int64_t>(cached_ids_.size()) - keep;
  if (keep == 0 || (surplus > 0 && !model_.program.kv_pop(kSequence, surplus))) {
    reset_cache();
    return 0;
  }
  cached_ids_.resize(keep);
  std::erase_if(cached_media_, [&](const MediaSpan& span) { return span.begin >= keep; });
  return keep;
}

library::Rows Engine::prefill_chunk(const Prompt& prompt, const Chunk& chunk,
                                    std::span<const library::Rows> media) {
  const int64_t length = chunk.end - chunk.begin;
  const std::span<const int32_t> ids = std::span(prompt.ids).subspan(chunk.begin, length);
  const std::span<const int32_t> modality_ids = std::span(prompt.modality_ids).subspan(chunk.begin, length);
  // Placeholders are not looked up: their rows come from the adapter, and their ids need not be in the
  // vocabulary table of every model.
  std::vector<int32_t> text_ids;
  for (int64_t i = 0; i < length; ++i) {
    if (modality_ids[i] == 0) text_ids.push_back(ids[i]);
  }
  library::Rows text;
  if (!text_ids.empty()) text = model_.program.embed(text_ids);
  std::vector<float> mixed;
  std::span<const float> embeddings = text.all();
  if (static_cast<int64_t>(text_ids.size()) < length) {
    mixed.resize(length * hidden_size_);
    int64_t text_row = 0;
    for (int64_t i = 0; i < length; ++i) {
      if (modality_ids[i] == 0) std::ranges::copy(text.row(text_row++), mixed.begin() + i * hidden_size_);
    }
    for (size_t m = 0; m < prompt.media.size(); ++m) {
      const int64_t span_begin = prompt.media[m].begin;
      const int64_t begin = std::max(span_begin, chunk.begin);
      const int64_t end = std::min(span_begin + prompt.media[m].rows, chunk.end);
      for (int64_t at = begin; at < end; ++at) {
        std::ranges::copy(media[m].row(at - span_begin), mixed.begin() + (at - chunk.begin) * hidden_size_);
      }
    }
    embeddings = mixed;
  }
  cache_valid_ = false;
  const std::array<int64_t, 1> sequences = {kSequence};
  const std::array<int64_t, 1> lengths = {length};
  model_.program.kv_begin_forward(sequences, lengths);
  library::Rows logits = model_.program.prefill(embeddings, ids, modality_ids);
  model_.program.kv_end_forward();
  cached_ids_.insert(cached_ids_.end(), ids.begin(), ids.end());
  for (const MediaSpan& span : prompt.media) {
    if (span.begin >= chunk.begin && span.begin < chunk.end) cached_media_.push_back(span);
  }
  cache_valid_ = true;
  check_logits(logits);
  return logits;
}

void Engine::check_logits(const library::Rows& logits, int64_t rows) const {
  if (logits.rows == rows && logits.width == model_.chat_config.vocab_size) return;
  throw Error(ErrorCode::kMismatch, Problem{.message = "the library returned logits of an unexpected shape",
                                            .source = model_.library.path().string(),
                                            .expected = "[" + std::to_string(rows) + ", " +
                                                        std::to_string(model_.chat_config.vocab_size) + "]",
                                            .actual = "[" + std::to_string(logits.rows) + ", " +
                                                      std::to_string(logits.width) + "]"});
}

// Brings the whole prompt into the KV cache. False when cancelled.
bool Engine::fill(const Prompt& prompt, const Callbacks& callbacks, Reply& reply, library::Rows& logits) {
  const int64_t begin = reuse_cache(prompt);
  reply.usage.prompt_tokens = prompt.size();
  reply.usage.media_tokens = prompt.media_tokens();
  reply.usage.cached_tokens = begin;
  std::vector<library::Rows> media(prompt.media.size());
  for (const Chunk& chunk : plan_chunks(prompt, begin, prefill_chunk_)) {
    for (size_t m = 0; m < media.size(); ++m) {
      const MediaSpan& span = prompt.media[m];
      if (span.begin >= chunk.end || span.begin + span.rows <= chunk.begin || media[m].data != nullptr)
        continue;
      if (cancelled(callbacks)) return false;
      media[m] = adapter_output(*span.media, reply.timings, callbacks);
      if (media[m].rows != span.rows) {
        throw Error(ErrorCode::kMismatch,
                    Problem{.message = "the adapter returned another number of rows than before",
                            .source = model_.library.path().string(),
                            .field = span.media->adapter,
                            .expected = std::to_string(span.rows),
                            .actual = std::to_string(media[m].rows)});
      }
    }
    if (cancelled(callbacks)) return false;
    const Stopwatch watch;
    logits = prefill_chunk(prompt, chunk, media);
    reply.timings.prefill_seconds += watch.seconds();
  }
  return true;
}

Reply Engine::generate(const Conversation& conversation, const GenerateOptions& options,
                       const Callbacks& callbacks) {
  const Stopwatch watch;
  Reply reply;
  Sampler sampler(options.sampling, active_vocab_);
  const Prompt prompt = this->prompt(conversation);
  check_context(prompt, 0);
  if (callbacks.prompt) callbacks.prompt(prompt);
  library::Rows logits;
  if (!fill(prompt, callbacks, reply, logits)) {
    reply.finish_reason = FinishReason::kCancelled;
    return reply;
  }
  const std::vector<int64_t> stop_tokens = stop_ids(model_.chat_config);
  package::StreamDecoder decoder(model_.tokenizer);
  StopStrings stops(model_.chat_config.conv_template.stop_str);
  const auto emit = [&](const std::string& text) {
    if (text.empty()) return;
    reply.text += text;
    if (callbacks.text) callbacks.text(text);
  };
  double first_token = 0;
  while (true) {
    if (cancelled(callbacks)) {
      reply.finish_reason = FinishReason::kCancelled;
      break;
    }
    const int32_t id = sampler.next(logits.row(0));
    if (first_token == 0) first_token = watch.seconds();
    if (std::ranges::find(stop_tokens, id) != stop_tokens.end()) break;
    reply.token_ids.push_back(id);
    emit(stops.push(decoder.push(id)));
    if (stops.found()) break;
    const bool enough =
        options.max_tokens > 0 && static_cast<int64_t>(reply.token_ids.size()) >= options.max_tokens;
    if (enough || static_cast<int64_t>(cached_ids_.size()) >= context_window_) {
      reply.finish_reason = FinishReason::kLength;
      break;
    }
    logits = decode(id);
  }
  emit(stops.push(decoder.finish()));
  emit(stops.finish());
  if (stops.found()) reply.finish_reason = FinishReason::kStop;
  reply.usage.completion_tokens = static_cast<int64_t>(reply.token_ids.size());
  reply.timings.first_token_seconds = first_token;
  reply.timings.decode_seconds = first_token > 0 ? watch.seconds() - first_token : 0;
  return reply;
}

library::Rows Engine::decode(int32_t id) {
  cache_valid_ = false;
  const std::array<int64_t, 1> sequences = {kSequence};
  const std::array<int64_t, 1> lengths = {1};
  const std::array<int32_t, 1> ids = {id};
  model_.program.kv_begin_forward(sequences, lengths);
  library::Rows logits = model_.program.decode(ids);
  model_.program.kv_end_forward();
  cached_ids_.push_back(id);
  cache_valid_ = true;
  check_logits(logits);
  return logits;
}

void Engine::check_ids(std::span<const int32_t> ids) const {
  for (int32_t id : ids) {
    if (id >= 0 && id < model_.chat_config.vocab_size) continue;
    throw Error(ErrorCode::kUsage,
                Problem{.message = "a token id is not in the vocabulary",
                        .expected = "0 to " + std::to_string(model_.chat_config.vocab_size - 1),
                        .actual = std::to_string(id)});
  }
}

library::Rows Engine::prefill(const Prompt& prompt) {
  check_context(prompt, 0);
  reset_cache();
  Reply unused;
  library::Rows logits;
  fill(prompt, {}, unused, logits);
  return logits;
}

Engine::Logits Engine::logits(const Conversation& conversation, std::span<const int32_t> reply_ids) {
  return logits(this->prompt(conversation), reply_ids);
}

Engine::Logits Engine::logits(std::span<const int32_t> prompt_ids, std::span<const int32_t> reply_ids) {
  if (prompt_ids.empty()) throw Error(ErrorCode::kUsage, "a prompt has at least one token id");
  check_ids(prompt_ids);
  Prompt prompt{.ids = {prompt_ids.begin(), prompt_ids.end()}};
  prompt.modality_ids.assign(prompt.ids.size(), 0);
  return logits(prompt, reply_ids);
}

Engine::Logits Engine::logits(const Prompt& prompt, std::span<const int32_t> reply_ids) {
  check_ids(reply_ids);
  check_context(prompt, static_cast<int64_t>(reply_ids.size()));
  Logits result{.prompt_ids = prompt.ids,
                .rows = 1 + static_cast<int64_t>(reply_ids.size()),
                .vocab = model_.chat_config.vocab_size};
  const auto append = [&](const library::Rows& logits) {
    const std::span<const float> row = logits.row(0);
    result.values.insert(result.values.end(), row.begin(), row.end());
  };
  append(prefill(prompt));
  for (int32_t id : reply_ids) append(decode(id));
  return result;
}

}  // namespace dovetail::engine
