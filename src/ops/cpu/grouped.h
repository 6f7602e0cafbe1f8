// What the kernels of quantized weights share: the formats, the layout of rounded activations and the reading
// of scales.
//
// A group is a run of columns with one scale. Groups are taken kInterleave at a time, one per 128-bit part of
// a vector ("step"). The weights of a group unpack into planes of 16 bytes; a rounded row holds per step, for
// every plane, the 16 activations that meet it in each of the step's groups. Behind the steps of the row
// stand those of the second terms (KernelTable::quantize_row). After them come the scale of every group
// (float), -zero point · Σ q of every group (int32), which takes the zero point off the sum of unsigned
// weights, and the step to which each second term belongs (int32).
//
// The order of float additions is part of the contract between the two products: group g is added to
// accumulator g mod kInterleave in ascending order, second terms after all first ones, and at the end the
// accumulators are added as in sum_of_parts().
#pragma once

#include "ops/cpu/simd.h"
#include "ops/types.h"

namespace dovetail::ops::DOVETAIL_LEVEL {

constexpr int kInterleave = kLanes / 4;
constexpr int64_t kPlaneBytes = 16;                             // of one group
constexpr int64_t kStepPlaneBytes = kInterleave * kPlaneBytes;  // one vector

// Planes: the even elements, the odd elements.
struct Q4 {
  static constexpr int64_t kGroup = 32;
  static constexpr int64_t kGroupBytes = 16;  // of weights
  static constexpr int kPlanes = 2;
  static constexpr int kZeroPoint = 7;
};
// Planes: of the ten values v of each word v0, v2, v4, v6; then v1, v3, v5, v7; then v8 and v9 without their
// highest bits, and these bits alone.
struct Q3 {
  static constexpr int64_t kGroup = 40;
  static constexpr int64_t kGroupBytes = 16;
  static constexpr int kPlanes = 3;
  static constexpr int kZeroPoint = 3;
};
// Planes: the first half of the group, the second half.
struct Q8 {
  static constexpr int64_t kGroup = 32;
  static constexpr int64_t kGroupBytes = 32;
  static constexpr int kPlanes = 2;
  static constexpr int kZeroPoint = 127;
};

template <class Format>
DOVETAIL_INLINE int64_t groups_of(int64_t cols) {
  return (cols + Format::kGroup - 1) / Format::kGroup;
}
template <class Format>
DOVETAIL_INLINE int64_t steps_of(int64_t cols) {
  return (groups_of<Format>(cols) + kInterleave - 1) / kInterleave;
}

constexpr int64_t kTermSteps = 16;  // of so many steps one has a second term
template <class Format>
DOVETAIL_INLINE int64_t second_terms_of(int64_t cols) {
  return (steps_of<Format>(cols) + kTermSteps - 1) / kTermSteps;
}

template <class Format>
constexpr int64_t kStepBytes = Format::kPlanes* kStepPlaneBytes;  // of rounded activations
template <class Format>
constexpr int64_t kStepWeights = kInterleave* Format::kGroupBytes;  // bytes of one row of weights
template <DType type>
constexpr int64_t kStepScales = kInterleave*(type == DType::kFloat32 ? 4 : 2);  // bytes of its scales

struct RoundedRow {
  const int8_t* q;
  const float* scales;
  const int32_t* corrections;
  const int32_t* second_steps;
};
template <class Format>
DOVETAIL_INLINE RoundedRow rounded_row(const void* base, int64_t cols) {
  const int64_t steps = steps_of<Format>(cols) + second_terms_of<Format>(cols);
  const int8_t* q = static_cast<const int8_t*>(base);
  const float* scales = reinterpret_cast<const float*>(q + steps * kStepBytes<Format>);
  const int32_t* corrections = reinterpret_cast<const int32_t*>(scales + steps * kInterleave);
  return {q, scales, corrections, corrections + steps * kInterleave};
}
template <class Format>
DOVETAIL_INLINE int64_t rounded_row_bytes(int64_t cols) {
  const int64_t second_terms = second_terms_of<Format>(cols);
  return round_up(
      (steps_of<Format>(cols) + second_terms) * (kStepBytes<Format> + kInterleave * 8) + second_terms * 4,
      64);
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
