#include "engine/adapter_cache.h"

#include <gtest/gtest.h>

namespace dovetail::engine {
namespace {

library::Rows rows(int64_t count) { return {.rows = count, .width = 1}; }  // 4 bytes each

TEST(AdapterCache, TheLeastRecentlyUsedMakesRoom) {
  AdapterCache cache(40);
  cache.insert("a", rows(4));
  cache.insert("b", rows(4));
  EXPECT_EQ(cache.bytes(), 32);
  EXPECT_TRUE(cache.find("a"));
  cache.insert("c", rows(4));
  EXPECT_TRUE(cache.find("a"));
  EXPECT_FALSE(cache.find("b"));
  EXPECT_TRUE(cache.find("c"));
  EXPECT_EQ(cache.bytes(), 32);
}

TEST(AdapterCache, WhatIsLargerThanTheCacheIsNotKept) {
  AdapterCache cache(40);
  cache.insert("a", rows(4));
  cache.insert("big", rows(11));
  EXPECT_FALSE(cache.find("big"));
  EXPECT_TRUE(cache.find("a"));
  AdapterCache none(0);
  none.insert("a", rows(1));
  EXPECT_FALSE(none.find("a"));
}

}  // namespace
}  // namespace dovetail::engine
