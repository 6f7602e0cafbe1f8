// Token by token without a conversation.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "engine/engine.h"

namespace dovetail::engine {
namespace {

constexpr int64_t kMaxPassBytes = int64_t{64} << 20;  // of logits

}  // namespace

void Engine::restart() { reset_cache(); }

library::Rows Engine::append(std::span<const int32_t> ids) {
  check_ids(ids);
  const auto total = static_cast<int64_t>(cached_ids_.size() + ids.size());
  if (total > context_window_) {
    throw Error(ErrorCode::kLimit, Problem{.message = "the tokens do not fit into the context window",
                                           .expected = "at most " + std::to_string(context_window_),
                                           .actual = std::to_string(total)});
  }
  const int64_t vocab = model_.chat_config.vocab_size;
  int64_t most = 1;
  if (model_.program.has_prefill_all()) {
    most =
        std::clamp<int64_t>(kMaxPassBytes / (vocab * static_cast<int64_t>(sizeof(float))), 1, prefill_chunk_);
  }
  const auto rows = std::make_shared<std::vector<float>>();
  rows->reserve(ids.size() * static_cast<size_t>(vocab));
  for (std::span<const int32_t> rest = ids; !rest.empty();) {
    const size_t count = std::min(rest.size(), static_cast<size_t>(most));
    const library::Rows logits = count == 1 ? decode(rest[0]) : append_pass(rest.first(count));
    rows->insert(rows->end(), logits.all().begin(), logits.all().end());
    rest = rest.subspan(count);
  }
  return {.owner = rows, .data = rows->data(), .rows = static_cast<int64_t>(ids.size()), .width = vocab};
}

library::Rows Engine::append_pass(std::span<const int32_t> ids) {
  const library::Rows embedded = model_.program.embed(ids);
  const std::vector<int32_t> modality(ids.size(), 0);
  const auto count = static_cast<int64_t>(ids.size());
  const std::array<int64_t, 1> sequences = {kSequence};
  const std::array<int64_t, 1> lengths = {count};
  cache_valid_ = false;
  model_.program.kv_begin_forward(sequences, lengths);
  library::Rows logits = model_.program.prefill_all(embedded.all(), ids, modality);
  model_.program.kv_end_forward();
  cached_ids_.insert(cached_ids_.end(), ids.begin(), ids.end());
  cache_valid_ = true;
  check_logits(logits, count);
  return logits;
}

}  // namespace dovetail::engine
