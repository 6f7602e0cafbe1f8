#include "convert/quantize_avx2.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

namespace dovetail::convert::avx2 {

#if defined(__AVX2__) && defined(__F16C__)

namespace {

template <Float kSource>
inline __m256 load8(const void* values, int64_t index) {
  if constexpr (kSource == Float::kF32) {
    return _mm256_loadu_ps(static_cast<const float*>(values) + index);
  } else {
    const __m128i half =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(values) + 2 * index));
    if constexpr (kSource == Float::kF16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
}

template <bool kHalf>
inline __m256 rounded(__m256 value) {
  if constexpr (kHalf)
    return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return value;
}

inline uint32_t max_lane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

inline uint32_t or_lanes(__m256i v) {
  __m128i m = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_or_si128(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_or_si128(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

template <Float kSource, bool kHalf>
void groups_of(const void* values, int64_t groups, uint32_t* words, void* scales) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256 seven = _mm256_set1_ps(7.0f);
  for (int64_t g = 0; g < groups; ++g) {
    __m256 w[4];
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      w[i] = rounded<kHalf>(load8<kSource>(values, 32 * g + 8 * i));
      // Compared as integers, so that NaN counts as the largest.
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(w[i]), magnitude));
    }
    const __m256 top = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(max_lane(largest))));
    const __m256 scale = rounded<kHalf>(_mm256_div_ps(top, seven));
    for (int i = 0; i < 4; ++i) {
      __m256 q = rounded<kHalf>(_mm256_div_ps(w[i], scale));
      q = _mm256_round_ps(rounded<kHalf>(_mm256_add_ps(q, seven)),
                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      // The second operand is the result when the first is NaN: NaN becomes 0.
      q = _mm256_min_ps(_mm256_max_ps(q, _mm256_setzero_ps()), _mm256_set1_ps(14.0f));
      words[4 * g + i] = or_lanes(_mm256_sllv_epi32(_mm256_cvtps_epi32(q), shifts));
    }
    if constexpr (kHalf) {
      const __m128i half = _mm256_cvtps_ph(scale, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      static_cast<uint16_t*>(scales)[g] = static_cast<uint16_t>(_mm_extract_epi16(half, 0));
    } else {
      static_cast<float*>(scales)[g] = _mm256_cvtss_f32(scale);
    }
  }
}

template <Float kSource>
void groups_from(const void* values, int64_t groups, bool half, uint32_t* words, void* scales) {
  if (half) return groups_of<kSource, true>(values, groups, words, scales);
  groups_of<kSource, false>(values, groups, words, scales);
}

template <Float kSource>
int64_t to_half(const void* values, int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half =
        _mm256_cvtps_ph(load8<kSource>(values, i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  return i;
}

}  // namespace

bool built() { return true; }

void quantize_groups(Float source, const void* values, int64_t groups, bool half, uint32_t* words,
                     void* scales) {
  switch (source) {
    case Float::kF32:
      return groups_from<Float::kF32>(values, groups, half, words, scales);
    case Float::kF16:
      return groups_from<Float::kF16>(values, groups, half, words, scales);
    case Float::kBF16:
      return groups_from<Float::kBF16>(values, groups, half, words, scales);
  }
}

int64_t convert_to_half(Float source, const void* values, int64_t count, uint16_t* out) {
  switch (source) {
    case Float::kF32:
      return to_half<Float::kF32>(values, count, out);
    case Float::kF16:
      return to_half<Float::kF16>(values, count, out);
    case Float::kBF16:
      return to_half<Float::kBF16>(values, count, out);
  }
  return 0;
}

#else

bool built() { return false; }
void quantize_groups(Float, const void*, int64_t, bool, uint32_t*, void*) {}
int64_t convert_to_half(Float, const void*, int64_t, uint16_t*) { return 0; }

#endif

}  // namespace dovetail::convert::avx2
