// 64-bit arithmetic for sizes that come from outside: overflow is an Error, never a wrapped value.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"

namespace dovetail {

inline std::optional<int64_t> try_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<int64_t> try_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Number of elements of a shape. nullopt when a dimension is negative or the product overflows.
inline std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    std::optional<int64_t> next = try_mul(count, dim);
    if (!next) return std::nullopt;
    count = *next;
  }
  return count;
}

}  // namespace dovetail
