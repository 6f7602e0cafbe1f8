#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

namespace dovetail {
namespace {

// About 20 microseconds: long enough to bridge the serial step between two matrix products, short enough not
// to steal time from other processes on a shared machine.
constexpr int kSpins = 600;

// The worker index of this thread while it runs a body, else -1.
// In the static block of thread-local memory, also where it is part of a library that is loaded later: of
// blocks that are allocated on demand LeakSanitizer takes some for those of an old glibc and reads wild
// addresses.
[[gnu::tls_model("initial-exec")]] thread_local int current_worker = -1;

inline void pause() { __builtin_ia32_pause(); }

}  // namespace

int ThreadPool::available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = available_cpus();
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t tasks, const std::function<void(int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (current_worker >= 0) {
    for (int64_t task = 0; task < tasks; ++task) body(task, current_worker);
    return;
  }
  std::lock_guard turn(turn_);
  if (workers_.empty() || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  tasks_ = tasks;
  error_ = nullptr;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  current_worker = 0;
  drain(0);
  current_worker = -1;
  for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::drain(int worker) {
  try {
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      (*body_)(task, worker);
    }
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    next_.store(tasks_, std::memory_order_relaxed);
  }
}

void ThreadPool::work(int worker) {
  current_worker = worker;
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = generation_.load(std::memory_order_acquire);
    for (int spin = 0; now == seen && spin < kSpins; ++spin) {
      pause();
      now = generation_.load(std::memory_order_acquire);
    }
    while (now == seen) {
      generation_.wait(seen, std::memory_order_acquire);
      now = generation_.load(std::memory_order_acquire);
    }
    seen = now;
    if (stop_) return;
    drain(worker);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace dovetail
