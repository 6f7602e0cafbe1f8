// Products of quantized weights straight from the packed memory, four weight rows at a time and a few rows of
// x: each byte of weights is read once, and what it costs beyond reading is small.
#pragma once

#include "ops/cpu/grouped.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

constexpr int kRows = 4;

// Weights are asked for this far ahead. Four interleaved streams defeat the hardware's prefetcher: without
// this, reading from memory runs at 60 % of the speed of a plain loop, with it at its full speed. Addresses
// past the end of the weights are never read, a prefetch cannot fault.
constexpr int64_t kPrefetchBytes = 8192;
DOVETAIL_INLINE void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + kPrefetchBytes), _MM_HINT_T0);
}

#if defined(DOVETAIL_WIDE)
DOVETAIL_INLINE I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
template <int bits>
DOVETAIL_INLINE I shift_right(I a) {
  return _mm512_srli_epi32(a, bits);
}
DOVETAIL_INLINE I bits_of(I a, int mask) { return _mm512_and_si512(a, set1_int(mask)); }
DOVETAIL_INLINE I either(I a, I b) { return _mm512_or_si512(a, b); }

// Exact partial sums of one weight row: four int32 per group. Weights are unsigned.
template <class Format>
DOVETAIL_INLINE I products(const I (&w)[Format::kPlanes], const I (&x)[Format::kPlanes]) {
  I sum = _mm512_setzero_si512();
  for (int i = 0; i < Format::kPlanes; ++i) sum = _mm512_dpbusd_epi32(sum, w[i], x[i]);
  return sum;
}
// Group sums of four weight rows from their products: part g holds rows 0…3 of group g.
template <class Format>
DOVETAIL_INLINE I group_sums(I a, I b, I c, I d) {
  const I ab = add_int(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const I cd = add_int(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return add_int(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
// Four numbers, one for each part.
DOVETAIL_INLINE I spread_int(const int32_t* p) {
  const I each = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  return _mm512_permutexvar_epi32(
      each, _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Scales of four rows, four groups each, in the order of group_sums.
template <DType type>
DOVETAIL_INLINE F step_scales(const uint8_t* const rows[kRows]) {
  const I transpose = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  if constexpr (type == DType::kFloat32) {
    __m128i r[kRows];
    for (int i = 0; i < kRows; ++i) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i]));
    const I all = join(_mm256_set_m128i(r[1], r[0]), _mm256_set_m128i(r[3], r[2]));
    return as_float(_mm512_permutexvar_epi32(transpose, all));
  } else {
    __m128i r[kRows];
    for (int i = 0; i < kRows; ++i) r[i] = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[i]));
    const __m256i all = _mm256_set_m128i(_mm_unpacklo_epi64(r[2], r[3]), _mm_unpacklo_epi64(r[0], r[1]));
    const F wide = type == DType::kFloat16 ? from_f16(all) : as_float(shift_left_int(widen_u16(all), 16));
    return _mm512_permutexvar_ps(transpose, wide);
  }
}
#else
DOVETAIL_INLINE I load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
template <int bits>
DOVETAIL_INLINE I shift_right(I a) {
  return _mm256_srli_epi32(a, bits);
}
DOVETAIL_INLINE I bits_of(I a, int mask) { return _mm256_and_si256(a, set1_int(mask)); }
DOVETAIL_INLINE I either(I a, I b) { return _mm256_or_si256(a, b); }

// Exact partial sums of one weight row. Up to 4 bits: eight int16 per group, each at most 4 · 15 · 127 = 7620
// (3 bits: 36 · 127 = 4572) in magnitude. 8 bits: four int32 per group; the products of two bytes would
// not fit into the int16 of maddubs, so bytes are widened first.
template <class Format>
DOVETAIL_INLINE I products(const I (&w)[Format::kPlanes], const I (&x)[Format::kPlanes]) {
  I sum = _mm256_setzero_si256();
  for (int i = 0; i < Format::kPlanes; ++i) {
    if constexpr (Format::kZeroPoint <= 7) {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[i], x[i]));
    } else {
      const I low = _mm256_madd_epi16(_mm256_unpacklo_epi8(w[i], _mm256_setzero_si256()),
                                      _mm256_srai_epi16(_mm256_unpacklo_epi8(x[i], x[i]), 8));
      const I high = _mm256_madd_epi16(_mm256_unpackhi_epi8(w[i], _mm256_setzero_si256()),
                                       _mm256_srai_epi16(_mm256_unpackhi_epi8(x[i], x[i]), 8));
      sum = add_int(sum, add_int(low, high));
    }
  }
  return sum;
}
// Group sums of four weight rows from their products: part g holds rows 0…3 of group g. Of int16, four are
// added before the widening: at most 30480.
template <class Format>
DOVETAIL_INLINE I group_sums(I a, I b, I c, I d) {
  if constexpr (Format::kZeroPoint <= 7) {
    const I ab = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const I cd = _mm256_add_epi16(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    const I all = _mm256_add_epi16(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm256_madd_epi16(all, _mm256_set1_epi16(1));
  } else {
    const I ab = add_int(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const I cd = add_int(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    return add_int(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  }
}
DOVETAIL_INLINE I spread_int(const int32_t* p) {
  return _mm256_permutevar8x32_epi32(
      _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
      _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}
template <DType type>
DOVETAIL_INLINE F step_scales(const uint8_t* const rows[kRows]) {
  const I transpose = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  if constexpr (type == DType::kFloat32) {
    __m128i r[kRows];
    for (int i = 0; i < kRows; ++i) r[i] = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[i]));
    const I all = _mm256_set_m128i(_mm_unpacklo_epi64(r[2], r[3]), _mm_unpacklo_epi64(r[0], r[1]));
    return _mm256_permutevar8x32_ps(as_float(all), transpose);
  } else {
    int32_t r[kRows];
    for (int i = 0; i < kRows; ++i) memcpy(&r[i], rows[i], sizeof r[i]);
    const __m128i all = _mm_setr_epi32(r[0], r[1], r[2], r[3]);
    const F wide = type == DType::kFloat16 ? _mm256_cvtph_ps(all)
                                           : as_float(shift_left_int(_mm256_cvtepu16_epi32(all), 16));
    return _mm256_permutevar8x32_ps(wide, transpose);
  }
}
#endif

// The planes of a vector of words.
DOVETAIL_INLINE void unpack(Q4, I words, I (&planes)[Q4::kPlanes]) {
  planes[0] = bits_of(words, 0x0f0f0f0f);
  planes[1] = bits_of(shift_right<4>(words), 0x0f0f0f0f);
}
DOVETAIL_INLINE void unpack(Q3, I words, I (&planes)[Q3::kPlanes]) {
  planes[0] = bits_of(words, 0x07070707);
  planes[1] = bits_of(shift_right<3>(words), 0x07070707);
  planes[2] = either(bits_of(shift_right<6>(words), 0x0303), bits_of(shift_right<4>(words), 0x04040000));
}

// The planes of one row's weights of one step.
template <class Format>
DOVETAIL_INLINE void load_planes(const uint8_t* weights, I (&planes)[Format::kPlanes]) {
  if constexpr (Format::kGroupBytes == kPlaneBytes) {
    unpack(Format{}, load_bytes(weights), planes);
  } else {
    const I first = load_bytes(weights), second = load_bytes(weights + kStepPlaneBytes);
#if defined(DOVETAIL_WIDE)
    planes[0] = _mm512_shuffle_i32x4(first, second, 0x88);
    planes[1] = _mm512_shuffle_i32x4(first, second, 0xdd);
#else
    planes[0] = _mm256_permute2x128_si256(first, second, 0x20);
    planes[1] = _mm256_permute2x128_si256(first, second, 0x31);
#endif
  }
}

DOVETAIL_INLINE F spread(const float* p) { return as_float(spread_int(reinterpret_cast<const int32_t*>(p))); }

// Adds one step of four weight rows to the accumulators of T rows of x, of which it is step `step`.
template <class Format, DType type, int T>
DOVETAIL_INLINE void add_step(const uint8_t* const weights[kRows], const uint8_t* const scales[kRows],
                              const RoundedRow* x, int64_t step, F* sums) {
  I w[kRows][Format::kPlanes];
  for (int r = 0; r < kRows; ++r) {
    for (int64_t line = 0; line < kStepWeights<Format>; line += 64) prefetch(weights[r] + line);
    load_planes<Format>(weights[r], w[r]);
  }
  const F weight_scales = step_scales<type>(scales);
  for (int t = 0; t < T; ++t) {
    I planes[Format::kPlanes];
    for (int i = 0; i < Format::kPlanes; ++i)
      planes[i] = load_bytes(x[t].q + step * kStepBytes<Format> + i * kStepPlaneBytes);
    I p[kRows];
    for (int r = 0; r < kRows; ++r) p[r] = products<Format>(w[r], planes);
    const I sum = add_int(group_sums<Format>(p[0], p[1], p[2], p[3]),
                          spread_int(x[t].corrections + step * kInterleave));
    sums[t] = fma(to_float(sum), mul(weight_scales, spread(x[t].scales + step * kInterleave)), sums[t]);
  }
}

// The second terms of one row of x. `weights` and `scales` are the ends of the whole steps, `last_…` what
// lies behind them. Not inline: it is rare, and the code of few_rows() would be half as large again.
template <class Format, DType type>
__attribute__((noinline)) F add_second_terms(const uint8_t* const (&weights)[kRows],
                                             const uint8_t* const (&scales)[kRows], int64_t whole,
                                             const uint8_t (&last_weights)[kRows][kStepWeights<Format>],
                                             const uint8_t (&last_scales)[kRows][kStepScales<type>],
                                             const RoundedRow& x, int64_t cols, F sum) {
  const int64_t steps = steps_of<Format>(cols), second_terms = second_terms_of<Format>(cols);
  for (int64_t term = 0; term < second_terms; ++term) {
    const int64_t back = whole - x.second_steps[term];
    const uint8_t* step_weights[kRows];
    const uint8_t* step_scales[kRows];
    for (int r = 0; r < kRows; ++r) {
      step_weights[r] = back > 0 ? weights[r] - back * kStepWeights<Format> : last_weights[r];
      step_scales[r] = back > 0 ? scales[r] - back * kStepScales<type> : last_scales[r];
    }
    add_step<Format, type, 1>(step_weights, step_scales, &x, steps + term, &sum);
  }
  return sum;
}

template <class Format, DType type, int T>
void few_rows(const void* quantized_x, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
              int64_t y_stride) {
  constexpr int64_t kScaleBytes = kStepScales<type> / kInterleave;
  const int64_t groups = groups_of<Format>(w.cols);
  const int64_t whole = groups / kInterleave, rest = groups % kInterleave;
  const int64_t x_stride = rounded_row_bytes<Format>(w.cols);
  RoundedRow x[T];
  for (int t = 0; t < T; ++t) x[t] = rounded_row<Format>(bytes(quantized_x) + t * x_stride, w.cols);

  // What lies behind the whole steps, with zeros behind it.
  uint8_t last_weights[kRows][kStepWeights<Format>] = {};
  uint8_t last_scales[kRows][kStepScales<type>] = {};
  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const uint8_t* weights[kRows];
    const uint8_t* scales[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int64_t source = smaller(row + r, row_end - 1);  // past the end: any row, its result is dropped
      weights[r] = bytes(w.data) + source * groups * Format::kGroupBytes;
      scales[r] = bytes(w.scales) + source * groups * kScaleBytes;
    }
    F sums[T];
    for (int t = 0; t < T; ++t) sums[t] = zero();
    for (int64_t step = 0; step < whole; ++step) {
      add_step<Format, type, T>(weights, scales, x, step, sums);
      for (int r = 0; r < kRows; ++r) {
        weights[r] += kStepWeights<Format>;
        scales[r] += kStepScales<type>;
      }
    }
    if (rest != 0) {
      const uint8_t* weight_rows[kRows];
      const uint8_t* scale_rows[kRows];
      for (int r = 0; r < kRows; ++r) {
        memcpy(last_weights[r], weights[r], static_cast<size_t>(rest * Format::kGroupBytes));
        memcpy(last_scales[r], scales[r], static_cast<size_t>(rest * kScaleBytes));
        weight_rows[r] = last_weights[r];
        scale_rows[r] = last_scales[r];
      }
      add_step<Format, type, T>(weight_rows, scale_rows, x, whole, sums);
    }
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t)
      sums[t] = add_second_terms<Format, type>(weights, scales, whole, last_weights, last_scales, x[t],
                                               w.cols, sums[t]);
    for (int t = 0; t < T; ++t) {
      float* const out = y + t * y_stride + row;
      const __m128 result = sum_of_parts(sums[t]);
      if (row + kRows <= row_end) {
        _mm_storeu_ps(out, result);
      } else {
        float values[kRows];
        _mm_storeu_ps(values, result);
        for (int64_t r = row; r < row_end; ++r) out[r - row] = values[r - row];
      }
    }
  }
}

// m in [1, T].
template <class Format, DType type, int T>
void few_rows_of(int64_t m, const void* x, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
                 int64_t y_stride) {
  if (m == T) {
    few_rows<Format, type, T>(x, w, row_begin, row_end, y, y_stride);
  } else if constexpr (T > 1) {
    few_rows_of<Format, type, T - 1>(m, x, w, row_begin, row_end, y, y_stride);
  }
}

}  // namespace
}  // namespace dovetail::ops::DOVETAIL_LEVEL
