// Single values of stored tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace dovetail::package {

// `type` is BF16, F16 or F32; any alignment.
float load_value(DType type, const std::byte* values, int64_t index);

// Index of the first value that is NaN or infinite, or -1. `type` as above.
int64_t first_non_finite(DType type, const std::byte* values, int64_t count);

}  // namespace dovetail::package
