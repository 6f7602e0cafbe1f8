// Attention of every level against the plain implementation, and the same bits however a prompt is cut.
#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

constexpr int64_t kPage = KvPages::page_size;

// A sequence in pages that lie scattered in the pool; memory that belongs to no position is NaN.
struct Sequence {
  Sequence(Random& random, DType type, int64_t positions, int32_t kv_heads, int32_t dim,
           const KernelTable& table)
      : pages(static_cast<size_t>((positions + kPage - 1) / kPage)),
        k(random_floats(random, static_cast<size_t>(positions * kv_heads * dim))),
        v(random_floats(random, static_cast<size_t>(positions * kv_heads * dim))),
        keys(bytes(type, kv_heads, dim)),
        values(bytes(type, kv_heads, dim)) {
    std::memset(keys.data(), 0xff, keys.size());
    std::memset(values.data(), 0xff, values.size());
    for (size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<int32_t>(pages.size() - 1 - p);
    kv = {type, keys.data(), values.data(), pages.data(), kv_heads, dim};
    table.store_kv(k.data(), v.data(), positions, 0, kv);
  }
  size_t bytes(DType type, int32_t kv_heads, int32_t dim) const {
    return pages.size() * static_cast<size_t>(kPage * kv_heads * dim * dtype_bytes(type));
  }
  std::vector<int32_t> pages;
  Guarded<float> k, v;
  Guarded<uint8_t> keys, values;
  KvPages kv;
};

struct Queries {
  int64_t m, heads;
  std::vector<int32_t> begin, end;
  float scale = 0.2f, softcap = 0.0f;
};

// Rows [first, last) of the queries, all heads, in tiles of `tile` queries.
void run(const KernelTable& table, const Guarded<float>& q, const Queries& queries, const Sequence& s,
         int64_t first, int64_t last, int64_t tile, float* out) {
  const int64_t group = queries.heads / s.kv.kv_heads;
  for (int64_t i = first; i < last; i += tile) {
    for (int64_t kv_head = 0; kv_head < s.kv.kv_heads; ++kv_head) {
      const AttentionTile args{.q = q.data(),
                               .out = out,
                               .heads = queries.heads,
                               .begin = queries.begin.data(),
                               .end = queries.end.data(),
                               .scale = queries.scale,
                               .softcap = queries.softcap,
                               .query_begin = i,
                               .query_end = std::min(last, i + tile),
                               .head_begin = kv_head * group,
                               .head_end = (kv_head + 1) * group,
                               .kv_head = kv_head};
      Scratch scratch(table.attention_scratch(tile * group, s.kv.head_dim));
      table.attention(args, s.kv, scratch.data());
    }
  }
}

class AttentionTest : public LevelTest {};
INSTANTIATE_LEVELS(AttentionTest);

// Causal queries at the end of the sequence; window 0 sees everything.
Queries causal(int64_t m, int64_t heads, int64_t positions, int64_t window) {
  Queries queries{m, heads, {}, {}};
  for (int64_t i = 0; i < m; ++i) {
    const int64_t end = positions - m + i + 1;
    queries.end.push_back(static_cast<int32_t>(end));
    queries.begin.push_back(static_cast<int32_t>(window > 0 ? std::max<int64_t>(0, end - window) : 0));
  }
  return queries;
}

TEST_P(AttentionTest, MatchesThePlainImplementation) {
  Random random(1);
  for (const DType type : {DType::kFloat16, DType::kFloat32}) {
    for (const int32_t dim : {1, 24, 32, 40, 64, 128, 256, 512}) {
      for (const auto& [heads, kv_heads] :
           {std::pair<int64_t, int32_t>{1, 1}, {3, 1}, {8, 1}, {4, 2}, {7, 1}}) {
        for (const auto& [m, positions, window] :
             {std::array<int64_t, 3>{1, 1, 0}, {1, 65, 0}, {5, 150, 0}, {17, 100, 20}, {3, 3, 0}}) {
          const Sequence s(random, type, positions, kv_heads, dim, table());
          Queries queries = causal(m, heads, positions, window);
          queries.softcap = dim == 32 ? 5.0f : 0.0f;
          const Guarded<float> q = random_floats(random, static_cast<size_t>(m * heads * dim));
          Guarded<float> expected(q.size()), actual(q.size());
          run(reference_table(), q, queries, s, 0, m, m, expected.data());
          run(table(), q, queries, s, 0, m, m, actual.data());
          for (size_t i = 0; i < q.size(); ++i) {
            expect_close(actual[i], expected[i], 3e-5, 1.0,
                         "dim " + std::to_string(dim) + " heads " + std::to_string(heads) + " m " +
                             std::to_string(m) + " positions " + std::to_string(positions) + " at " +
                             std::to_string(i));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(AttentionTest, SameBitsHoweverThePromptIsCut) {
  Random random(2);
  for (const int32_t dim : {24, 64, 256}) {
    for (const int64_t heads : {1, 3, 8}) {
      for (const int64_t window : {0, 30}) {
        const int64_t positions = 140;
        const Sequence s(random, DType::kFloat16, positions, 1, dim, table());
        const Queries queries = causal(positions, heads, positions, window);
        const Guarded<float> q = random_floats(random, static_cast<size_t>(positions * heads * dim));
        Guarded<float> whole(q.size());
        run(table(), q, queries, s, 0, positions, 48, whole.data());
        for (const int64_t tile : {1, 2, 5, 33}) {
          Guarded<float> cut(q.size());
          run(table(), q, queries, s, 0, positions, tile, cut.data());
          expect_same_bits(cut, whole, q.size(), "tile " + std::to_string(tile));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Pages outside every window may be gone, and what lies beyond the last position is arbitrary.
TEST_P(AttentionTest, TouchesNoPageThatNoQuerySees) {
  Random random(3);
  for (const int64_t m : {1, 20}) {
    Sequence s(random, DType::kFloat16, 200, 1, 64, table());
    const Queries queries = causal(m, 4, 200, 50);
    const Guarded<float> q = random_floats(random, static_cast<size_t>(m * 4 * 64));
    Guarded<float> before(q.size()), after(q.size());
    run(table(), q, queries, s, 0, m, m, before.data());
    for (int64_t p = 0; p < queries.begin.front() / kPage; ++p) s.pages[static_cast<size_t>(p)] = -1;
    run(table(), q, queries, s, 0, m, m, after.data());
    expect_same_bits(after, before, q.size(), "missing pages");
    for (size_t i = 0; i < q.size(); ++i) ASSERT_TRUE(std::isfinite(after[i]));
  }
}

// A NaN that one query must not see does not reach it, though others of its tile see it.
TEST_P(AttentionTest, NaNReachesOnlyTheQueriesThatSeeIt) {
  Random random(4);
  const int64_t m = 30, heads = 4, dim = 32;
  const Sequence s(random, DType::kFloat32, m, 1, dim, table());
  Guarded<float> k = Guarded<float>::copy(s.k), v = Guarded<float>::copy(s.v);
  for (const bool in_key : {true, false}) {
    Sequence damaged(random, DType::kFloat32, m, 1, dim, table());
    Guarded<float> key = Guarded<float>::copy(k), value = Guarded<float>::copy(v);
    for (int64_t d = 0; d < dim; ++d)
      (in_key ? key : value)[static_cast<size_t>(20 * dim + d)] = std::nanf("");
    table().store_kv(key.data(), value.data(), m, 0, damaged.kv);
    const Guarded<float> q = random_floats(random, static_cast<size_t>(m * heads * dim));
    Guarded<float> out(q.size());
    run(table(), q, causal(m, heads, m, 0), damaged, 0, m, m, out.data());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < heads * dim; ++j) {
        ASSERT_EQ(std::isnan(out[static_cast<size_t>(i * heads * dim + j)]), i >= 20) << "query " << i;
      }
    }
  }
}

TEST_P(AttentionTest, LargeScores) {
  Random random(5);
  const Sequence s(random, DType::kFloat32, 100, 1, 64, table());
  Queries queries = causal(3, 2, 100, 0);
  queries.scale = 1000.0f;
  const Guarded<float> q = random_floats(random, 3 * 2 * 64, 10.0f);
  Guarded<float> expected(q.size()), actual(q.size());
  run(reference_table(), q, queries, s, 0, 3, 3, expected.data());
  run(table(), q, queries, s, 0, 3, 3, actual.data());
  for (size_t i = 0; i < q.size(); ++i) expect_close(actual[i], expected[i], 1e-3, 1.0, "large scores");
}

TEST_P(AttentionTest, StoresTheSameBytes) {
  Random random(6);
  for (const DType type : {DType::kFloat16, DType::kFloat32}) {
    for (const int32_t dim : {1, 24, 64}) {
      Random a(7), b(7);
      const Sequence expected(a, type, 37, 2, dim, reference_table()), actual(b, type, 37, 2, dim, table());
      ASSERT_EQ(std::memcmp(expected.keys.data(), actual.keys.data(), actual.keys.size()), 0);
      ASSERT_EQ(std::memcmp(expected.values.data(), actual.values.data(), actual.values.size()), 0);
    }
  }
}

}  // namespace
}  // namespace dovetail::ops
