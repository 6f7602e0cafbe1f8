// What the q4 kernels share: the layout of rounded activations and the reading of scales.
//
// Groups of 32 are taken kInterleave at a time, one per 128-bit part of a vector ("step"). A rounded row
// holds per step the even elements of its groups, 16 bytes each, then the odd ones: the nibbles of a weight
// row lie the same way. After the steps come the scale of every group (float) and -7 Σ q of every group
// (int32), which takes the zero point off the sum of unsigned weights.
//
// The order of float additions is part of the contract between the two products: group g is added to
// accumulator g mod kInterleave in ascending order, and at the end the accumulators are added as in
// sum_of_parts().
#pragma once

#include "ops/cpu/simd.h"
#include "ops/types.h"

namespace dovetail::ops::DOVETAIL_LEVEL {

constexpr int64_t kGroup = 32;
constexpr int64_t kGroupBytes = 16;
constexpr int kInterleave = kLanes / 4;
constexpr int64_t kStepBytes = kInterleave * kGroup;         // of rounded activations
constexpr int64_t kStepWeights = kInterleave * kGroupBytes;  // of one row of weights
constexpr int kZeroPoint = 7;

DOVETAIL_INLINE int64_t groups_of(int64_t cols) { return (cols + kGroup - 1) / kGroup; }
DOVETAIL_INLINE int64_t steps_of(int64_t cols) { return (groups_of(cols) + kInterleave - 1) / kInterleave; }

struct RoundedRow {
  const int8_t* q;
  const float* scales;
  const int32_t* corrections;
};
DOVETAIL_INLINE RoundedRow rounded_row(const void* base, int64_t cols) {
  const int64_t steps = steps_of(cols);
  const int8_t* q = static_cast<const int8_t*>(base);
  const float* scales = reinterpret_cast<const float*>(q + steps * kStepBytes);
  return {q, scales, reinterpret_cast<const int32_t*>(scales + steps * kInterleave)};
}

DOVETAIL_INLINE int64_t number_bytes(DType type) { return type == DType::kFloat32 ? 4 : 2; }

DOVETAIL_INLINE float read_number(const void* p, DType type) {
  if (type == DType::kFloat32) {
    float value;
    memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t half;
  memcpy(&half, p, sizeof half);
  if (type == DType::kBFloat16) {
    return _mm_cvtss_f32(
        _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(static_cast<uint32_t>(half) << 16))));
  }
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
