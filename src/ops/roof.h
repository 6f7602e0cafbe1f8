// What this machine can do at most, for judging what a kernel reaches.
#pragma once

#include "ops/types.h"

namespace dovetail::ops {

// Operations per second of one processor in code that touches registers only, with the widest instructions of
// the level; a multiplication with its addition is two. The best of several runs, in the thread's CPU time.
// The CPU must support the level, which is not kReference.
double peak_float_operations(Level level);
double peak_int8_operations(Level level);

}  // namespace dovetail::ops
