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

// Rounded to the type, as a float32.
template <Float kType>
inline __m256 rounded(__m256 value) {
  if constexpr (kType == Float::kF16) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else if constexpr (kType == Float::kBF16) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i cut = _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    return _mm256_blendv_ps(_mm256_castsi256_ps(cut), value, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  } else {
    return value;
  }
}

inline uint32_t max_lane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

inline uint32_t or_lanes(__m128i m) {
  m = _mm_or_si128(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_or_si128(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

inline uint32_t or_lanes(__m256i v) {
  return or_lanes(_mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

template <Float kType>
inline void store_scale(void* scales, int64_t index, __m256 scale) {
  if constexpr (kType == Float::kF32) {
    static_cast<float*>(scales)[index] = _mm256_cvtss_f32(scale);
  } else if constexpr (kType == Float::kF16) {
    const __m128i half = _mm256_cvtps_ph(scale, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    static_cast<uint16_t*>(scales)[index] = static_cast<uint16_t>(_mm_extract_epi16(half, 0));
  } else {
    const __m256i bits = _mm256_castps_si256(rounded<Float::kBF16>(scale));
    const auto word = static_cast<uint32_t>(_mm256_extract_epi32(bits, 0));
    // A NaN stays one when it loses its lower half.
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    static_cast<uint16_t*>(scales)[index] = static_cast<uint16_t>(word >> 16 | (nan ? 0x40u : 0u));
  }
}

// The arithmetic is explained at portable::quantize_row, which gives the same.
template <Float kSource, Float kModel, int kBits, bool kExactScale>
void groups_of(const void* values, int64_t groups, uint32_t* words, void* scales) {
  constexpr int kVectors = kBits == 3 ? 5 : 4;
  constexpr Float kArithmetic = kBits == 8 ? Float::kF32 : kModel;
  constexpr Float kStep = kArithmetic == Float::kF16 ? Float::kF16 : Float::kF32;
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const __m256i nibbles = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i bytes = _mm256_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24);
  const __m256 zero_point = _mm256_set1_ps((1 << (kBits - 1)) - 1);
  const __m256 most = _mm256_add_ps(zero_point, zero_point);
  for (int64_t g = 0; g < groups; ++g) {
    __m256 w[kVectors];
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < kVectors; ++i) {
      w[i] = rounded<kArithmetic>(load8<kSource>(values, 8 * (kVectors * g + i)));
      // Compared as integers, so that NaN counts as the largest.
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(w[i]), magnitude));
    }
    const __m256 top = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(max_lane(largest))));
    const __m256 exact = _mm256_div_ps(top, zero_point);
    store_scale<kModel>(scales, g, exact);
    const __m256 scale = kExactScale ? exact : rounded<kModel>(exact);
    __m256i integers[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      __m256 q = rounded<kStep>(_mm256_div_ps(w[i], scale));
      q = _mm256_round_ps(rounded<kStep>(_mm256_add_ps(q, zero_point)),
                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      // The second operand is the result when the first is NaN: NaN becomes 0.
      q = _mm256_min_ps(_mm256_max_ps(q, _mm256_setzero_ps()), most);
      integers[i] = _mm256_cvtps_epi32(q);
    }
    if constexpr (kBits == 4) {
      for (int i = 0; i < 4; ++i) *words++ = or_lanes(_mm256_sllv_epi32(integers[i], nibbles));
    } else if constexpr (kBits == 8) {
      for (int i = 0; i < 4; ++i) {
        const __m256i placed = _mm256_sllv_epi32(integers[i], bytes);
        *words++ = or_lanes(_mm256_castsi256_si128(placed));
        *words++ = or_lanes(_mm256_extracti128_si256(placed, 1));
      }
    } else {
      uint32_t q[8 * kVectors];
      for (int i = 0; i < kVectors; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 8 * i), integers[i]);
      for (int word = 0; word < 4; ++word) {
        uint32_t packed = 0;
        for (int i = 0; i < 10; ++i) packed |= q[10 * word + i] << (3 * i);
        *words++ = packed;
      }
    }
  }
}

template <Float kSource>
void groups_from(const void* values, int64_t groups, const Mode& mode, uint32_t* words, void* scales) {
  constexpr Float kF16 = Float::kF16, kBF16 = Float::kBF16, kF32 = Float::kF32;
  if (mode.bits == 3) return groups_of<kSource, kF16, 3, false>(values, groups, words, scales);
  if (mode.bits == 8) return groups_of<kSource, kF16, 8, false>(values, groups, words, scales);
  switch (mode.model) {
    case kF16:
      return groups_of<kSource, kF16, 4, false>(values, groups, words, scales);
    case kF32:
      return groups_of<kSource, kF32, 4, false>(values, groups, words, scales);
    case kBF16:
      if (mode.transposed) return groups_of<kSource, kBF16, 4, true>(values, groups, words, scales);
      return groups_of<kSource, kBF16, 4, false>(values, groups, words, scales);
  }
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

void quantize_groups(Float source, const void* values, int64_t groups, const Mode& mode, uint32_t* words,
                     void* scales) {
  switch (source) {
    case Float::kF32:
      return groups_from<Float::kF32>(values, groups, mode, words, scales);
    case Float::kF16:
      return groups_from<Float::kF16>(values, groups, mode, words, scales);
    case Float::kBF16:
      return groups_from<Float::kBF16>(values, groups, mode, words, scales);
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
void quantize_groups(Float, const void*, int64_t, const Mode&, uint32_t*, void*) {}
int64_t convert_to_half(Float, const void*, int64_t, uint16_t*) { return 0; }

#endif

}  // namespace dovetail::convert::avx2
