// Products of q4 weights and activations rounded to int8. See q4.h for the layout and the order of additions.
#include "ops/cpu/kernels.h"
#include "ops/cpu/q4.h"
#include "ops/cpu/simd.h"

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

// ---------------------------------------------------------------------------------------------------------------
// Few rows of x: straight from the packed weights, four weight rows at a time.

constexpr int kRows = 4;

#if defined(DOVETAIL_WIDE)
DOVETAIL_INLINE I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
DOVETAIL_INLINE I low_nibbles(I w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
DOVETAIL_INLINE I high_nibbles(I w) {
  return _mm512_and_si512(_mm512_srli_epi16(w, 4), _mm512_set1_epi8(15));
}
// Exact partial sums of one weight row: four int32 per group.
DOVETAIL_INLINE I products(I low, I high, I even, I odd) {
  return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, even), high, odd);
}
// Group sums of four weight rows from their products: part g holds rows 0…3 of group g.
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
DOVETAIL_INLINE I low_nibbles(I w) { return _mm256_and_si256(w, _mm256_set1_epi8(15)); }
DOVETAIL_INLINE I high_nibbles(I w) {
  return _mm256_and_si256(_mm256_srli_epi16(w, 4), _mm256_set1_epi8(15));
}
// Exact partial sums of one weight row: eight int16 per group, each at most 4 * 15 * 127 = 7620 in magnitude.
DOVETAIL_INLINE I products(I low, I high, I even, I odd) {
  return _mm256_add_epi16(_mm256_maddubs_epi16(low, even), _mm256_maddubs_epi16(high, odd));
}
// Group sums of four weight rows from their products: part g holds rows 0…3 of group g. Four int16 are added
// before the widening: at most 30480.
DOVETAIL_INLINE I group_sums(I a, I b, I c, I d) {
  const I ab = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const I cd = _mm256_add_epi16(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  const I all = _mm256_add_epi16(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return _mm256_madd_epi16(all, _mm256_set1_epi16(1));
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

DOVETAIL_INLINE F spread(const float* p) { return as_float(spread_int(reinterpret_cast<const int32_t*>(p))); }

// Adds one step of four weight rows to the accumulators of T rows of x.
template <DType type, int T>
DOVETAIL_INLINE void add_step(const uint8_t* const weights[kRows], const uint8_t* const scales[kRows],
                              const RoundedRow (&x)[T], int64_t step, F (&sums)[T]) {
  I low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) {
    const I w = load_bytes(weights[r]);
    low[r] = low_nibbles(w);
    high[r] = high_nibbles(w);
  }
  const F weight_scales = step_scales<type>(scales);
  for (int t = 0; t < T; ++t) {
    const I even = load_bytes(x[t].q + step * kStepBytes);
    const I odd = load_bytes(x[t].q + step * kStepBytes + kStepBytes / 2);
    I p[kRows];
    for (int r = 0; r < kRows; ++r) p[r] = products(low[r], high[r], even, odd);
    const I sum =
        add_int(group_sums(p[0], p[1], p[2], p[3]), spread_int(x[t].corrections + step * kInterleave));
    sums[t] = fma(to_float(sum), mul(weight_scales, spread(x[t].scales + step * kInterleave)), sums[t]);
  }
}

template <DType type, int T>
void few_rows(const void* quantized_x, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
              int64_t y_stride) {
  constexpr int64_t kScaleBytes = type == DType::kFloat32 ? 4 : 2;
  const int64_t groups = groups_of(w.cols);
  const int64_t whole = groups / kInterleave, rest = groups % kInterleave;
  const size_t x_stride = quantized_row_bytes(w.cols);
  RoundedRow x[T];
  for (int t = 0; t < T; ++t)
    x[t] = rounded_row(bytes(quantized_x) + static_cast<size_t>(t) * x_stride, w.cols);

  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const uint8_t* weights[kRows];
    const uint8_t* scales[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int64_t source = smaller(row + r, row_end - 1);  // past the end: any row, its result is dropped
      weights[r] = bytes(w.data) + source * groups * kGroupBytes;
      scales[r] = bytes(w.scales) + source * groups * kScaleBytes;
    }
    F sums[T];
    for (int t = 0; t < T; ++t) sums[t] = zero();
    for (int64_t step = 0; step < whole; ++step) {
      add_step<type, T>(weights, scales, x, step, sums);
      for (int r = 0; r < kRows; ++r) {
        weights[r] += kStepWeights;
        scales[r] += kInterleave * kScaleBytes;
      }
    }
    if (rest != 0) {
      uint8_t last_weights[kRows][kStepWeights] = {};
      uint8_t last_scales[kRows][kInterleave * kScaleBytes] = {};
      for (int r = 0; r < kRows; ++r) {
        memcpy(last_weights[r], weights[r], static_cast<size_t>(rest * kGroupBytes));
        memcpy(last_scales[r], scales[r], static_cast<size_t>(rest * kScaleBytes));
        weights[r] = last_weights[r];
        scales[r] = last_scales[r];
      }
      add_step<type, T>(weights, scales, x, whole, sums);
    }
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

// ---------------------------------------------------------------------------------------------------------------
// Many rows of x: a tile of weight rows is unpacked once, one weight row per lane, and used for all of them.

#if defined(DOVETAIL_WIDE)
constexpr int kBlocks = 2;       // vectors of weight rows in a tile
constexpr int kTokens = 6;       // rows of x in a register tile
constexpr int64_t kFewRows = 3;  // up to here the other product is faster
#else
constexpr int kBlocks = 1;
constexpr int kTokens = 4;
constexpr int64_t kFewRows = 3;
#endif
constexpr int kTileRows = kBlocks * kLanes;
constexpr int64_t kVectorBytes = kLanes * 4;
constexpr int kWords = 8;  // of four weights in a group
// A tile: [kInterleave][steps][kWords][kBlocks] vectors of weights, then [kInterleave][steps][kBlocks] of
// scales.
constexpr int64_t kTileGroupBytes = kWords * kBlocks * kVectorBytes;

#if defined(DOVETAIL_WIDE)
// Rows of kLanes dwords become columns.
DOVETAIL_INLINE void transpose(I (&r)[kLanes]) {
  I t[kLanes];
  for (int i = 0; i < kLanes; i += 4) {
    const I a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const I c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // Part p of t[i + j] holds rows i…i+3 of column 4p + j.
  for (int j = 0; j < 4; ++j) {
    const I a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x44), b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xee);
    const I c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x44),
            d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xee);
    r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[8 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}
DOVETAIL_INLINE void store_bytes(void* p, I a) { _mm512_storeu_si512(p, a); }
#else
DOVETAIL_INLINE void transpose(I (&r)[kLanes]) {
  I t[kLanes];
  for (int i = 0; i < kLanes; i += 4) {
    const I a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    const I c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm256_permute2x128_si256(t[j], t[4 + j], 0x20);
    r[4 + j] = _mm256_permute2x128_si256(t[j], t[4 + j], 0x31);
  }
}
DOVETAIL_INLINE void store_bytes(void* p, I a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
#endif

void unpack_tile(const Matrix& w, int64_t row, int64_t rows, uint8_t* tile) {
  const int64_t groups = groups_of(w.cols), steps = steps_of(w.cols);
  const int64_t scale_bytes = number_bytes(w.scale_type);
  float* const scales = reinterpret_cast<float*>(tile + kInterleave * steps * kTileGroupBytes);
  for (int block = 0; block < kBlocks; ++block) {
    const int64_t first = row + block * kLanes;
    const int64_t count = larger(0, smaller(kLanes, row + rows - first));
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t have = smaller(kInterleave, groups - step * kInterleave);
      I r[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const uint8_t* const source =
            bytes(w.data) + ((first + smaller(i, count - 1)) * groups + step * kInterleave) * kGroupBytes;
        if (i >= count) {
          r[i] = set1_int(0);
        } else if (have == kInterleave) {
          r[i] = load_bytes(source);
        } else {
          uint8_t last[kStepWeights] = {};
          memcpy(last, source, static_cast<size_t>(have * kGroupBytes));
          r[i] = load_bytes(last);
        }
      }
      transpose(r);
      for (int part = 0; part < kInterleave; ++part) {
        uint8_t* const out = tile + (part * steps + step) * kTileGroupBytes + block * kVectorBytes;
        for (int word = 0; word < 4; ++word) {
          store_bytes(out + word * kBlocks * kVectorBytes, low_nibbles(r[part * 4 + word]));
          store_bytes(out + (4 + word) * kBlocks * kVectorBytes, high_nibbles(r[part * 4 + word]));
        }
      }
    }
    for (int part = 0; part < kInterleave; ++part) {
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t group = step * kInterleave + part;
        float* const out = scales + ((part * steps + step) * kBlocks + block) * kLanes;
        for (int64_t i = 0; i < kLanes; ++i) {
          const bool inside = i < count && group < groups;
          out[i] = inside ? read_number(bytes(w.scales) + ((first + i) * groups + group) * scale_bytes,
                                        w.scale_type)
                          : 0.0f;
        }
      }
    }
  }
}

DOVETAIL_INLINE I broadcast4(const int8_t* p) {
  int32_t four;
  memcpy(&four, p, sizeof four);
  return set1_int(four);
}

#if defined(DOVETAIL_WIDE)
DOVETAIL_INLINE I first_sum(const int32_t* correction) { return set1_int(*correction); }
DOVETAIL_INLINE I add_products(I sum, I w, I x) { return _mm512_dpbusd_epi32(sum, w, x); }
DOVETAIL_INLINE I group_sum(I sum, const int32_t*) { return sum; }
#else
// Sixteen products of at most 15 * 127 are added in int16: at most 30480.
DOVETAIL_INLINE I first_sum(const int32_t*) { return set1_int(0); }
DOVETAIL_INLINE I add_products(I sum, I w, I x) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x)); }
DOVETAIL_INLINE I group_sum(I sum, const int32_t* correction) {
  return add_int(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), set1_int(*correction));
}
#endif

template <int T>
void tile_product(const uint8_t* tile, const uint8_t* quantized_x, size_t x_stride, int64_t cols,
                  int64_t rows, float* y, int64_t y_stride) {
  const int64_t steps = steps_of(cols);
  const uint8_t* weights = tile;
  const float* scales = reinterpret_cast<const float*>(tile + kInterleave * steps * kTileGroupBytes);
  RoundedRow x[T];
  for (int t = 0; t < T; ++t) x[t] = rounded_row(quantized_x + static_cast<size_t>(t) * x_stride, cols);
  alignas(64) float parts[kInterleave][T][kTileRows];

  for (int part = 0; part < kInterleave; ++part) {
    F sums[T][kBlocks];
    for (int t = 0; t < T; ++t) {
      for (int b = 0; b < kBlocks; ++b) sums[t][b] = zero();
    }
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t group = step * kInterleave + part;
      const int64_t even = step * kStepBytes + part * kGroupBytes;
      I products[T][kBlocks];
      for (int t = 0; t < T; ++t) {
        for (int b = 0; b < kBlocks; ++b) products[t][b] = first_sum(x[t].corrections + group);
      }
#pragma GCC unroll 8
      for (int word = 0; word < kWords; ++word) {
        const int64_t offset = even + (word / 4) * (kStepBytes / 2) + (word % 4) * 4;
        I w[kBlocks];
        for (int b = 0; b < kBlocks; ++b) w[b] = load_bytes(weights + (word * kBlocks + b) * kVectorBytes);
        for (int t = 0; t < T; ++t) {
          const I four = broadcast4(x[t].q + offset);
          for (int b = 0; b < kBlocks; ++b) products[t][b] = add_products(products[t][b], w[b], four);
        }
      }
      for (int b = 0; b < kBlocks; ++b) {
        const F weight_scales = load(scales + b * kLanes);
        for (int t = 0; t < T; ++t) {
          const F sum = to_float(group_sum(products[t][b], x[t].corrections + group));
          sums[t][b] = fma(sum, mul(weight_scales, set1(x[t].scales[group])), sums[t][b]);
        }
      }
      weights += kTileGroupBytes;
      scales += kTileRows;
    }
    for (int t = 0; t < T; ++t) {
      for (int b = 0; b < kBlocks; ++b) store(&parts[part][t][b * kLanes], sums[t][b]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int b = 0; b < kBlocks && b * kLanes < rows; ++b) {
      F sum = add(load(&parts[0][t][b * kLanes]), load(&parts[1][t][b * kLanes]));
      if constexpr (kInterleave == 4) {
        sum = add(sum, add(load(&parts[2][t][b * kLanes]), load(&parts[3][t][b * kLanes])));
      }
      store_n(y + t * y_stride + b * kLanes, sum, smaller(kLanes, rows - b * kLanes));
    }
  }
}

using TileProduct = void (*)(const uint8_t*, const uint8_t*, size_t, int64_t, int64_t, float*, int64_t);

constexpr TileProduct kTileProducts[] = {
    tile_product<1>, tile_product<2>, tile_product<3>, tile_product<4>,
#if defined(DOVETAIL_WIDE)
    tile_product<5>, tile_product<6>,
#endif
};
static_assert(sizeof kTileProducts / sizeof kTileProducts[0] == kTokens);

template <DType type>
void few_rows_of_type(const void* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
                      int64_t y_stride) {
  if (m == 1) few_rows<type, 1>(x, w, row_begin, row_end, y, y_stride);
  if (m == 2) few_rows<type, 2>(x, w, row_begin, row_end, y, y_stride);
  if (m == 3) few_rows<type, 3>(x, w, row_begin, row_end, y, y_stride);
}

}  // namespace

size_t quantized_row_bytes(int64_t cols) {
  return static_cast<size_t>(round_up(steps_of(cols) * (kStepBytes + kInterleave * 8), 64));
}

void quantize_row(const float* x, int64_t cols, void* out) {
  const int64_t groups = groups_of(cols), padded = steps_of(cols) * kInterleave;
  const RoundedRow row = rounded_row(out, cols);
  int8_t* const q = static_cast<int8_t*>(out);
  float* const scales = const_cast<float*>(row.scales);
  int32_t* const corrections = const_cast<int32_t*>(row.corrections);
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  constexpr int kInf = 0x7f800000, kSmallest = 0x04800000;  // 2^-118
  for (int64_t group = 0; group < padded; ++group) {
    float last[kGroup] = {};
    const float* source = x + group * kGroup;
    if (group >= groups) {
      source = last;
    } else if (cols - group * kGroup < kGroup) {
      memcpy(last, source, static_cast<size_t>(cols - group * kGroup) * sizeof(float));
      source = last;
    }
    __m256 v[4];
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(source + 8 * i);
      // Magnitudes compare as integers; Inf and NaN are the largest.
      largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_bits));
    }
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    const int most_bits = _mm_cvtsi128_si32(most);
    const float most_value = _mm_cvtss_f32(_mm_castsi128_ps(most));

    __m256i rounded = _mm256_setzero_si256();
    scales[group] = 0.0f;
    if (most_bits >= kInf) {
      scales[group] = __builtin_nanf("");
    } else if (most_bits >= kSmallest) {
      scales[group] = most_value / 127.0f;
      const __m256 inverse = _mm256_set1_ps(127.0f / most_value);
      __m256i n[4];
      for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
      rounded = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
      rounded = _mm256_permutevar8x32_epi32(rounded, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    const __m256i ones = _mm256_set1_epi8(1);
    const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, rounded), _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    corrections[group] = -kZeroPoint * _mm_cvtsi128_si32(sum);

    const __m256i apart =
        _mm256_shuffle_epi8(rounded, _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0,
                                                      2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m256i even_odd = _mm256_permute4x64_epi64(apart, 0xd8);
    int8_t* const even = q + group / kInterleave * kStepBytes + group % kInterleave * kGroupBytes;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(even), _mm256_castsi256_si128(even_odd));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(even + kStepBytes / 2),
                     _mm256_extracti128_si256(even_odd, 1));
  }
}

size_t matmul_int8_scratch(int64_t m, int64_t cols) {
  if (m <= kFewRows) return 0;
  return static_cast<size_t>(kInterleave * steps_of(cols) * (kTileGroupBytes + kTileRows * 4));
}

void matmul_int8(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                 float* y, int64_t y_stride, void* scratch) {
  if (m <= kFewRows) {
    switch (w.scale_type) {
      case DType::kFloat16:
        return few_rows_of_type<DType::kFloat16>(quantized_x, m, w, row_begin, row_end, y, y_stride);
      case DType::kBFloat16:
        return few_rows_of_type<DType::kBFloat16>(quantized_x, m, w, row_begin, row_end, y, y_stride);
      default:
        return few_rows_of_type<DType::kFloat32>(quantized_x, m, w, row_begin, row_end, y, y_stride);
    }
  }
  const size_t x_stride = quantized_row_bytes(w.cols);
  uint8_t* const tile = static_cast<uint8_t*>(scratch);
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t rows = smaller(kTileRows, row_end - row);
    unpack_tile(w, row, rows, tile);
    for (int64_t i = 0; i < m; i += kTokens) {
      const int64_t tokens = smaller(kTokens, m - i);
      kTileProducts[tokens - 1](tile, bytes(quantized_x) + static_cast<size_t>(i) * x_stride, x_stride,
                                w.cols, rows, y + i * y_stride + row, y_stride);
    }
  }
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
