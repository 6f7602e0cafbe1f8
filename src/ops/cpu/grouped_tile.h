// Products of quantized weights and many rows of x: a tile of weight rows is unpacked once, one weight row
// per lane, and used for all rows of x. 512-bit only: with 256-bit vectors and 16 registers it was no faster
// than grouped_direct.h.
#pragma once

#include "ops/cpu/grouped_direct.h"

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

constexpr int kBlocks = 2;  // vectors of weight rows in a tile
constexpr int kTokens = 6;  // rows of x in a register tile
constexpr int kTileRows = kBlocks * kLanes;
constexpr int64_t kVectorBytes = kLanes * 4;
template <class Format>
constexpr int kWords = Format::kPlanes * 4;  // of four weights in a group
// A tile: [kInterleave][steps][kWords][kBlocks] vectors of weights, then [kInterleave][steps][kBlocks] of
// scales.
template <class Format>
constexpr int64_t kTileGroupBytes = kWords<Format>* kBlocks* kVectorBytes;
template <class Format>
DOVETAIL_INLINE int64_t tile_bytes(int64_t cols) {
  return kInterleave * steps_of<Format>(cols) * (kTileGroupBytes<Format> + kTileRows * 4);
}

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

// Scales of kLanes rows for the groups of one step, transposed: out[group] is one vector.
template <DType type>
DOVETAIL_INLINE void column_scales(const uint8_t* const rows[kLanes], F (&out)[kInterleave]) {
  I q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm512_castps_si512(step_scales<type>(rows + 4 * i));
  const I a = _mm512_shuffle_i32x4(q[0], q[1], 0x44), b = _mm512_shuffle_i32x4(q[0], q[1], 0xee);
  const I c = _mm512_shuffle_i32x4(q[2], q[3], 0x44), d = _mm512_shuffle_i32x4(q[2], q[3], 0xee);
  out[0] = as_float(_mm512_shuffle_i32x4(a, c, 0x88));
  out[1] = as_float(_mm512_shuffle_i32x4(a, c, 0xdd));
  out[2] = as_float(_mm512_shuffle_i32x4(b, d, 0x88));
  out[3] = as_float(_mm512_shuffle_i32x4(b, d, 0xdd));
}

// One step of kLanes weight rows into a tile: `group0` is where the step's first group begins, the others lie
// `stride` bytes apart.
template <class Format>
DOVETAIL_INLINE void unpack_step(const uint8_t* const rows[kLanes], uint8_t* group0, int64_t stride) {
  constexpr int kGroupWords = Format::kGroupBytes / 4;  // stored ones
  for (int64_t piece = 0; piece < kStepWeights<Format>; piece += kVectorBytes) {
    I r[kLanes];
    for (int i = 0; i < kLanes; ++i) r[i] = load_bytes(rows[i] + piece);
    transpose(r);
    for (int i = 0; i < kLanes; ++i) {
      const int64_t word = piece / 4 + i;
      uint8_t* const out = group0 + word / kGroupWords * stride + word % kGroupWords * kBlocks * kVectorBytes;
      if constexpr (Format::kGroupBytes == kPlaneBytes) {
        I planes[Format::kPlanes];
        unpack(Format{}, r[i], planes);
        for (int plane = 0; plane < Format::kPlanes; ++plane)
          store_bytes(out + plane * 4 * kBlocks * kVectorBytes, planes[plane]);
      } else {
        store_bytes(out, r[i]);
      }
    }
  }
}

// Rows [row, row + rows) of w, at most kTileRows. Rows and groups that do not exist become zeros.
template <class Format, DType type>
void unpack_tile(const Matrix& w, int64_t row, int64_t rows, uint8_t* tile) {
  constexpr int64_t kScaleBytes = kStepScales<type> / kInterleave;
  const int64_t groups = groups_of<Format>(w.cols), steps = steps_of<Format>(w.cols);
  float* const scales = reinterpret_cast<float*>(tile + kInterleave * steps * kTileGroupBytes<Format>);
  for (int block = 0; block < kBlocks; ++block) {
    const int64_t first = row + block * kLanes;
    const int64_t count = smaller(kLanes, row + rows - first);
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t have = smaller(kInterleave, groups - step * kInterleave);
      uint8_t last_weights[kLanes][kStepWeights<Format>];
      uint8_t last_scales[kLanes][kStepScales<type>];
      const uint8_t* row_weights[kLanes];
      const uint8_t* row_scales[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t group = (first + i) * groups + step * kInterleave;
        if (i < count && have == kInterleave) {
          row_weights[i] = bytes(w.data) + group * Format::kGroupBytes;
          for (int64_t line = 0; line < kStepWeights<Format>; line += 64) prefetch(row_weights[i] + line);
          row_scales[i] = bytes(w.scales) + group * kScaleBytes;
          continue;
        }
        memset(last_weights[i], 0, sizeof last_weights[i]);
        memset(last_scales[i], 0, sizeof last_scales[i]);
        if (i < count) {
          memcpy(last_weights[i], bytes(w.data) + group * Format::kGroupBytes,
                 static_cast<size_t>(have * Format::kGroupBytes));
          memcpy(last_scales[i], bytes(w.scales) + group * kScaleBytes,
                 static_cast<size_t>(have * kScaleBytes));
        }
        row_weights[i] = last_weights[i];
        row_scales[i] = last_scales[i];
      }
      F columns[kInterleave];
      column_scales<type>(row_scales, columns);
      unpack_step<Format>(row_weights, tile + step * kTileGroupBytes<Format> + block * kVectorBytes,
                          steps * kTileGroupBytes<Format>);
      for (int part = 0; part < kInterleave; ++part)
        store(scales + ((part * steps + step) * kBlocks + block) * kLanes, columns[part]);
    }
  }
}

DOVETAIL_INLINE I broadcast4(const int8_t* p) {
  int32_t four;
  memcpy(&four, p, sizeof four);
  return set1_int(four);
}

// Of one part: `weights` and `scales` are where the part ends in the tile.
template <class Format, int T>
DOVETAIL_INLINE void add_second_terms(const uint8_t* weights, const float* scales, const RoundedRow (&x)[T],
                                      int64_t steps, int64_t term, int part, F (&sums)[T][kBlocks]) {
  const int64_t group = (steps + term) * kInterleave + part;
  const int64_t first = (steps + term) * kStepBytes<Format> + part * kPlaneBytes;
  I products[T][kBlocks];
  int64_t back[T];  // from the end, in steps
  for (int t = 0; t < T; ++t) {
    back[t] = steps - x[t].second_steps[term];
    for (int b = 0; b < kBlocks; ++b) products[t][b] = set1_int(x[t].corrections[group]);
  }
#pragma GCC unroll 12
  for (int word = 0; word < kWords<Format>; ++word) {
    const int64_t offset = first + (word / 4) * kStepPlaneBytes + (word % 4) * 4;
    for (int t = 0; t < T; ++t) {
      const uint8_t* const from = weights - back[t] * kTileGroupBytes<Format> + word * kBlocks * kVectorBytes;
      const I four = broadcast4(x[t].q + offset);
      for (int b = 0; b < kBlocks; ++b)
        products[t][b] = _mm512_dpbusd_epi32(products[t][b], load_bytes(from + b * kVectorBytes), four);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int b = 0; b < kBlocks; ++b) {
      const F weight_scales = load(scales - back[t] * kTileRows + b * kLanes);
      sums[t][b] = fma(to_float(products[t][b]), mul(weight_scales, set1(x[t].scales[group])), sums[t][b]);
    }
  }
}

template <class Format, int T>
void tile_product(const uint8_t* tile, const uint8_t* quantized_x, int64_t x_stride, int64_t cols,
                  int64_t rows, float* y, int64_t y_stride) {
  const int64_t steps = steps_of<Format>(cols), second_terms = second_terms_of<Format>(cols);
  const uint8_t* weights = tile;
  const float* scales = reinterpret_cast<const float*>(tile + kInterleave * steps * kTileGroupBytes<Format>);
  RoundedRow x[T];
  for (int t = 0; t < T; ++t) x[t] = rounded_row<Format>(quantized_x + t * x_stride, cols);
  alignas(64) float parts[kInterleave][T][kTileRows];

  for (int part = 0; part < kInterleave; ++part) {
    F sums[T][kBlocks];
    for (int t = 0; t < T; ++t) {
      for (int b = 0; b < kBlocks; ++b) sums[t][b] = zero();
    }
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t group = step * kInterleave + part;
      const int64_t first = step * kStepBytes<Format> + part * kPlaneBytes;
      I products[T][kBlocks];
      for (int t = 0; t < T; ++t) {
        for (int b = 0; b < kBlocks; ++b) products[t][b] = set1_int(x[t].corrections[group]);
      }
#pragma GCC unroll 12
      for (int word = 0; word < kWords<Format>; ++word) {
        const int64_t offset = first + (word / 4) * kStepPlaneBytes + (word % 4) * 4;
        I w[kBlocks];
        for (int b = 0; b < kBlocks; ++b) w[b] = load_bytes(weights + (word * kBlocks + b) * kVectorBytes);
        for (int t = 0; t < T; ++t) {
          const I four = broadcast4(x[t].q + offset);
          for (int b = 0; b < kBlocks; ++b) products[t][b] = _mm512_dpbusd_epi32(products[t][b], w[b], four);
        }
      }
      for (int b = 0; b < kBlocks; ++b) {
        const F weight_scales = load(scales + b * kLanes);
        for (int t = 0; t < T; ++t) {
          const F sum = to_float(products[t][b]);
          sums[t][b] = fma(sum, mul(weight_scales, set1(x[t].scales[group])), sums[t][b]);
        }
      }
      weights += kTileGroupBytes<Format>;
      scales += kTileRows;
    }
    for (int64_t term = 0; term < second_terms; ++term) {
      add_second_terms<Format, T>(weights, scales, x, steps, term, part, sums);
    }
    for (int t = 0; t < T; ++t) {
      for (int b = 0; b < kBlocks; ++b) store(&parts[part][t][b * kLanes], sums[t][b]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int b = 0; b < kBlocks && b * kLanes < rows; ++b) {
      F sum[kInterleave];
      for (int part = 0; part < kInterleave; ++part) sum[part] = load(&parts[part][t][b * kLanes]);
      store_n(y + t * y_stride + b * kLanes, add(add(sum[0], sum[1]), add(sum[2], sum[3])),
              smaller(kLanes, rows - b * kLanes));
    }
  }
}

using TileProduct = void (*)(const uint8_t*, const uint8_t*, int64_t, int64_t, int64_t, float*, int64_t);

template <class Format>
constexpr TileProduct kTileProducts[] = {
    tile_product<Format, 1>, tile_product<Format, 2>, tile_product<Format, 3>,
    tile_product<Format, 4>, tile_product<Format, 5>, tile_product<Format, 6>,
};
static_assert(sizeof kTileProducts<Q4> / sizeof(TileProduct) == kTokens);

}  // namespace
}  // namespace dovetail::ops::DOVETAIL_LEVEL
