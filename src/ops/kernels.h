// The kernels of one instruction-set level. They are stateless, allocate nothing, start no threads and throw
// nothing; ops/*.cc splits the work and owns the memory. Ranges let any number of threads share a call: the
// bits of an element never depend on how the ranges were cut.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/types.h"

namespace dovetail::ops {

// Queries [query_begin, query_end) × heads [head_begin, head_end), all of which read the same kv head.
struct AttentionTile {
  const float* q;  // [m, heads, head_dim]
  float* out;      // like q
  int64_t heads;
  const int32_t* begin;  // [m]
  const int32_t* end;    // [m]
  float scale;
  float softcap;  // 0: none
  int64_t query_begin, query_end;
  int64_t head_begin, head_end;
  int64_t kv_head;
};

struct LocalAttention {
  const float* q;         // [m, heads, dim]
  const float* k;         // like q
  const float* v;         // like q
  const float* relative;  // [window + 1, heads, dim]
  float* out;             // like q
  int64_t heads, dim, window;
  float softcap;
};

// Scratch sizes are in bytes; scratch memory is aligned to 64 bytes.
struct KernelTable {
  Level level;
  int64_t unit_groups;  // see quantize_row

  // One row of activations rounded to int8 per group of the weights that they will meet (kQ3, kQ4 or kQ8):
  // scale = max|x| / 127, q = x * (127 / max|x|) rounded to nearest, ties to even. A group whose largest
  // magnitude is below 2^-118 counts as zero; a group with an Inf or a NaN gets scale NaN.
  // Of every 16 units of `unit_groups` groups (the last of a row may be fewer), the one that loses most by
  // this, in squares summed in float32, gets a second term: what it lost, rounded in the same way. A few
  // columns of a model tend to be far larger than the others and make their groups coarse; this halves the
  // error of the whole row. The layout is private to the level and the type; rows lie quantized_row_bytes
  // apart.
  size_t (*quantized_row_bytes)(Matrix::Type type, int64_t cols);
  void (*quantize_row)(Matrix::Type type, const float* x, int64_t cols, void* out);

  // y[i * y_stride + r] = x_i · w_r for i in [0, m), r in [row_begin, row_end).
  size_t (*matmul_int8_scratch)(Matrix::Type type, int64_t m, int64_t cols);
  void (*matmul_int8)(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                      float* y, int64_t y_stride, void* scratch);  // w is of that type
  size_t (*matmul_f32_scratch)(int64_t m, int64_t cols);
  void (*matmul_f32)(const float* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
                     int64_t y_stride, void* scratch);

  // out[cols] = scale * w[row]
  void (*dequantize_row)(const Matrix& w, int64_t row, float scale, float* out);

  // As in ops.h, for m rows or `count` elements.
  void (*rms_norm)(const float* x, int64_t m, int64_t n, const float* weight, float eps, float* y);
  void (*layer_norm)(const float* x, int64_t m, int64_t n, const float* weight, const float* bias, float eps,
                     float* y);
  void (*gelu_tanh_gate)(const float* gate_up, int64_t m, int64_t n, float* out);
  void (*gelu_tanh_mul)(float* x, int64_t m, int64_t n, const float* y, int64_t y_stride);
  void (*silu)(float* x, int64_t count);
  void (*silu_gate)(const float* gate_up, int64_t m, int64_t n, float* out);
  void (*activate)(Activation activation, float* x, int64_t count);
  void (*add_bias)(float* x, int64_t m, int64_t n, const float* bias);
  void (*glu)(const float* ab, int64_t m, int64_t n, float* out);
  void (*add_scaled)(const float* x, float scale, float* y, int64_t count);
  void (*scale)(float* x, float scale, int64_t count);
  void (*clamp)(float* x, float low, float high, int64_t count);
  void (*softcap)(float* x, float cap, int64_t count);
  void (*rope)(float* x, int64_t m, int64_t heads, int64_t dim, const float* cos, const float* sin);

  void (*store_kv)(const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv);
  size_t (*attention_scratch)(int64_t rows, int64_t head_dim);  // rows = queries × heads of the tile
  void (*attention)(const AttentionTile& tile, const KvPages& kv, void* scratch);

  // Rows [row_begin, row_end) of the output.
  void (*local_relative_attention)(const LocalAttention& args, int64_t row_begin, int64_t row_end,
                                   void* scratch);
  void (*depthwise_causal_conv)(const float* x, int64_t row_begin, int64_t row_end, int64_t n,
                                const float* weight, int64_t taps, float* y);
};

}  // namespace dovetail::ops

// The tables. A level that was not linked is null: link dovetail_ops_avx2 / dovetail_ops_avx512 with
// -Wl,-u,dovetail_ops_table_avx2 and so on (the CMake targets do it by themselves).
extern "C" {
extern const dovetail::ops::KernelTable dovetail_ops_table_reference __attribute__((visibility("hidden")));
extern const dovetail::ops::KernelTable dovetail_ops_table_avx2 __attribute__((weak, visibility("hidden")));
extern const dovetail::ops::KernelTable dovetail_ops_table_avx512 __attribute__((weak, visibility("hidden")));
}
