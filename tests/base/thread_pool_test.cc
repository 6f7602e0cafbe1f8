#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace dovetail {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> count(97);
      pool.run(97, [&](int64_t task, int worker) {
        EXPECT_LT(worker, threads);
        ++count[static_cast<size_t>(task)];
      });
      for (auto& c : count) ASSERT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(50,
                        [](int64_t task, int) {
                          if (task == 7) throw std::runtime_error("7");
                        }),
               std::runtime_error);
  std::atomic<int> sum{0};
  pool.run(10, [&](int64_t task, int) { sum += static_cast<int>(task); });
  EXPECT_EQ(sum, 45);
}

TEST(ThreadPool, NestedCallsKeepTheirWorker) {
  ThreadPool pool(2);
  std::atomic<int> wrong{0};
  pool.run(8,
           [&](int64_t, int worker) { pool.run(4, [&](int64_t, int inner) { wrong += inner != worker; }); });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, CallersFromSeveralThreadsTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) pool.run(5, [&](int64_t, int) { ++sum; });
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 5);
}

}  // namespace
}  // namespace dovetail
