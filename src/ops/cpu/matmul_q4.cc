// Products of q4 weights and activations rounded to int8. See q4.h for the layout and the order of additions.
#include "ops/cpu/kernels.h"
#include "ops/cpu/q4.h"
#include "ops/cpu/q4_direct.h"
#include "ops/cpu/simd.h"
#if defined(DOVETAIL_WIDE)
#include "ops/cpu/q4_tile.h"
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

template <DType type>
void direct(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
            int64_t y_stride) {
  const int64_t x_stride = static_cast<int64_t>(quantized_row_bytes(w.cols));
  const int64_t share = even_share(m, kDirectTokens);
  for (int64_t row = row_begin; row < row_end; row += kDirectRows) {
    const int64_t end = smaller(row + kDirectRows, row_end);
    for (int64_t i = 0; i < m; i += share) {
      few_rows_of<type, kDirectTokens>(smaller(share, m - i), x + i * x_stride, w, row, end, y + i * y_stride,
                                       y_stride);
    }
  }
}

#if defined(DOVETAIL_WIDE)
constexpr int64_t kTileMinimum = 13;  // rows of x from which unpacking a tile pays

template <DType type>
void tiled(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
           int64_t y_stride, uint8_t* tile) {
  const int64_t x_stride = static_cast<int64_t>(quantized_row_bytes(w.cols));
  const int64_t share = even_share(m, kTokens);
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int64_t rows = smaller(kTileRows, row_end - row);
    unpack_tile<type>(w, row, rows, tile);
    for (int64_t i = 0; i < m; i += share) {
      kTileProducts[smaller(share, m - i) - 1](tile, x + i * x_stride, x_stride, w.cols, rows,
                                               y + i * y_stride + row, y_stride);
    }
  }
}
#endif

template <DType type>
void matmul_of_type(const uint8_t* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                    float* y, int64_t y_stride, [[maybe_unused]] uint8_t* tile) {
#if defined(DOVETAIL_WIDE)
  if (m >= kTileMinimum) return tiled<type>(x, m, w, row_begin, row_end, y, y_stride, tile);
#endif
  direct<type>(x, m, w, row_begin, row_end, y, y_stride);
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

#if defined(DOVETAIL_WIDE)
size_t matmul_int8_scratch(int64_t m, int64_t cols) {
  if (m < kTileMinimum) return 0;
  return static_cast<size_t>(kInterleave * steps_of(cols) * (kTileGroupBytes + kTileRows * 4));
}
#else
size_t matmul_int8_scratch(int64_t, int64_t) { return 0; }
#endif

void matmul_int8(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                 float* y, int64_t y_stride, void* scratch) {
  const uint8_t* const x = bytes(quantized_x);
  uint8_t* const tile = static_cast<uint8_t*>(scratch);
  switch (w.scale_type) {
    case DType::kFloat16:
      return matmul_of_type<DType::kFloat16>(x, m, w, row_begin, row_end, y, y_stride, tile);
    case DType::kBFloat16:
      return matmul_of_type<DType::kBFloat16>(x, m, w, row_begin, row_end, y, y_stride, tile);
    default:
      return matmul_of_type<DType::kFloat32>(x, m, w, row_begin, row_end, y, y_stride, tile);
  }
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
