#include "convert/quantize_avx2.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "convert/scale_search.h"

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

constexpr int kLanes = 8;  // one group in each

// Rows become columns, eight by eight.
inline void transpose(const float* rows, int64_t stride, __m256* columns) {
  __m256 r[kLanes], t[kLanes];
  for (int i = 0; i < kLanes; ++i) r[i] = _mm256_loadu_ps(rows + i * stride);
  for (int i = 0; i < kLanes; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    columns[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    columns[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

// The scales of eight groups at once, value i of all of them in w[i]. The arithmetic is that of
// portable::quantize_row.
template <Float kModel, int kBits>
class Search {
 public:
  static constexpr int kSize = kBits == 3 ? 40 : 32;
  static constexpr int kPerWord = 32 / kBits;
  static constexpr int kWords = kSize / kPerWord;

  // `rows`: a group in each.
  explicit Search(const float (&rows)[kLanes][kSize]) {
    for (int i = 0; i < kSize; i += kLanes) transpose(&rows[0][i], kSize, w_ + i);
    __m256i most = _mm256_setzero_si256();
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < kSize; ++i) {
      // Compared as integers, so that NaN counts as the largest.
      const __m256i here = _mm256_castps_si256(magnitude(w_[i]));
      largest = _mm256_blendv_ps(largest, w_[i], _mm256_castsi256_ps(_mm256_cmpgt_epi32(here, most)));
      most = _mm256_max_epi32(most, here);
      mean_ = _mm256_add_ps(mean_, magnitude(w_[i]));
    }
    mean_ = _mm256_mul_ps(mean_, _mm256_set1_ps(1.0f / kSize));
    const __m256 size = _mm256_castsi256_ps(most);
    constexpr float kLargest = largest_searched(kModel == Float::kF16);
    const __m256 searched = _mm256_and_ps(_mm256_cmp_ps(size, _mm256_set1_ps(kSmallestSearched), _CMP_GE_OQ),
                                          _mm256_cmp_ps(size, _mm256_set1_ps(kLargest), _CMP_LE_OQ));
    searched_ = _mm256_movemask_ps(searched);
    if (searched_ == 0) return;
    if (kBits == 8) largest = size;
    for (int i = 0; i < kScales; i += kTogether) {
      __m256 scales[kTogether];
      for (int j = 0; j < kTogether; ++j) {
        const float to = static_cast<float>(kHigh) + static_cast<float>(i + j - kScaleOrigin) * kStep;
        scales[j] = rounded<kModel>(_mm256_div_ps(largest, _mm256_set1_ps(to)));
      }
      choose(scales, i == 0);
    }
    for (int i = 0; i < kRefits; ++i) {
      const __m256 scales[1] = {rounded<kModel>(refitted())};
      choose(scales, false);
    }
  }

  // Bit g: group g has been searched.
  int searched() const { return searched_; }
  __m256 scales() const { return best_; }
  // Word `index` of each group.
  __m256i word(int index) const {
    const __m256 inverse = inverse_of(best_);
    const __m256i zero_point = _mm256_set1_epi32(-kLow);
    __m256i packed = _mm256_setzero_si256();
    for (int i = 0; i < kPerWord; ++i) {
      const __m256i q = _mm256_cvtps_epi32(quantized(w_[index * kPerWord + i], inverse));
      packed = _mm256_or_si256(
          packed, _mm256_sll_epi32(_mm256_add_epi32(q, zero_point), _mm_cvtsi32_si128(kBits * i)));
    }
    return packed;
  }

 private:
  static constexpr int kLow = lowest(kBits), kHigh = highest(kBits);
  static constexpr float kStep = scale_step(kBits);
  static constexpr int kTogether = 4;  // scales whose sums grow side by side
  static_assert(kScales % kTogether == 0);

  static __m256 magnitude(__m256 value) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value); }
  static __m256 inverse_of(__m256 scale) {
    const __m256 zero = _mm256_cmp_ps(scale, _mm256_setzero_ps(), _CMP_EQ_OQ);
    return _mm256_andnot_ps(zero, _mm256_div_ps(_mm256_set1_ps(1.0f), scale));
  }
  static __m256 quantized(__m256 value, __m256 inverse) {
    const __m256 q =
        _mm256_round_ps(_mm256_mul_ps(value, inverse), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_min_ps(_mm256_max_ps(q, _mm256_set1_ps(kLow)), _mm256_set1_ps(kHigh));
  }
  template <int kCount>
  void choose(const __m256 (&scales)[kCount], bool first) {
    __m256 inverses[kCount], errors[kCount];
    for (int j = 0; j < kCount; ++j) {
      inverses[j] = inverse_of(scales[j]);
      errors[j] = _mm256_setzero_ps();
    }
    for (int i = 0; i < kSize; ++i) {
      const __m256 weight = _mm256_add_ps(magnitude(w_[i]), mean_);
      for (int j = 0; j < kCount; ++j) {
        const __m256 error = _mm256_sub_ps(w_[i], _mm256_mul_ps(quantized(w_[i], inverses[j]), scales[j]));
        errors[j] = _mm256_add_ps(errors[j], _mm256_mul_ps(_mm256_mul_ps(weight, error), error));
      }
    }
    for (int j = 0; j < kCount; ++j) {
      const __m256 better = first && j == 0 ? _mm256_castsi256_ps(_mm256_set1_epi32(-1))
                                            : _mm256_cmp_ps(errors[j], error_, _CMP_LT_OQ);
      best_ = _mm256_blendv_ps(best_, scales[j], better);
      error_ = _mm256_blendv_ps(error_, errors[j], better);
    }
  }
  __m256 refitted() const {
    const __m256 inverse = inverse_of(best_);
    __m256 products = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for (int i = 0; i < kSize; ++i) {
      const __m256 q = quantized(w_[i], inverse);
      const __m256 weighted = _mm256_mul_ps(_mm256_add_ps(magnitude(w_[i]), mean_), q);
      products = _mm256_add_ps(products, _mm256_mul_ps(weighted, w_[i]));
      squares = _mm256_add_ps(squares, _mm256_mul_ps(weighted, q));
    }
    const __m256 zero = _mm256_cmp_ps(squares, _mm256_setzero_ps(), _CMP_EQ_OQ);
    return _mm256_andnot_ps(zero, _mm256_div_ps(products, squares));
  }

  __m256 w_[kSize];
  __m256 mean_ = _mm256_setzero_ps();
  __m256 best_ = _mm256_setzero_ps(), error_ = _mm256_setzero_ps();
  int searched_ = 0;
};

template <Float kSource, Float kModel, int kBits>
void search_row_of(const void* values, int64_t cols, const Mode& mode, uint32_t* words, void* scales) {
  using Eight = Search<kModel, kBits>;
  constexpr int64_t kSize = Eight::kSize, kBytes = kSource == Float::kF32 ? 4 : 2;
  constexpr int64_t kScaleBytes = kModel == Float::kF32 ? 4 : 2;
  const int64_t groups = (cols + kSize - 1) / kSize, last_count = cols - (groups - 1) * kSize;
  // The last group, filled up with zeros.
  alignas(32) char last[kSize * kBytes] = {};
  __builtin_memcpy(last, static_cast<const char*>(values) + (groups - 1) * kSize * kBytes,
                   static_cast<size_t>(last_count * kBytes));
  for (int64_t first = 0; first < groups; first += kLanes) {
    const int64_t count = groups - first < kLanes ? groups - first : kLanes;
    const auto source = [&](int64_t lane) -> const void* {
      const int64_t group = first + lane;
      return group == groups - 1 ? last : static_cast<const char*>(values) + group * kSize * kBytes;
    };
    alignas(32) float rows[kLanes][kSize];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      for (int64_t i = 0; i < kSize; i += kLanes) {
        _mm256_store_ps(&rows[lane][i], lane < count ? load8<kSource>(source(lane), i) : _mm256_setzero_ps());
      }
    }
    const Eight search(rows);
    alignas(32) uint32_t packed[Eight::kWords][kLanes];
    for (int i = 0; i < Eight::kWords; ++i)
      _mm256_store_si256(reinterpret_cast<__m256i*>(packed[i]), search.word(i));
    alignas(32) float found[kLanes];
    _mm256_store_ps(found, search.scales());
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t group = first + lane;
      uint32_t* const out = words + group * Eight::kWords;
      if ((search.searched() >> lane & 1) == 0) {
        groups_from<kSource>(source(lane), 1, mode, out, static_cast<char*>(scales) + group * kScaleBytes);
      } else {
        for (int i = 0; i < Eight::kWords; ++i) out[i] = packed[i][lane];
        store_scale<kModel>(scales, group, _mm256_set1_ps(found[lane]));
      }
      if (group < groups - 1) continue;
      // What lies behind the end of the row is 0.
      for (int64_t i = last_count; i < kSize; ++i) {
        const uint32_t code = ((1u << kBits) - 1) << (i % Eight::kPerWord * kBits);
        out[i / Eight::kPerWord] &= ~code;
      }
    }
  }
}

template <Float kSource>
void search_row_from(const void* values, int64_t cols, const Mode& mode, uint32_t* words, void* scales) {
  constexpr Float kF16 = Float::kF16, kBF16 = Float::kBF16, kF32 = Float::kF32;
  if (mode.bits == 3) return search_row_of<kSource, kF16, 3>(values, cols, mode, words, scales);
  if (mode.bits == 8) return search_row_of<kSource, kF16, 8>(values, cols, mode, words, scales);
  switch (mode.model) {
    case kF16:
      return search_row_of<kSource, kF16, 4>(values, cols, mode, words, scales);
    case kF32:
      return search_row_of<kSource, kF32, 4>(values, cols, mode, words, scales);
    case kBF16:
      return search_row_of<kSource, kBF16, 4>(values, cols, mode, words, scales);
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

void search_row(Float source, const void* values, int64_t cols, const Mode& mode, uint32_t* words,
                void* scales) {
  switch (source) {
    case Float::kF32:
      return search_row_from<Float::kF32>(values, cols, mode, words, scales);
    case Float::kF16:
      return search_row_from<Float::kF16>(values, cols, mode, words, scales);
    case Float::kBF16:
      return search_row_from<Float::kBF16>(values, cols, mode, words, scales);
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
void search_row(Float, const void*, int64_t, const Mode&, uint32_t*, void*) {}
int64_t convert_to_half(Float, const void*, int64_t, uint16_t*) { return 0; }

#endif

}  // namespace dovetail::convert::avx2
