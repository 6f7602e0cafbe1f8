// Vectors of float32 and int32 at the width of the level that this file is compiled for.
//
// Everything is `static`: nothing here or in the other files of this folder may have external linkage except
// the table, and no inline function of the standard library may be used. The linker keeps one copy of such a
// function, and a copy compiled for AVX-512 would then run on a CPU without it.
//
// DOVETAIL_LEVEL is the namespace of the level. DOVETAIL_WIDE selects 512-bit vectors, else 256.
// DOVETAIL_SIMDE takes the 512-bit instructions from SIMDe, so that tests can run them on a CPU that lacks
// them; what SIMDe lacks is put together from two 256-bit halves, with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(DOVETAIL_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

namespace dovetail::ops::DOVETAIL_LEVEL {

#define DOVETAIL_INLINE static inline __attribute__((always_inline))

#if defined(DOVETAIL_WIDE)

constexpr int kLanes = 16;
using F = __m512;
using I = __m512i;
using Mask = __mmask16;

DOVETAIL_INLINE __m256 low_half(F a) { return _mm512_castps512_ps256(a); }
DOVETAIL_INLINE F join(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
DOVETAIL_INLINE I join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

DOVETAIL_INLINE F zero() { return _mm512_setzero_ps(); }
DOVETAIL_INLINE F set1(float a) { return _mm512_set1_ps(a); }
DOVETAIL_INLINE F load(const void* p) { return _mm512_loadu_ps(p); }
DOVETAIL_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a); }
DOVETAIL_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
DOVETAIL_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
DOVETAIL_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
DOVETAIL_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
DOVETAIL_INLINE F bit_and(F a, F b) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
DOVETAIL_INLINE F bit_or(F a, F b) {
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
DOVETAIL_INLINE Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
DOVETAIL_INLINE F select(Mask m, F yes, F no) { return _mm512_mask_mov_ps(no, m, yes); }
DOVETAIL_INLINE I set1_int(int32_t a) { return _mm512_set1_epi32(a); }
DOVETAIL_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
DOVETAIL_INLINE I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
DOVETAIL_INLINE F as_float(I a) { return _mm512_castsi512_ps(a); }

#if defined(DOVETAIL_SIMDE)
DOVETAIL_INLINE __m256 high_half(F a) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
DOVETAIL_INLINE __m256i low_half(I a) { return _mm512_castsi512_si256(a); }
DOVETAIL_INLINE __m256i high_half(I a) { return _mm512_extracti64x4_epi64(a, 1); }
DOVETAIL_INLINE F fma(F a, F b, F c) {
  return join(_mm256_fmadd_ps(low_half(a), low_half(b), low_half(c)),
              _mm256_fmadd_ps(high_half(a), high_half(b), high_half(c)));
}
// The second operand where either is a NaN, as the instruction does.
DOVETAIL_INLINE F max(F a, F b) {
  return join(_mm256_max_ps(low_half(a), low_half(b)), _mm256_max_ps(high_half(a), high_half(b)));
}
DOVETAIL_INLINE F min(F a, F b) {
  return join(_mm256_min_ps(low_half(a), low_half(b)), _mm256_min_ps(high_half(a), high_half(b)));
}
DOVETAIL_INLINE F load_n(const void* p, int64_t n) {
  float buffer[kLanes] = {};
  memcpy(buffer, p, static_cast<size_t>(n) * sizeof(float));
  return load(buffer);
}
DOVETAIL_INLINE void store_n(float* p, F a, int64_t n) {
  float buffer[kLanes];
  store(buffer, a);
  memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}
DOVETAIL_INLINE I to_int(F a) {
  return join(_mm256_cvtps_epi32(low_half(a)), _mm256_cvtps_epi32(high_half(a)));
}
DOVETAIL_INLINE F to_float(I a) {
  return join(_mm256_cvtepi32_ps(low_half(a)), _mm256_cvtepi32_ps(high_half(a)));
}
DOVETAIL_INLINE F round(F a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return join(_mm256_round_ps(low_half(a), kNearest), _mm256_round_ps(high_half(a), kNearest));
}
DOVETAIL_INLINE I half_int(I a) {
  return join(_mm256_srai_epi32(low_half(a), 1), _mm256_srai_epi32(high_half(a), 1));
}
DOVETAIL_INLINE I shift_left_int(I a, int bits) {
  return join(_mm256_slli_epi32(low_half(a), bits), _mm256_slli_epi32(high_half(a), bits));
}
DOVETAIL_INLINE F from_f16(__m256i a) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
DOVETAIL_INLINE __m256i to_f16(F a) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high_half(a), _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(low_half(a), _MM_FROUND_TO_NEAREST_INT));
}
DOVETAIL_INLINE I widen_u16(__m256i a) {
  return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
DOVETAIL_INLINE I widen_u8(__m128i a) {
  return join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
#else
DOVETAIL_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand where either is a NaN.
DOVETAIL_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
DOVETAIL_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
DOVETAIL_INLINE Mask first_lanes(int64_t n) { return static_cast<Mask>((1u << n) - 1u); }
DOVETAIL_INLINE F load_n(const void* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
DOVETAIL_INLINE void store_n(float* p, F a, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
DOVETAIL_INLINE I to_int(F a) { return _mm512_cvtps_epi32(a); }
DOVETAIL_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
DOVETAIL_INLINE F round(F a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
DOVETAIL_INLINE I half_int(I a) { return _mm512_srai_epi32(a, 1); }
DOVETAIL_INLINE I shift_left_int(I a, int bits) { return _mm512_slli_epi32(a, static_cast<unsigned>(bits)); }
DOVETAIL_INLINE F from_f16(__m256i a) { return _mm512_cvtph_ps(a); }
DOVETAIL_INLINE __m256i to_f16(F a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT); }
DOVETAIL_INLINE I widen_u16(__m256i a) { return _mm512_cvtepu16_epi32(a); }
DOVETAIL_INLINE I widen_u8(__m128i a) { return _mm512_cvtepu8_epi32(a); }
#endif

DOVETAIL_INLINE F load_f16(const void* p) {
  return from_f16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
DOVETAIL_INLINE void store_f16(void* p, F a) { _mm256_storeu_si256(static_cast<__m256i*>(p), to_f16(a)); }
DOVETAIL_INLINE F load_bf16(const void* p) {
  return as_float(shift_left_int(widen_u16(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
}
DOVETAIL_INLINE F load_u8(const void* p) {
  return to_float(widen_u8(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}

// The sum over each 128-bit part of the four rows a, b, c, d.
DOVETAIL_INLINE F sum_in_parts(F a, F b, F c, F d) {
  const F ab = add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const F cd = add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
  return add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
// (part 0 + part 1) + (part 2 + part 3), element by element.
DOVETAIL_INLINE __m128 sum_of_parts(F a) {
  return _mm_add_ps(_mm_add_ps(_mm512_castps512_ps128(a), _mm512_extractf32x4_ps(a, 1)),
                    _mm_add_ps(_mm512_extractf32x4_ps(a, 2), _mm512_extractf32x4_ps(a, 3)));
}

#else  // 256-bit vectors

constexpr int kLanes = 8;
using F = __m256;
using I = __m256i;
using Mask = __m256;

DOVETAIL_INLINE F zero() { return _mm256_setzero_ps(); }
DOVETAIL_INLINE F set1(float a) { return _mm256_set1_ps(a); }
DOVETAIL_INLINE F load(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
DOVETAIL_INLINE void store(float* p, F a) { _mm256_storeu_ps(p, a); }
DOVETAIL_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
DOVETAIL_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
DOVETAIL_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
DOVETAIL_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
DOVETAIL_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
// The second operand where either is a NaN.
DOVETAIL_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
DOVETAIL_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
DOVETAIL_INLINE F bit_and(F a, F b) { return _mm256_and_ps(a, b); }
DOVETAIL_INLINE F bit_or(F a, F b) { return _mm256_or_ps(a, b); }
DOVETAIL_INLINE Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
DOVETAIL_INLINE F select(Mask m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
DOVETAIL_INLINE I set1_int(int32_t a) { return _mm256_set1_epi32(a); }
DOVETAIL_INLINE I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
DOVETAIL_INLINE I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
DOVETAIL_INLINE F as_float(I a) { return _mm256_castsi256_ps(a); }
DOVETAIL_INLINE I first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
DOVETAIL_INLINE F load_n(const void* p, int64_t n) {
  return _mm256_maskload_ps(static_cast<const float*>(p), first_lanes(n));
}
DOVETAIL_INLINE void store_n(float* p, F a, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), a); }
DOVETAIL_INLINE I to_int(F a) { return _mm256_cvtps_epi32(a); }
DOVETAIL_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
DOVETAIL_INLINE F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
DOVETAIL_INLINE I half_int(I a) { return _mm256_srai_epi32(a, 1); }
DOVETAIL_INLINE I shift_left_int(I a, int bits) { return _mm256_slli_epi32(a, bits); }

DOVETAIL_INLINE F load_f16(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
DOVETAIL_INLINE void store_f16(void* p, F a) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
DOVETAIL_INLINE F load_bf16(const void* p) {
  return as_float(shift_left_int(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))), 16));
}
DOVETAIL_INLINE F load_u8(const void* p) {
  return to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}

// The sum over each 128-bit part of the four rows a, b, c, d.
DOVETAIL_INLINE F sum_in_parts(F a, F b, F c, F d) {
  const F ab = add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const F cd = add(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
  return add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
// Part 0 + part 1, element by element.
DOVETAIL_INLINE __m128 sum_of_parts(F a) {
  return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}

#endif

// Four horizontal sums at once; the order of additions is fixed.
DOVETAIL_INLINE __m128 horizontal_sums(F a, F b, F c, F d) { return sum_of_parts(sum_in_parts(a, b, c, d)); }
DOVETAIL_INLINE float horizontal_sum(F a) { return _mm_cvtss_f32(horizontal_sums(a, a, a, a)); }

DOVETAIL_INLINE float horizontal_max(F a) {
  float lanes[kLanes];
  store(lanes, a);
  __m128 largest = _mm_loadu_ps(lanes);
  for (int i = 4; i < kLanes; i += 4) largest = _mm_max_ps(largest, _mm_loadu_ps(lanes + i));
  largest = _mm_max_ps(largest, _mm_movehl_ps(largest, largest));
  return _mm_cvtss_f32(_mm_max_ss(largest, _mm_movehdup_ps(largest)));
}

// The ends of rows: n < kLanes elements, the rest zero.
DOVETAIL_INLINE F load_f16_n(const void* p, int64_t n) {
  uint16_t buffer[kLanes] = {};
  memcpy(buffer, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_f16(buffer);
}
DOVETAIL_INLINE F load_bf16_n(const void* p, int64_t n) {
  uint16_t buffer[kLanes] = {};
  memcpy(buffer, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_bf16(buffer);
}
DOVETAIL_INLINE void store_f16_n(void* p, F a, int64_t n) {
  uint16_t buffer[kLanes];
  store_f16(buffer, a);
  memcpy(p, buffer, static_cast<size_t>(n) * sizeof(uint16_t));
}

// Element types as stored in memory, for templates.
struct F32 {
  static constexpr int64_t kBytes = 4;
  DOVETAIL_INLINE F get(const void* p) { return load(p); }
  DOVETAIL_INLINE F get_n(const void* p, int64_t n) { return load_n(p, n); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  DOVETAIL_INLINE F get(const void* p) { return load_f16(p); }
  DOVETAIL_INLINE F get_n(const void* p, int64_t n) { return load_f16_n(p, n); }
};
struct BF16 {
  static constexpr int64_t kBytes = 2;
  DOVETAIL_INLINE F get(const void* p) { return load_bf16(p); }
  DOVETAIL_INLINE F get_n(const void* p, int64_t n) { return load_bf16_n(p, n); }
};

DOVETAIL_INLINE const uint8_t* bytes(const void* p) { return static_cast<const uint8_t*>(p); }
DOVETAIL_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
DOVETAIL_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
DOVETAIL_INLINE int64_t round_up(int64_t a, int64_t step) { return (a + step - 1) / step * step; }

}  // namespace dovetail::ops::DOVETAIL_LEVEL
