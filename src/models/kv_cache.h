// The paged KV cache of a compiled library. Layers with the same window form a group that shares page tables;
// windowed groups free the pages that no later token can see. Pages are shared between forked sequences and
// copied when written. Page memory is reserved at creation and takes physical memory when first written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "models/quantization.h"
#include "ops/ops.h"

namespace dovetail::models {

// One layer that stores keys and values. window 0: all positions stay visible; else a token sees itself and
// the window - 1 positions before it.
struct KvLayer {
  int32_t kv_heads;
  int32_t head_dim;
  int32_t window;
};

// Keys and values are stored in float16 where the model is and activations may be rounded, else in float32:
// bfloat16 would lose accuracy.
constexpr DType kv_dtype(const Quantization& quantization, ops::Precision precision) {
  const bool half = quantization.model_dtype == DType::kFloat16 && precision == ops::Precision::kInt8;
  return half ? DType::kFloat16 : DType::kFloat32;
}

struct KvCacheSize {
  int64_t max_sequences;
  int64_t max_total_length;  // positions of all sequences together
  int64_t prefill_chunk;     // most positions that one forward pass appends, all sequences together
  int64_t page_size;         // ops::KvPages::page_size, the only one the kernels know
};

class KvCache {
 public:
  // One sequence of the current forward pass: it appends `count` positions from `start`.
  struct Span {
    int64_t sequence;
    int32_t start;
    int32_t count;
  };

  // Throws Error kUsage for sizes that make no sense, kLimit when the memory can't be reserved.
  KvCache(std::span<const KvLayer> layers, const KvCacheSize& size, DType dtype);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // The functions below throw Error kUsage for unknown or duplicate ids and kLimit when the cache is full; a
  // call that throws leaves the sequences as they were.
  void clear();
  void add_sequence(int64_t id);
  void remove_sequence(int64_t id);
  // `child` begins as the first `position` positions of `parent` (-1: all of them).
  void fork_sequence(int64_t parent, int64_t child, int64_t position);
  // Drops the last `count` positions. Throws kLimit when a windowed layer no longer holds what the shorter
  // sequence would see.
  void popn(int64_t id, int64_t count);
  void begin_forward(std::span<const int64_t> ids, std::span<const int64_t> lengths);
  // The positions appended since begin_forward become part of their sequences.
  void end_forward();

  int64_t available_pages() const;
  int64_t total_length() const;

  std::span<const Span> batch() const { return batch_; }
  int64_t prefill_chunk() const { return size_.prefill_chunk; }
  ops::KvPages pages(size_t layer, int64_t sequence) const;

 private:
  struct Group;
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* data) const;
  };
  using Mapping = std::unique_ptr<std::byte, Unmap>;
  struct Sequence {
    int32_t length = 0;
    std::vector<std::vector<int32_t>> tables;  // per group: page of every page_size positions, -1 where freed
  };

  Sequence& find(int64_t id);
  void release_from(Sequence& sequence, int64_t length);
  void copy_page(const Group& group, int32_t from, int32_t to);

  KvCacheSize size_;
  DType dtype_;
  std::vector<KvLayer> layers_;
  std::vector<size_t> group_of_layer_;
  std::vector<Mapping> keys_;
  std::vector<Mapping> values_;
  std::vector<Group> groups_;
  std::map<int64_t, Sequence> sequences_;
  std::vector<Span> batch_;
};

}  // namespace dovetail::models
