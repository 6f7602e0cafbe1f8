// A fixed set of worker threads for data-parallel loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dovetail {

class ThreadPool {
 public:
  // `threads` counts the caller too: 1 means no workers. 0 takes the number of CPUs this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, worker) for every task in [0, tasks), each once, in any order. worker is in
  // [0, threads()) and no two calls that overlap share it. Returns when all are done. The first exception is
  // rethrown here; the remaining tasks may be skipped. Calls from several threads take turns; a call from
  // inside a body runs in place.
  void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& body);

  static int available_cpus();

 private:
  void work(int worker);
  void drain(int worker);

  std::vector<std::thread> workers_;
  std::mutex turn_;
  const std::function<void(int64_t, int)>* body_ = nullptr;
  int64_t tasks_ = 0;
  std::exception_ptr error_;
  std::mutex error_mutex_;
  // Kept apart so that the counter that all threads write does not share a line with what they poll.
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace dovetail
