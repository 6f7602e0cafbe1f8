// Attention over the paged keys and values, and the local attention of the audio tower.
#include <algorithm>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/split.h"

namespace dovetail::ops {
namespace {

// Floats of queries, scores and sums that one tile may have, to stay in the second-level cache. The more rows
// (queries × heads), the less often keys and values are read again.
constexpr int64_t kTileFloats = 52 * 1024;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void store_kv(Context& context, const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv) {
  const int64_t row = int64_t{kv.kv_heads} * kv.head_dim;
  split(context, m, 2.0 * static_cast<double>(row), KvPages::page_size, [&](int64_t begin, int64_t end, int) {
    context.kernels().store_kv(k + begin * row, v + begin * row, end - begin, first + begin, kv);
  });
}

void attention(Context& context, const Attention& args, const KvPages& kv) {
  if (args.m <= 0) return;
  const int64_t group = args.heads / kv.kv_heads;  // query heads per kv head
  const int64_t threads = context.pool().threads();
  // Kernels score four pages at a time.
  const int64_t rows = kTileFloats / (2 * int64_t{kv.head_dim} + 4 * KvPages::page_size);
  const int64_t queries = std::max<int64_t>(1, rows / group);
  const int64_t query_tiles = ceil_div(args.m, queries);
  // With fewer tiles than threads the heads of a group are split as well.
  int64_t parts = 1;
  if (query_tiles * kv.kv_heads < threads)
    parts = std::min(group, ceil_div(threads, query_tiles * kv.kv_heads));
  const int64_t heads_per_part = ceil_div(group, parts);

  double seen = 0;
  for (int64_t i = 0; i < args.m; ++i) {
    seen += args.end[static_cast<size_t>(i)] - args.begin[static_cast<size_t>(i)];
  }
  const int64_t tasks = query_tiles * kv.kv_heads * parts;
  const double cost = seen * static_cast<double>(args.heads * kv.head_dim) / 8;
  const size_t scratch_bytes = context.kernels().attention_scratch(queries * heads_per_part, kv.head_dim);

  auto run = [&](int64_t task, int worker) {
    // The last queries see the most positions: begin with them.
    const int64_t tile = query_tiles - 1 - task / (kv.kv_heads * parts);
    const int64_t kv_head = task / parts % kv.kv_heads;
    const int64_t head_begin = task % parts * heads_per_part;
    const int64_t head_end = std::min(group, head_begin + heads_per_part);
    if (head_begin >= head_end) return;
    const AttentionTile part{.q = args.q,
                             .out = args.out,
                             .heads = args.heads,
                             .begin = args.begin.data(),
                             .end = args.end.data(),
                             .scale = args.scale,
                             .softcap = args.softcap,
                             .query_begin = tile * queries,
                             .query_end = std::min(args.m, (tile + 1) * queries),
                             .head_begin = kv_head * group + head_begin,
                             .head_end = kv_head * group + head_end,
                             .kv_head = kv_head};
    context.kernels().attention(part, kv, context.scratch(worker, scratch_bytes).data());
  };
  constexpr double kWorthThreads = 16000;  // nanoseconds
  if (threads == 1 || tasks == 1 || cost < kWorthThreads) {
    for (int64_t task = 0; task < tasks; ++task) run(task, 0);
  } else {
    context.pool().run(tasks, std::ref(run));
  }
}

void local_relative_attention(Context& context, const float* q, const float* k, const float* v,
                              const float* relative, int64_t m, int64_t heads, int64_t dim, int64_t window,
                              float softcap, float* out) {
  const LocalAttention args{q, k, v, relative, out, heads, dim, window, softcap};
  const double cost = static_cast<double>(heads * dim * window) / 4;
  split(context, m, cost, 1, [&](int64_t begin, int64_t end, int worker) {
    void* scratch = context.scratch(worker, static_cast<size_t>(window + 16) * sizeof(float)).data();
    context.kernels().local_relative_attention(args, begin, end, scratch);
  });
}

}  // namespace dovetail::ops
