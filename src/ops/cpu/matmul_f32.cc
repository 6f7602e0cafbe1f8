// Products in float32 of matrices of any type.
//
// Lanes run along the columns: lane l of the one accumulator of a result adds the columns l, l + kLanes, … in
// ascending order, and horizontal_sums() ends it. Both products below keep to that order.
#include "ops/cpu/grouped.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd.h"

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

constexpr int kRows = 4;  // weight rows of a register tile
#if defined(DOVETAIL_WIDE)
constexpr int kTokens = 6;
constexpr int64_t kBlock = 1280;  // columns of a cache tile; whole groups of every format
#else
constexpr int kTokens = 3;
constexpr int64_t kBlock = 640;
#endif
constexpr int64_t kFewRows = 2;  // up to here weights are used once or twice: not worth a tile
constexpr int64_t kTileRows = 16;
// Rows of x for which a tile is expanded once. Packed, they shall stay in a second-level cache of 2 MiB.
constexpr int64_t kMinChunk = 24, kMaxChunk = 240;
constexpr int64_t kPackedFloats = int64_t{1} << 18;

// The values of a group before their scale, zero point included: kGroup bytes, and up to 6 more of nothing.
DOVETAIL_INLINE void group_values(Q4, const uint8_t* weights, uint8_t* out) {
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
  const __m128i low = _mm_and_si128(packed, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), _mm_set1_epi8(15));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi8(low, high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_unpackhi_epi8(low, high));
}
DOVETAIL_INLINE void group_values(Q8, const uint8_t* weights, uint8_t* out) {
  memcpy(out, weights, Q8::kGroup);
}
// As stored: value i of a word is in bits 3i to 3i + 2.
struct Q3Stored : Q3 {};
DOVETAIL_INLINE void group_values(Q3Stored, const uint8_t* weights, uint8_t* out) {
  const __m256i shifts = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
  const __m256i low_bytes = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0,
                                             4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  for (int i = 0; i < 4; ++i) {
    uint32_t word;
    memcpy(&word, weights + 4 * i, sizeof word);
    const __m256i eight = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word)), shifts), _mm256_set1_epi32(7));
    const __m256i packed = _mm256_shuffle_epi8(eight, low_bytes);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 10 * i),
                     _mm_unpacklo_epi32(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1)));
    out[10 * i + 8] = static_cast<uint8_t>(word >> 24 & 7u);
    out[10 * i + 9] = static_cast<uint8_t>(word >> 27 & 7u);
  }
}
DOVETAIL_INLINE void group_values(Q3, const uint8_t* weights, uint8_t* out) {
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
  const __m128i low = _mm_and_si128(packed, _mm_set1_epi8(7));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 3), _mm_set1_epi8(7));
  uint8_t pairs[32];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(pairs), _mm_unpacklo_epi8(low, high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(pairs + 16), _mm_unpackhi_epi8(low, high));
  for (int i = 0; i < 4; ++i) {
    uint32_t word;
    memcpy(&word, weights + 4 * i, sizeof word);
    memcpy(out + 10 * i, pairs + 8 * i, 8);
    out[10 * i + 8] = static_cast<uint8_t>((word >> 6 & 3u) | (word >> 20 & 4u));
    out[10 * i + 9] = static_cast<uint8_t>((word >> 14 & 3u) | (word >> 28 & 4u));
  }
}

template <class Format>
void expand_groups(const Matrix& w, int64_t row, int64_t begin, int64_t end, float* out) {
  const int64_t groups = groups_of<Format>(w.cols);
  const F zero_point = set1(Format::kZeroPoint);
  for (int64_t k = begin; k < end; k += Format::kGroup) {
    const int64_t group = row * groups + k / Format::kGroup;
    const F scale = set1(read_number(bytes(w.scales) + group * number_bytes(w.scale_type), w.scale_type));
    uint8_t values[64];
    group_values(Format{}, bytes(w.data) + group * Format::kGroupBytes, values);
    const int64_t count = smaller(Format::kGroup, end - k);
    float* const to = out + k - begin;
    for (int64_t i = 0; i < count; i += kLanes) {
      const F v = mul(sub(load_u8(values + i), zero_point), scale);
      if (i + kLanes <= count) {
        store(to + i, v);
      } else {
        store_n(to + i, v, count - i);
      }
    }
  }
}

// Columns [begin, end) of a row as float32, zeros up to a whole vector. begin is a multiple of the format's
// group and of kLanes.
void expand(const Matrix& w, int64_t row, int64_t begin, int64_t end, float* out) {
  const int64_t whole = (end - begin) / kLanes * kLanes;
  auto convert = [&](auto type) {
    using Type = decltype(type);
    const uint8_t* const source = bytes(w.data) + (row * w.cols + begin) * Type::kBytes;
    for (int64_t k = 0; k < whole; k += kLanes) store(out + k, Type::get(source + k * Type::kBytes));
    if (whole < end - begin)
      store(out + whole, Type::get_n(source + whole * Type::kBytes, end - begin - whole));
  };
  switch (w.type) {
    case Matrix::Type::kF32:
      return convert(F32{});
    case Matrix::Type::kF16:
      return convert(F16{});
    case Matrix::Type::kBF16:
      return convert(BF16{});
    case Matrix::Type::kQ3Stored:
      expand_groups<Q3Stored>(w, row, begin, end, out);
      break;
    case Matrix::Type::kQ3:
      expand_groups<Q3>(w, row, begin, end, out);
      break;
    case Matrix::Type::kQ4:
      expand_groups<Q4>(w, row, begin, end, out);
      break;
    case Matrix::Type::kQ8:
      expand_groups<Q8>(w, row, begin, end, out);
      break;
  }
  for (int64_t k = end; k < begin + round_up(end - begin, kLanes); ++k) out[k - begin] = 0.0f;
}

// acc[t][r] += columns [0, count) of x row t times weight row r. The end of a row may be a part of a vector.
template <typename Type, int T>
DOVETAIL_INLINE void accumulate(const float* const (&x)[T], const uint8_t* const (&w)[kRows], int64_t count,
                                F (&acc)[T][kRows]) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    F v[kRows];
    for (int r = 0; r < kRows; ++r) v[r] = Type::get(w[r] + k * Type::kBytes);
    for (int t = 0; t < T; ++t) {
      const F a = load(x[t] + k);
      for (int r = 0; r < kRows; ++r) acc[t][r] = fma(a, v[r], acc[t][r]);
    }
  }
  if (k < count) {
    for (int t = 0; t < T; ++t) {
      const F a = load_n(x[t] + k, count - k);
      for (int r = 0; r < kRows; ++r)
        acc[t][r] = fma(a, Type::get_n(w[r] + k * Type::kBytes, count - k), acc[t][r]);
    }
  }
}

DOVETAIL_INLINE void finish(const F (&acc)[kRows], int64_t rows, float* y) {
  const __m128 values = horizontal_sums(acc[0], acc[1], acc[2], acc[3]);
  if (rows >= kRows) return _mm_storeu_ps(y, values);
  float first[kRows];
  _mm_storeu_ps(first, values);
  for (int64_t r = 0; r < rows; ++r) y[r] = first[r];
}

// Few rows of x: whole rows of weights straight from memory.
template <typename Type, int T>
void few_rows(const float* x, int64_t cols, const uint8_t* const (&w)[kRows], int64_t rows, float* y,
              int64_t y_stride) {
  const float* source[T];
  for (int t = 0; t < T; ++t) source[t] = x + t * cols;
  F acc[T][kRows];
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < kRows; ++r) acc[t][r] = zero();
  }
  accumulate<Type, T>(source, w, cols, acc);
  for (int t = 0; t < T; ++t) finish(acc[t], rows, y + t * y_stride);
}

template <typename Type>
void few_rows_of_type(const float* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                      float* y, int64_t y_stride) {
  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const uint8_t* rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      rows[r] = bytes(w.data) + smaller(row + r, row_end - 1) * w.cols * Type::kBytes;
    }
    if (m == 1) few_rows<Type, 1>(x, w.cols, rows, row_end - row, y + row, y_stride);
    if (m == 2) few_rows<Type, 2>(x, w.cols, rows, row_end - row, y + row, y_stride);
  }
}

// Vectors of one row as every `width`-th vector of `out`, with zeros up to a whole vector at the end.
DOVETAIL_INLINE void interleave(const float* row, int64_t count, int64_t width, float* out) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) store(out + k * width, load(row + k));
  if (k < count) store(out + k * width, load_n(row + k, count - k));
}

// One block of columns of a tile. x: [step][T] vectors, tile: [kTileRows / kRows][kBlock / kLanes][kRows]
// vectors, sums: [kTileRows / kRows][T][kRows] vectors, kept from one block to the next. The last block ends
// the results.
struct Block {
  const float* x;
  float* tile;
  float* sums;
  int64_t count;  // of columns
  bool first, last;
  int64_t rows;  // of weights
  float* y;
  int64_t y_stride;
};

// Rows [row, row + kRows) of a block. weights(step, v) gives the vectors of a step.
template <int T, class Weights>
DOVETAIL_INLINE void multiply_rows(const Block& b, int64_t row, Weights&& weights) {
  F acc[T][kRows];
  float* const kept = b.sums + row * T * kLanes;
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < kRows; ++r) acc[t][r] = b.first ? zero() : load(kept + (t * kRows + r) * kLanes);
  }
  const int64_t steps = (b.count + kLanes - 1) / kLanes;
  for (int64_t step = 0; step < steps; ++step) {
    const float* const a = b.x + step * T * kLanes;
    F v[kRows];
    weights(step, v);
    for (int t = 0; t < T; ++t) {
      const F value = load(a + t * kLanes);
      for (int r = 0; r < kRows; ++r) acc[t][r] = fma(value, v[r], acc[t][r]);
    }
  }
  if (b.last) {
    for (int t = 0; t < T; ++t) finish(acc[t], b.rows - row, b.y + t * b.y_stride + row);
    return;
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < kRows; ++r) store(kept + (t * kRows + r) * kLanes, acc[t][r]);
  }
}

template <int T>
void multiply_tile(const Block& b) {
  for (int64_t row = 0; row < b.rows; row += kRows) {
    const float* const w = b.tile + row * kBlock;
    multiply_rows<T>(b, row, [&](int64_t step, F(&v)[kRows]) {
      for (int r = 0; r < kRows; ++r) v[r] = load(w + (step * kRows + r) * kLanes);
    });
  }
}

// The first rows of x expand dense weights into the tile on the way: the stores cost nothing beside the sums.
template <typename Type, int T>
void expand_and_multiply(const Block& b, const uint8_t* weights, int64_t row_bytes) {
  const int64_t whole = b.count / kLanes;
  for (int64_t row = 0; row < b.rows; row += kRows) {
    const uint8_t* rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = weights + smaller(row + r, b.rows - 1) * row_bytes;
    float* const w = b.tile + row * kBlock;
    multiply_rows<T>(b, row, [&](int64_t step, F(&v)[kRows]) {
      for (int r = 0; r < kRows; ++r) {
        const uint8_t* const p = rows[r] + step * kLanes * Type::kBytes;
        v[r] = step < whole ? Type::get(p) : Type::get_n(p, b.count - whole * kLanes);
        store(w + (step * kRows + r) * kLanes, v[r]);
      }
    });
  }
}

template <int T>
struct TileOf {
  static void multiply(const Block& b, int64_t tokens) {
    if (tokens == T) return multiply_tile<T>(b);
    if constexpr (T > 1) TileOf<T - 1>::multiply(b, tokens);
  }
  template <typename Type>
  static void expand(const Block& b, int64_t tokens, const uint8_t* weights, int64_t row_bytes) {
    if (tokens == T) return expand_and_multiply<Type, T>(b, weights, row_bytes);
    if constexpr (T > 1) TileOf<T - 1>::template expand<Type>(b, tokens, weights, row_bytes);
  }
};

// From column `begin` of weight row `row` on.
void expand_and_multiply(const Block& b, int64_t tokens, const Matrix& w, int64_t row, int64_t begin) {
  auto run = [&](auto type) {
    using Type = decltype(type);
    TileOf<kTokens>::template expand<Type>(b, tokens, bytes(w.data) + (row * w.cols + begin) * Type::kBytes,
                                           w.cols * Type::kBytes);
  };
  if (w.type == Matrix::Type::kF32) run(F32{});
  if (w.type == Matrix::Type::kF16) run(F16{});
  if (w.type == Matrix::Type::kBF16) run(BF16{});
}

int64_t chunk_rows(int64_t m, int64_t cols) {
  const int64_t fitting = smaller(larger(kPackedFloats / round_up(cols, kLanes), kMinChunk), kMaxChunk);
  const int64_t chunks = (m + fitting - 1) / fitting;
  return smaller(m, round_up((m + chunks - 1) / chunks, kTokens));
}

void many_rows(const float* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
               int64_t y_stride, float* scratch) {
  float* const tile = scratch;
  float* const row_values = tile + kTileRows * kBlock;
  float* const sums = row_values + kBlock;
  const int64_t most = chunk_rows(m, w.cols), stride = round_up(w.cols, kLanes);
  float* const packed = sums + round_up(most, kTokens) * kTileRows * kLanes;
  for (int64_t chunk = 0; chunk < m; chunk += most) {
    const int64_t tokens = smaller(most, m - chunk);
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t group = i / kTokens * kTokens;
      interleave(x + (chunk + i) * w.cols, w.cols, smaller(kTokens, tokens - group),
                 packed + group * stride + (i - group) * kLanes);
    }
    for (int64_t row = row_begin; row < row_end; row += kTileRows) {
      const int64_t rows = smaller(kTileRows, row_end - row);
      for (int64_t begin = 0; begin < w.cols; begin += kBlock) {
        const int64_t count = smaller(kBlock, w.cols - begin);
        for (int64_t r = 0; w.quantized() && r < round_up(rows, kRows); ++r) {
          expand(w, row + smaller(r, rows - 1), begin, begin + count, row_values);
          interleave(row_values, round_up(count, kLanes), kRows,
                     tile + r / kRows * kRows * kBlock + r % kRows * kLanes);
        }
        for (int64_t i = 0; i < tokens; i += kTokens) {
          const int64_t group = smaller(kTokens, tokens - i);
          const Block block{.x = packed + i * stride + begin * group,
                            .tile = tile,
                            .sums = sums + i * kTileRows * kLanes,
                            .count = count,
                            .first = begin == 0,
                            .last = begin + count == w.cols,
                            .rows = rows,
                            .y = y + (chunk + i) * y_stride + row,
                            .y_stride = y_stride};
          if (i > 0 || w.quantized()) {
            TileOf<kTokens>::multiply(block, group);
          } else {
            expand_and_multiply(block, group, w, row, begin);
          }
        }
      }
    }
  }
}

}  // namespace

size_t matmul_f32_scratch(int64_t m, int64_t cols) {
  // Quantized rows are always expanded: kRows whole rows when there are few rows of x.
  const int64_t few = kRows * round_up(cols, kLanes);
  const int64_t chunk = round_up(chunk_rows(m, cols), kTokens);
  const int64_t many = (kTileRows + 1) * kBlock + chunk * (kTileRows * kLanes + round_up(cols, kLanes));
  return static_cast<size_t>(m <= kFewRows ? few : many) * sizeof(float);
}

void matmul_f32(const float* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
                int64_t y_stride, void* scratch) {
  float* const memory = static_cast<float*>(scratch);
  if (m > kFewRows) return many_rows(x, m, w, row_begin, row_end, y, y_stride, memory);
  switch (w.type) {
    case Matrix::Type::kF32:
      return few_rows_of_type<F32>(x, m, w, row_begin, row_end, y, y_stride);
    case Matrix::Type::kF16:
      return few_rows_of_type<F16>(x, m, w, row_begin, row_end, y, y_stride);
    case Matrix::Type::kBF16:
      return few_rows_of_type<BF16>(x, m, w, row_begin, row_end, y, y_stride);
    default:
      break;
  }
  const int64_t stride = round_up(w.cols, kLanes);
  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const uint8_t* rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      expand(w, smaller(row + r, row_end - 1), 0, w.cols, memory + r * stride);
      rows[r] = bytes(memory + r * stride);
    }
    if (m == 1) few_rows<F32, 1>(x, w.cols, rows, row_end - row, y + row, y_stride);
    if (m == 2) few_rows<F32, 2>(x, w.cols, rows, row_end - row, y + row, y_stride);
  }
}

void dequantize_row(const Matrix& w, int64_t row, float scale, float* out) {
  constexpr int64_t kPiece = 320;  // whole groups of every format
  const F factor = set1(scale);
  alignas(64) float piece[kPiece];
  for (int64_t begin = 0; begin < w.cols; begin += kPiece) {
    const int64_t count = smaller(kPiece, w.cols - begin);
    expand(w, row, begin, begin + count, piece);
    for (int64_t k = 0; k < count; k += kLanes) {
      store_n(out + begin + k, mul(load(piece + k), factor), smaller(kLanes, count - k));
    }
  }
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
