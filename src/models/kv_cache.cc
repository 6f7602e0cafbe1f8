#include "models/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace dovetail::models {

struct KvCache::Group {
  int32_t window = 0;
  int64_t capacity = 0;             // pages
  std::vector<int32_t> free;        // taken from the back
  std::vector<int32_t> references;  // per page

  int32_t take() {
    const int32_t page = free.back();
    free.pop_back();
    references[static_cast<size_t>(page)] = 1;
    return page;
  }
  void drop(int32_t& page) {
    if (page >= 0 && --references[static_cast<size_t>(page)] == 0) free.push_back(page);
    page = -1;
  }
};

namespace {

[[noreturn]] void usage(std::string message, std::string expected = {}, std::string actual = {}) {
  throw Error(ErrorCode::kUsage, Problem{.message = std::move(message),
                                         .source = "KV cache",
                                         .expected = std::move(expected),
                                         .actual = std::move(actual)});
}

int64_t page_bytes(const KvLayer& layer, int64_t page_size, DType dtype) {
  return int64_t{layer.kv_heads} * layer.head_dim * page_size * dtype_bytes(dtype);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

KvCache::KvCache(std::span<const KvLayer> layers, const KvCacheSize& size, DType dtype)
    : size_(size), dtype_(dtype), layers_(layers.begin(), layers.end()) {
  const auto check = [](const char* name, int64_t value, int64_t limit) {
    if (value < 1 || value > limit)
      usage(std::string(name) + " is out of range", "1 … " + std::to_string(limit), std::to_string(value));
  };
  check("max_sequences", size.max_sequences, 1 << 16);
  check("max_total_length", size.max_total_length, int64_t{1} << 30);
  check("prefill_chunk", size.prefill_chunk, int64_t{1} << 24);
  if (size.page_size != ops::KvPages::page_size) {
    usage("page_size is not supported", std::to_string(ops::KvPages::page_size),
          std::to_string(size.page_size));
  }
  size_.prefill_chunk = std::min(size.prefill_chunk, size.max_total_length);

  for (const KvLayer& layer : layers_) {
    const auto same = [&](const Group& group) { return group.window == layer.window; };
    const auto found = std::find_if(groups_.begin(), groups_.end(), same);
    group_of_layer_.push_back(static_cast<size_t>(found - groups_.begin()));
    if (found != groups_.end()) continue;
    // Every sequence may leave one page partly used, and a windowed one keeps its window plus what is
    // appended.
    Group group{.window = layer.window};
    group.capacity = ceil_div(size_.max_total_length, size_.page_size) + size_.max_sequences;
    if (layer.window > 0) {
      const int64_t windows = size_.max_sequences * (ceil_div(layer.window, size_.page_size) + 2);
      group.capacity = std::min(group.capacity, windows + ceil_div(size_.prefill_chunk, size_.page_size));
    }
    group.references.assign(static_cast<size_t>(group.capacity), 0);
    for (int64_t page = group.capacity; page-- > 0;) group.free.push_back(static_cast<int32_t>(page));
    groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto bytes =
        try_mul(groups_[group_of_layer_[i]].capacity, page_bytes(layers_[i], size_.page_size, dtype_));
    for (std::vector<Mapping>* store : {&keys_, &values_}) {
      void* memory = !bytes ? MAP_FAILED
                            : ::mmap(nullptr, static_cast<size_t>(*bytes), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) {
        throw Error(ErrorCode::kLimit,
                    Problem{.message = "reserving memory for " + std::to_string(size.max_total_length) +
                                       " positions failed",
                            .source = "KV cache",
                            .hint = "use a smaller context"});
      }
      store->push_back(Mapping(static_cast<std::byte*>(memory), Unmap{static_cast<size_t>(*bytes)}));
    }
  }
}

KvCache::~KvCache() = default;

void KvCache::Unmap::operator()(std::byte* data) const { ::munmap(data, bytes); }

void KvCache::clear() {
  batch_.clear();
  for (auto& [id, sequence] : sequences_) release_from(sequence, 0);
  sequences_.clear();
}

KvCache::Sequence& KvCache::find(int64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) usage("no sequence has the id " + std::to_string(id));
  return found->second;
}

void KvCache::add_sequence(int64_t id) {
  if (static_cast<int64_t>(sequences_.size()) >= size_.max_sequences) {
    usage("too many sequences", "at most " + std::to_string(size_.max_sequences));
  }
  Sequence sequence;
  sequence.tables.resize(groups_.size());
  if (!sequences_.emplace(id, std::move(sequence)).second)
    usage("a sequence has the id " + std::to_string(id) + " already");
}

void KvCache::remove_sequence(int64_t id) {
  release_from(find(id), 0);
  sequences_.erase(id);
  batch_.clear();
}

// Frees the pages that lie wholly at or after `length`.
void KvCache::release_from(Sequence& sequence, int64_t length) {
  const auto keep = static_cast<size_t>(ceil_div(length, size_.page_size));
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t>& table = sequence.tables[g];
    for (size_t block = keep; block < table.size(); ++block) groups_[g].drop(table[block]);
    if (table.size() > keep) table.resize(keep);
  }
}

void KvCache::fork_sequence(int64_t parent, int64_t child, int64_t position) {
  Sequence& source = find(parent);
  if (position < 0) position = source.length;
  if (position > source.length)
    usage("fork position is past the end", "at most " + std::to_string(source.length),
          std::to_string(position));
  add_sequence(child);
  Sequence& target = sequences_.at(child);
  Sequence copy = find(parent);
  // The shared pages are counted before anything is freed again.
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t page : copy.tables[g]) {
      if (page >= 0) ++groups_[g].references[static_cast<size_t>(page)];
    }
  }
  target = std::move(copy);
  try {
    popn(child, target.length - position);
  } catch (...) {
    remove_sequence(child);
    throw;
  }
}

void KvCache::popn(int64_t id, int64_t count) {
  Sequence& sequence = find(id);
  if (count < 0 || count > sequence.length) {
    usage("can't drop that many positions", "0 … " + std::to_string(sequence.length), std::to_string(count));
  }
  const int64_t length = sequence.length - count;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].window == 0 || length == 0) continue;
    // The next token, at position `length`, sees window - 1 positions before it.
    const int64_t first = std::max<int64_t>(0, length - groups_[g].window + 1);
    if (first < length && sequence.tables[g][static_cast<size_t>(first / size_.page_size)] < 0) {
      throw Error(ErrorCode::kLimit,
                  Problem{.message = "a sliding window of " + std::to_string(groups_[g].window) +
                                     " positions no longer holds position " + std::to_string(first),
                          .source = "KV cache",
                          .hint = "clear the sequence and prefill it again"});
    }
  }
  release_from(sequence, length);
  sequence.length = static_cast<int32_t>(length);
  batch_.clear();
}

void KvCache::begin_forward(std::span<const int64_t> ids, std::span<const int64_t> lengths) {
  if (ids.size() != lengths.size())
    usage("as many lengths as sequence ids are needed", std::to_string(ids.size()),
          std::to_string(lengths.size()));
  int64_t total = 0;
  std::vector<Span> batch;
  std::vector<int64_t> needed(groups_.size(), 0);
  // A page is needed for every new block, and for a partly filled last block that a fork still shares.
  const auto shared = [&](const Group& group, const std::vector<int32_t>& table, size_t block) {
    return block < table.size() && table[block] >= 0 &&
           group.references[static_cast<size_t>(table[block])] > 1;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    if (lengths[i] < 1)
      usage("a sequence must append at least one position", "at least 1", std::to_string(lengths[i]));
    for (size_t j = 0; j < i; ++j) {
      if (ids[j] == ids[i]) usage("the sequence " + std::to_string(ids[i]) + " is listed twice");
    }
    Sequence& sequence = find(ids[i]);
    if (lengths[i] > size_.prefill_chunk - total) {
      usage("more positions than the cache was created for in one forward pass",
            "at most " + std::to_string(size_.prefill_chunk),
            std::to_string(total) + " and " + std::to_string(lengths[i]));
    }
    total += lengths[i];
    batch.push_back({ids[i], sequence.length, static_cast<int32_t>(lengths[i])});
  }
  // What an unfinished pass took, and what windows no longer see, is free again. That pass has ended, even
  // when this one is refused below: its pages are gone.
  batch_.clear();
  for (auto& [id, sequence] : sequences_) release_from(sequence, sequence.length);
  for (const Span& span : batch) {
    Sequence& sequence = find(span.sequence);
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      std::vector<int32_t>& table = sequence.tables[g];
      if (group.window > 0) {
        const int64_t first_visible = span.start - group.window + 1;
        for (int64_t block = first_visible / size_.page_size - 1;
             block >= 0 && table[static_cast<size_t>(block)] >= 0; --block) {
          group.drop(table[static_cast<size_t>(block)]);
        }
      }
      const int64_t blocks = ceil_div(span.start + span.count, size_.page_size);
      needed[g] += blocks - static_cast<int64_t>(table.size());
      needed[g] += shared(group, table, static_cast<size_t>(span.start / size_.page_size)) ? 1 : 0;
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (needed[g] > static_cast<int64_t>(groups_[g].free.size()) ||
        total_length() + total > size_.max_total_length) {
      throw Error(
          ErrorCode::kLimit,
          Problem{.message = "the KV cache is full: " + std::to_string(total) + " more positions do not fit",
                  .source = "KV cache",
                  .expected = "at most " + std::to_string(size_.max_total_length) + " positions in all",
                  .actual = std::to_string(total_length() + total),
                  .hint = "start a new conversation or create the cache for a larger context"});
    }
  }
  for (const Span& span : batch) {
    Sequence& sequence = find(span.sequence);
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      std::vector<int32_t>& table = sequence.tables[g];
      const auto last = static_cast<size_t>(span.start / size_.page_size);
      if (shared(group, table, last)) {
        const int32_t copy = group.take();
        copy_page(group, table[last], copy);
        group.drop(table[last]);
        table[last] = copy;
      }
      const auto blocks = static_cast<size_t>(ceil_div(span.start + span.count, size_.page_size));
      while (table.size() < blocks) table.push_back(group.take());
    }
  }
  batch_ = std::move(batch);
}

void KvCache::copy_page(const Group& group, int32_t from, int32_t to) {
  const size_t index = static_cast<size_t>(&group - groups_.data());
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (group_of_layer_[i] != index) continue;
    const auto bytes = static_cast<size_t>(page_bytes(layers_[i], size_.page_size, dtype_));
    for (std::byte* store : {keys_[i].get(), values_[i].get()}) {
      std::memcpy(store + static_cast<size_t>(to) * bytes, store + static_cast<size_t>(from) * bytes, bytes);
    }
  }
}

void KvCache::end_forward() {
  for (const Span& span : batch_) find(span.sequence).length = span.start + span.count;
  batch_.clear();
}

int64_t KvCache::available_pages() const {
  size_t pages = groups_.empty() ? 0 : groups_[0].free.size();
  for (const Group& group : groups_) pages = std::min(pages, group.free.size());
  return static_cast<int64_t>(pages);
}

int64_t KvCache::total_length() const {
  int64_t total = 0;
  for (const auto& [id, sequence] : sequences_) total += sequence.length;
  return total;
}

ops::KvPages KvCache::pages(size_t layer, int64_t sequence) const {
  return {.type = dtype_,
          .keys = keys_[layer].get(),
          .values = values_[layer].get(),
          .pages = sequences_.at(sequence).tables[group_of_layer_[layer]].data(),
          .kv_heads = layers_[layer].kv_heads,
          .head_dim = layers_[layer].head_dim};
}

}  // namespace dovetail::models
