// The rows of one forward pass: which sequence and position each belongs to, their rotary angles, and
// attention over them. Shared by the text models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "models/kv_cache.h"
#include "ops/ops.h"

namespace dovetail::models {

// The positions of a pass that get logits.
enum class LogitRows { kLast, kAll };  // kLast: the last one of each sequence

class Rows {
 public:
  // The rows of one sequence, side by side.
  struct Part {
    int64_t sequence;
    int64_t first_row;
    int64_t count;
    int32_t first_position;
  };

  explicit Rows(const KvCache& kv, LogitRows wanted = LogitRows::kLast) {
    for (const KvCache::Span& span : kv.batch()) {
      parts_.push_back({span.sequence, count(), span.count, span.start});
      for (int32_t i = 0; i < span.count; ++i) {
        if (wanted == LogitRows::kAll || i == span.count - 1) wanted_.push_back(count());
        positions_.push_back(span.start + i);
      }
    }
    see_the_past();
  }

  // Positions whose modality is 1 and that lie side by side see each other in both directions, as one image
  // does.
  void see_each_other(std::span<const int32_t> modality) {
    for (const Part& part : parts_) {
      const int64_t end = part.first_row + part.count;
      for (int64_t row = part.first_row; row < end;) {
        int64_t span_end = row;
        while (span_end < end && modality[static_cast<size_t>(span_end)] == 1) ++span_end;
        for (int64_t i = row; i < span_end; ++i) {
          span_end_[static_cast<size_t>(i)] = positions_[static_cast<size_t>(span_end - 1)] + 1;
        }
        row = std::max(span_end, row + 1);
      }
    }
  }

  int64_t count() const { return static_cast<int64_t>(positions_.size()); }
  std::span<const Part> parts() const { return parts_; }
  std::span<const int32_t> positions() const { return positions_; }
  // The rows that get logits.
  std::span<const int64_t> wanted() const { return wanted_; }

  // What a row sees in a layer with this window (0: none): itself, what lies before it, and the rest of its
  // span.
  std::pair<int32_t, int32_t> visible(int64_t row, int32_t window) const {
    const auto i = static_cast<size_t>(row);
    return {window > 0 ? std::max(0, positions_[i] + 1 - window) : 0, span_end_[i]};
  }

  // Of [count, width] values, those of the wanted rows.
  std::vector<float> wanted_of(const float* values, int64_t width) const {
    std::vector<float> out;
    for (const int64_t row : wanted_) out.insert(out.end(), values + row * width, values + (row + 1) * width);
    return out;
  }

  // Only the wanted rows stay.
  void keep_wanted() {
    if (wanted_.size() == positions_.size()) return;  // all of them; else one of each sequence
    std::vector<int32_t> kept;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int32_t position = positions_[static_cast<size_t>(wanted_[i])];
      parts_[i] = {parts_[i].sequence, static_cast<int64_t>(i), 1, position};
      wanted_[i] = static_cast<int64_t>(i);
      kept.push_back(position);
    }
    positions_ = std::move(kept);
    see_the_past();
  }

 private:
  void see_the_past() {
    span_end_.clear();
    for (const int32_t position : positions_) span_end_.push_back(position + 1);
  }

  std::vector<Part> parts_;
  std::vector<int64_t> wanted_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> span_end_;  // of each row: one past the last position it sees
};

// Rotary angles of the rows of a pass, for one kind of layer: [rows, head_dim / 2].
struct Angles {
  std::vector<float> frequencies, cos, sin;

  void fill(const Rows& rows) {
    cos.resize(static_cast<size_t>(rows.count()) * frequencies.size());
    sin.resize(cos.size());
    ops::rope_tables(rows.positions(), frequencies, cos.data(), sin.data());
  }
};

// Rows [first, first + count) of a matrix.
inline ops::Matrix row_range(const ops::Matrix& w, int64_t first, int64_t count) {
  ops::Matrix out = w;
  out.rows = count;
  out.data = static_cast<const std::byte*>(w.data) + first * ops::row_bytes(w);
  if (w.scales != nullptr)
    out.scales = static_cast<const std::byte*>(w.scales) + first * ops::scale_row_bytes(w);
  return out;
}

// One layer's attention.
struct LayerAttention {
  int64_t heads;
  int64_t head_dim;
  int64_t kv_heads;
  int32_t window;  // 0: none
  float scale;
  float softcap = 0;  // 0: none
  const float* q;     // [rows, heads, head_dim]
  const float* k;     // [rows, kv_heads, head_dim]; null when the layer reads what another stored
  const float* v;
  float* out;  // [rows, heads, head_dim]
};

// Stores k and v at the rows' positions of `kv_layer`, then attends.
inline void attend(ops::Context& context, const KvCache& kv, size_t kv_layer, const Rows& rows,
                   const LayerAttention& args) {
  std::vector<int32_t> begin(static_cast<size_t>(rows.count())), end(begin.size());
  for (int64_t row = 0; row < rows.count(); ++row) {
    std::tie(begin[static_cast<size_t>(row)], end[static_cast<size_t>(row)]) = rows.visible(row, args.window);
  }
  for (const Rows::Part& part : rows.parts()) {
    const ops::KvPages pages = kv.pages(kv_layer, part.sequence);
    if (args.k != nullptr) {
      const int64_t offset = part.first_row * args.kv_heads * args.head_dim;
      ops::store_kv(context, args.k + offset, args.v + offset, part.count, part.first_position, pages);
    }
    const auto first = static_cast<size_t>(part.first_row), count = static_cast<size_t>(part.count);
    const int64_t offset = part.first_row * args.heads * args.head_dim;
    ops::attention(context,
                   {.q = args.q + offset,
                    .m = part.count,
                    .heads = args.heads,
                    .begin = std::span(begin).subspan(first, count),
                    .end = std::span(end).subspan(first, count),
                    .scale = args.scale,
                    .softcap = args.softcap,
                    .out = args.out + offset},
                   pages);
  }
}

}  // namespace dovetail::models
