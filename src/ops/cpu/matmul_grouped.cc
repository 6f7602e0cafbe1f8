// Products of quantized weights and activations rounded to int8. See grouped.h for the layout and the order
// of additions.
#include "ops/cpu/grouped.h"
#include "ops/cpu/grouped_direct.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"
#if defined(DOVETAIL_WIDE)
#include "ops/cpu/grouped_tile.h"
#endif

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

constexpr int64_t kDirectTokens = 6;  // rows of x in one pass over a block of weights
constexpr int64_t kDirectRows = 32;   // weight rows of a block, which stays in the cache from pass to pass

// Rows of x per pass, so that all passes have about the same.
DOVETAIL_INLINE int64_t even_share(int64_t m, int64_t most) {
  const int64_t passes = (m + most - 1) / most;
  return (m + passes - 1) / passes;
}

template <class Format, DType type>
void direct(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
            int64_t y_stride) {
  const int64_t x_stride = rounded_row_bytes<Format>(w.cols);
  const int64_t share = even_share(m, kDirectTokens);
  for (int64_t row = row_begin; row < row_end; row += kDirectRows) {
    const int64_t end = smaller(row + kDirectRows, row_end);
    for (int64_t i = 0; i < m; i += share) {
      few_rows_of<Format, type, kDirectTokens>(smaller(share, m - i), x + i * x_stride, w, row, end,
                                               y + i * y_stride, y_stride);
    }
  }
}

#if defined(DOVETAIL_WIDE)
constexpr int64_t kTileMinimum = 13;  // rows of x from which unpacking a tile pays

template <class Format, DType type>
void tiled(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
           int64_t y_stride, uint8_t* tile) {
  const int64_t x_stride = rounded_row_bytes<Format>(w.cols);
  const int64_t share = even_share(m, kTokens);
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t rows = smaller(kTileRows, row_end - row);
    unpack_tile<Format, type>(w, row, rows, tile);
    for (int64_t i = 0; i < m; i += share) {
      kTileProducts<Format>[smaller(share, m - i) - 1](tile, x + i * x_stride, x_stride, w.cols, rows,
                                                       y + i * y_stride + row, y_stride);
    }
  }
}
#endif

template <class Format, DType type>
void matmul_of_type(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                    float* y, int64_t y_stride, [[maybe_unused]] uint8_t* tile) {
#if defined(DOVETAIL_WIDE)
  if (m >= kTileMinimum) return tiled<Format, type>(x, m, w, row_begin, row_end, y, y_stride, tile);
#endif
  direct<Format, type>(x, m, w, row_begin, row_end, y, y_stride);
}

template <class Format>
void matmul_of_format(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                      float* y, int64_t y_stride, uint8_t* tile) {
  switch (w.scale_type) {
    case DType::kFloat16:
      return matmul_of_type<Format, DType::kFloat16>(x, m, w, row_begin, row_end, y, y_stride, tile);
    case DType::kBFloat16:
      return matmul_of_type<Format, DType::kBFloat16>(x, m, w, row_begin, row_end, y, y_stride, tile);
    default:
      return matmul_of_type<Format, DType::kFloat32>(x, m, w, row_begin, row_end, y, y_stride, tile);
  }
}

// The planes of a group of rounded values; `q` is readable for 16 bytes more.
DOVETAIL_INLINE __m128i load16(const int8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
DOVETAIL_INLINE void split(Q4, const int8_t* q, __m128i (&planes)[Q4::kPlanes]) {
  const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m128i a = _mm_shuffle_epi8(load16(q), apart), b = _mm_shuffle_epi8(load16(q + 16), apart);
  planes[0] = _mm_unpacklo_epi64(a, b);
  planes[1] = _mm_unpackhi_epi64(a, b);
}
DOVETAIL_INLINE void split(Q8, const int8_t* q, __m128i (&planes)[Q8::kPlanes]) {
  planes[0] = load16(q);
  planes[1] = load16(q + 16);
}
DOVETAIL_INLINE void split(Q3, const int8_t* q, __m128i (&planes)[Q3::kPlanes]) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 8, 9, -1, -1, -1, -1);
  __m128i words[4];
  for (int i = 0; i < 4; ++i) words[i] = _mm_shuffle_epi8(load16(q + 10 * i), order);
  const __m128i ab = _mm_unpacklo_epi32(words[0], words[1]), cd = _mm_unpacklo_epi32(words[2], words[3]);
  planes[0] = _mm_unpacklo_epi64(ab, cd);
  planes[1] = _mm_unpackhi_epi64(ab, cd);
  planes[2] =
      _mm_unpacklo_epi64(_mm_unpackhi_epi32(words[0], words[1]), _mm_unpackhi_epi32(words[2], words[3]));
}

// A group of floats, eight in a vector.
template <class Format>
constexpr int kGroupVectors = Format::kGroup / 8;

// Of a row of x; what lies behind the row is zero.
template <class Format>
DOVETAIL_INLINE void read_group(const float* x, int64_t cols, int64_t group,
                                __m256 (&v)[kGroupVectors<Format>]) {
  float last[Format::kGroup] = {};
  const float* source = x + group * Format::kGroup;
  if (const int64_t have = cols - group * Format::kGroup; have < Format::kGroup) {
    if (have > 0) memcpy(last, source, static_cast<size_t>(have) * sizeof(float));
    source = last;
  }
  for (int i = 0; i < kGroupVectors<Format>; ++i) v[i] = _mm256_loadu_ps(source + 8 * i);
}

// Rounds a group, writes it as group `slot` of the row and leaves in v what the rounding lost.
template <class Format>
DOVETAIL_INLINE void round_group(__m256 (&v)[kGroupVectors<Format>], const RoundedRow& row, int64_t slot) {
  constexpr int kVectors = kGroupVectors<Format>;
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  constexpr int kInf = 0x7f800000, kSmallest = 0x04800000;  // 2^-118
  __m256i largest = _mm256_setzero_si256();
  // Magnitudes compare as integers; Inf and NaN are the largest.
  for (int i = 0; i < kVectors; ++i)
    largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_bits));
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
  const int most_bits = _mm_cvtsi128_si32(most);
  const float most_value = _mm_cvtss_f32(_mm_castsi128_ps(most));

  int8_t q[64] = {};
  __m256i total = _mm256_setzero_si256();
  float scale = 0.0f;
  if (most_bits >= kInf) {
    scale = __builtin_nanf("");
  } else if (most_bits >= kSmallest) {
    scale = most_value / 127.0f;
    const __m256 inverse = _mm256_set1_ps(127.0f / most_value), scales = _mm256_set1_ps(scale);
    __m256i n[8];
    for (int i = 0; i < 8; ++i) {
      if (i < kVectors) {
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        v[i] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(n[i]), scales, v[i]);
        total = _mm256_add_epi32(total, n[i]);
      } else {
        n[i] = _mm256_setzero_si256();
      }
    }
    for (int i = 0; i < kVectors; i += 4) {
      const __m256i packed =
          _mm256_packs_epi16(_mm256_packs_epi32(n[i], n[i + 1]), _mm256_packs_epi32(n[i + 2], n[i + 3]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 8 * i),
                          _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    }
  }
  const_cast<float*>(row.scales)[slot] = scale;
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  const_cast<int32_t*>(row.corrections)[slot] = -Format::kZeroPoint * _mm_cvtsi128_si32(sum);

  __m128i planes[Format::kPlanes];
  split(Format{}, q, planes);
  int8_t* const first =
      const_cast<int8_t*>(row.q) + slot / kInterleave * kStepBytes<Format> + slot % kInterleave * kPlaneBytes;
  for (int i = 0; i < Format::kPlanes; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(first + i * kStepPlaneBytes), planes[i]);
}

template <class Format>
void quantize_row_for(const float* x, int64_t cols, void* out) {
  const int64_t steps = steps_of<Format>(cols);
  const RoundedRow row = rounded_row<Format>(out, cols);
  int32_t* const second_steps = const_cast<int32_t*>(row.second_steps);
  __m256 v[kGroupVectors<Format>];
  float largest = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t term = step / kTermSteps;
    __m256 squares = _mm256_setzero_ps();
    for (int64_t group = step * kInterleave; group < (step + 1) * kInterleave; ++group) {
      read_group<Format>(x, cols, group, v);
      round_group<Format>(v, row, group);
      for (const __m256& lost : v) squares = _mm256_fmadd_ps(lost, lost, squares);
    }
    float lanes[8], error = 0;
    _mm256_storeu_ps(lanes, squares);
    for (const float lane : lanes) error += lane;
    if (step % kTermSteps == 0 || error > largest) {
      largest = error;
      second_steps[term] = static_cast<int32_t>(step);
    }
    if (step % kTermSteps != kTermSteps - 1 && step != steps - 1) continue;
    for (int64_t i = 0; i < kInterleave; ++i) {
      const int64_t group = second_steps[term] * kInterleave + i;
      read_group<Format>(x, cols, group, v);
      round_group<Format>(v, row, group);
      round_group<Format>(v, row, (steps + term) * kInterleave + i);
    }
  }
}

}  // namespace

size_t quantized_row_bytes(Matrix::Type type, int64_t cols) {
  switch (type) {
    case Matrix::Type::kQ3:
      return static_cast<size_t>(rounded_row_bytes<Q3>(cols));
    case Matrix::Type::kQ8:
      return static_cast<size_t>(rounded_row_bytes<Q8>(cols));
    default:
      return static_cast<size_t>(rounded_row_bytes<Q4>(cols));
  }
}

void quantize_row(Matrix::Type type, const float* x, int64_t cols, void* out) {
  switch (type) {
    case Matrix::Type::kQ3:
      return quantize_row_for<Q3>(x, cols, out);
    case Matrix::Type::kQ8:
      return quantize_row_for<Q8>(x, cols, out);
    default:
      return quantize_row_for<Q4>(x, cols, out);
  }
}

#if defined(DOVETAIL_WIDE)
size_t matmul_int8_scratch(Matrix::Type type, int64_t m, int64_t cols) {
  if (m < kTileMinimum) return 0;
  switch (type) {
    case Matrix::Type::kQ3:
      return static_cast<size_t>(tile_bytes<Q3>(cols));
    case Matrix::Type::kQ8:
      return static_cast<size_t>(tile_bytes<Q8>(cols));
    default:
      return static_cast<size_t>(tile_bytes<Q4>(cols));
  }
}
#else
size_t matmul_int8_scratch(Matrix::Type, int64_t, int64_t) { return 0; }
#endif

void matmul_int8(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                 float* y, int64_t y_stride, void* scratch) {
  const uint8_t* const x = bytes(quantized_x);
  uint8_t* const tile = static_cast<uint8_t*>(scratch);
  switch (w.type) {
    case Matrix::Type::kQ3:
      return matmul_of_format<Q3>(x, m, w, row_begin, row_end, y, y_stride, tile);
    case Matrix::Type::kQ8:
      return matmul_of_format<Q8>(x, m, w, row_begin, row_end, y, y_stride, tile);
    default:
      return matmul_of_format<Q4>(x, m, w, row_begin, row_end, y, y_stride, tile);
  }
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
