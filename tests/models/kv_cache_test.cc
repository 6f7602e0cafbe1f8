#include "models/kv_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>

#include "base/error.h"

namespace dovetail::models {
namespace {

constexpr std::array kLayers{KvLayer{1, 4, 0}, KvLayer{1, 4, 20}};

// Writes (sequence tag, position) into every appended slot of both layers.
void append(KvCache& cache, std::vector<int64_t> ids, std::vector<int64_t> lengths, float tag) {
  ops::Context context(ops::Level::kReference, 1);
  cache.begin_forward(ids, lengths);
  for (const KvCache::Span& span : cache.batch()) {
    for (size_t layer = 0; layer < kLayers.size(); ++layer) {
      std::vector<float> values;
      for (int32_t i = 0; i < span.count; ++i) {
        for (int d = 0; d < 4; ++d) values.push_back(tag * 10000 + static_cast<float>(span.start + i));
      }
      ops::store_kv(context, values.data(), values.data(), span.count, span.start,
                    cache.pages(layer, span.sequence));
    }
  }
  cache.end_forward();
}

float value_at(const KvCache& cache, size_t layer, int64_t id, int32_t position) {
  const ops::KvPages pages = cache.pages(layer, id);
  const int32_t page = pages.pages[position / 16];
  return static_cast<const float*>(pages.values)[(page * 16 + position % 16) * 4];
}

KvCache make(int64_t sequences = 4, int64_t total = 400, int64_t chunk = 64) {
  return KvCache(kLayers, {sequences, total, chunk, 16}, DType::kFloat32);
}

TEST(KvCache, KeepsWhatWasAppended) {
  KvCache cache(kLayers, {2, 200, 64, 16}, DType::kFloat32);
  cache.add_sequence(7);
  cache.add_sequence(9);
  append(cache, {7, 9}, {30, 5}, 1);
  append(cache, {9}, {20}, 2);
  EXPECT_EQ(cache.total_length(), 55);
  EXPECT_EQ(value_at(cache, 0, 7, 29), 10029);
  EXPECT_EQ(value_at(cache, 0, 9, 4), 10004);
  EXPECT_EQ(value_at(cache, 1, 9, 24), 20024);
}

TEST(KvCache, WindowsFreeThePagesThatNobodySees) {
  KvCache cache(kLayers, {1, 4000, 16, 16}, DType::kFloat32);
  cache.add_sequence(0);
  for (int i = 0; i < 200; ++i) append(cache, {0}, {16}, 1);
  EXPECT_EQ(cache.total_length(), 3200);
  // The last 20 positions are there; the first page is not.
  EXPECT_EQ(value_at(cache, 1, 0, 3199), 13199);
  EXPECT_EQ(cache.pages(1, 0).pages[0], -1);
  EXPECT_EQ(value_at(cache, 0, 0, 0), 10000);
}

TEST(KvCache, ForkSharesUntilWritten) {
  KvCache cache = make();
  cache.add_sequence(0);
  append(cache, {0}, {37}, 1);
  const int64_t before = cache.available_pages();
  cache.fork_sequence(0, 1, -1);
  EXPECT_EQ(cache.available_pages(), before);
  append(cache, {1}, {3}, 2);
  append(cache, {0}, {3}, 3);
  EXPECT_EQ(value_at(cache, 0, 0, 36), 10036);
  EXPECT_EQ(value_at(cache, 0, 1, 36), 10036);
  EXPECT_EQ(value_at(cache, 0, 1, 37), 20037);
  EXPECT_EQ(value_at(cache, 0, 0, 37), 30037);
  cache.remove_sequence(0);
  EXPECT_EQ(value_at(cache, 0, 1, 36), 10036);
}

TEST(KvCache, ForkAtAnEarlierPosition) {
  KvCache cache = make();
  cache.add_sequence(0);
  append(cache, {0}, {18}, 1);
  cache.fork_sequence(0, 5, 10);
  append(cache, {5}, {1}, 5);
  EXPECT_EQ(cache.total_length(), 29);
  EXPECT_EQ(value_at(cache, 1, 5, 9), 10009);
  EXPECT_EQ(value_at(cache, 1, 5, 10), 50010);
  EXPECT_EQ(value_at(cache, 1, 0, 10), 10010);
}

TEST(KvCache, PopAndAppendAgain) {
  KvCache cache = make();
  cache.add_sequence(0);
  append(cache, {0}, {40}, 1);
  cache.popn(0, 25);
  append(cache, {0}, {10}, 2);
  EXPECT_EQ(cache.total_length(), 25);
  EXPECT_EQ(value_at(cache, 0, 0, 14), 10014);
  EXPECT_EQ(value_at(cache, 1, 0, 15), 20015);
  EXPECT_THROW(cache.popn(0, 26), Error);
  cache.popn(0, 25);
  EXPECT_EQ(cache.total_length(), 0);
}

TEST(KvCache, PopPastAWindowIsRefusedAndChangesNothing) {
  KvCache cache = make(1, 400, 16);
  cache.add_sequence(0);
  for (int i = 0; i < 12; ++i) append(cache, {0}, {16}, 1);
  EXPECT_THROW(cache.popn(0, 100), Error);
  EXPECT_EQ(cache.total_length(), 192);
  EXPECT_EQ(value_at(cache, 1, 0, 191), 10191);
  cache.popn(0, 10);
  EXPECT_EQ(cache.total_length(), 182);
}

TEST(KvCache, AFullCacheIsAnErrorAndChangesNothing) {
  KvCache cache = make(2, 60, 64);
  cache.add_sequence(0);
  append(cache, {0}, {50}, 1);
  const std::vector<int64_t> ids{0}, lengths{11};
  EXPECT_THROW(cache.begin_forward(ids, lengths), Error);
  EXPECT_EQ(cache.total_length(), 50);
  append(cache, {0}, {10}, 2);
  EXPECT_EQ(cache.total_length(), 60);
}

TEST(KvCache, AnUnfinishedPassLeavesNoTrace) {
  KvCache cache = make();
  cache.add_sequence(0);
  append(cache, {0}, {5}, 1);
  const int64_t before = cache.available_pages();
  const std::vector<int64_t> ids{0}, lengths{60};
  cache.begin_forward(ids, lengths);
  append(cache, {0}, {1}, 2);
  EXPECT_EQ(cache.total_length(), 6);
  EXPECT_EQ(cache.available_pages(), before);
}

// The pages of the pass before are given back, so that pass must not go on.
TEST(KvCache, APassThatIsRefusedEndsTheOneBefore) {
  KvCache cache(kLayers, {2, 96, 64, 16}, DType::kFloat32);
  cache.add_sequence(0);
  append(cache, {0}, {64}, 1);
  cache.begin_forward(std::vector<int64_t>{0}, std::vector<int64_t>{16});
  EXPECT_EQ(cache.batch().size(), 1u);
  EXPECT_THROW(cache.begin_forward(std::vector<int64_t>{0}, std::vector<int64_t>{64}), Error);
  EXPECT_TRUE(cache.batch().empty());
  cache.end_forward();
  EXPECT_EQ(cache.total_length(), 64);
  append(cache, {0}, {16}, 2);
  EXPECT_EQ(value_at(cache, 0, 0, 79), 20079);
}

TEST(KvCache, LengthsWhoseSumOverflowsAreRefused) {
  KvCache cache = make();
  cache.add_sequence(0);
  cache.add_sequence(1);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(cache.begin_forward(std::vector<int64_t>{0, 1}, std::vector<int64_t>{2, kMost}), Error);
  EXPECT_THROW(cache.begin_forward(std::vector<int64_t>{0, 1}, std::vector<int64_t>{kMost, kMost}), Error);
  EXPECT_TRUE(cache.batch().empty());
}

TEST(KvCache, WrongCallsAreRefused) {
  KvCache cache = make(2, 100, 32);
  EXPECT_THROW(cache.remove_sequence(3), Error);
  cache.add_sequence(1);
  EXPECT_THROW(cache.add_sequence(1), Error);
  cache.add_sequence(2);
  EXPECT_THROW(cache.add_sequence(3), Error);
  const auto begin = [&](std::vector<int64_t> ids, std::vector<int64_t> lengths) {
    cache.begin_forward(ids, lengths);
  };
  EXPECT_THROW(begin({1, 1}, {1, 1}), Error);
  EXPECT_THROW(begin({1}, {1, 1}), Error);
  EXPECT_THROW(begin({1}, {0}), Error);
  EXPECT_THROW(begin({1}, {33}), Error);
  EXPECT_THROW(begin({1}, {-5}), Error);
  EXPECT_THROW(begin({1, 2}, {INT64_MAX, INT64_MAX}), Error);
  EXPECT_THROW(begin({8}, {1}), Error);
  EXPECT_THROW(cache.fork_sequence(1, 9, 5), Error);
  EXPECT_THROW(cache.popn(1, -1), Error);
  EXPECT_THROW(KvCache(kLayers, {0, 100, 32, 16}, DType::kFloat32), Error);
  EXPECT_THROW(KvCache(kLayers, {1, 100, 32, 8}, DType::kFloat32), Error);
  EXPECT_THROW(KvCache(kLayers, {1, int64_t{1} << 40, 32, 16}, DType::kFloat32), Error);
}

TEST(KvCache, NoPageIsLostOverManyRandomOperations) {
  KvCache cache = make(6, 500, 48);
  const int64_t all = cache.available_pages();
  std::mt19937 random(3);
  std::vector<int64_t> ids;
  int64_t next = 0;
  for (int step = 0; step < 4000; ++step) {
    const uint32_t action = random() % 6;
    const auto pick = [&] { return ids[random() % ids.size()]; };
    try {
      if (ids.empty() || action == 0) {
        cache.add_sequence(next);
        ids.push_back(next++);
      } else if (action == 1) {
        cache.fork_sequence(pick(), next, -1);
        ids.push_back(next++);
      } else if (action == 2) {
        const int64_t id = pick();
        cache.remove_sequence(id);
        std::erase(ids, id);
      } else if (action == 3) {
        cache.popn(pick(), static_cast<int64_t>(random() % 20));
      } else {
        append(cache, {pick()}, {static_cast<int64_t>(1 + random() % 47)}, 1);
      }
    } catch (const Error&) {
    }
  }
  cache.clear();
  EXPECT_EQ(cache.available_pages(), all);
  EXPECT_EQ(cache.total_length(), 0);
}

}  // namespace
}  // namespace dovetail::models
