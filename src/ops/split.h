// Splitting a range of work over the threads of a context.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "ops/ops.h"

namespace dovetail::ops {

// Calls body(begin, end, worker) for pieces of [0, count). `cost` is the work of one item in units of about a
// nanosecond; too little work stays on the calling thread. Pieces are multiples of `grain` items, a few per
// thread so that a thread which is held up does not hold up the call.
template <typename Body>
void split(Context& context, int64_t count, double cost, int64_t grain, Body&& body) {
  if (count <= 0) return;
  constexpr double kWorthATask = 8000;  // waking a worker costs about 5 microseconds
  const int threads = context.pool().threads();
  const double total = static_cast<double>(count) * cost;
  if (threads == 1 || total < 2 * kWorthATask || count <= grain) {
    body(int64_t{0}, count, 0);
    return;
  }
  const int64_t most = std::min<int64_t>(int64_t{8} * threads, static_cast<int64_t>(total / kWorthATask));
  int64_t piece = (count + most - 1) / most;
  piece = (piece + grain - 1) / grain * grain;
  auto task = [&](int64_t index, int worker) {
    body(index * piece, std::min(count, (index + 1) * piece), worker);
  };
  // A reference fits into std::function without an allocation.
  context.pool().run((count + piece - 1) / piece, std::ref(task));
}

}  // namespace dovetail::ops
