// The plain implementation: short loops in double precision, written to be checked by eye. Tests hold every
// other level against it.
#pragma once

#include "ops/kernels.h"

namespace dovetail::ops::reference {

// Element [row, col] of a matrix of any type, exactly.
float element(const Matrix& w, int64_t row, int64_t col);

size_t quantized_row_bytes(Matrix::Type type, int64_t cols);
constexpr int64_t kUnitGroups = 4;
void quantize_row(Matrix::Type type, const float* x, int64_t cols, void* out);
// As a level with units of another size does it.
void quantize_row_in_units(Matrix::Type type, const float* x, int64_t cols, int64_t unit_groups, void* out);
size_t no_matmul_scratch(int64_t m, int64_t cols);
size_t no_int8_scratch(Matrix::Type type, int64_t m, int64_t cols);
void matmul_int8(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                 float* y, int64_t y_stride, void* scratch);
void matmul_f32(const float* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
                int64_t y_stride, void* scratch);
void dequantize_row(const Matrix& w, int64_t row, float scale, float* out);

void rms_norm(const float* x, int64_t m, int64_t n, const float* weight, float eps, float* y);
void layer_norm(const float* x, int64_t m, int64_t n, const float* weight, const float* bias, float eps,
                float* y);
void gelu_tanh_gate(const float* gate_up, int64_t m, int64_t n, float* out);
void gelu_tanh_mul(float* x, int64_t m, int64_t n, const float* y, int64_t y_stride);
void silu(float* x, int64_t count);
void silu_gate(const float* gate_up, int64_t m, int64_t n, float* out);
void activate(Activation activation, float* x, int64_t count);
void add_bias(float* x, int64_t m, int64_t n, const float* bias);
void glu(const float* ab, int64_t m, int64_t n, float* out);
void add_scaled(const float* x, float scale, float* y, int64_t count);
void scale(float* x, float scale, int64_t count);
void clamp(float* x, float low, float high, int64_t count);
void softcap(float* x, float cap, int64_t count);
void rope(float* x, int64_t m, int64_t heads, int64_t dim, const float* cos, const float* sin);

void store_kv(const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv);
size_t attention_scratch(int64_t rows, int64_t head_dim);
void attention(const AttentionTile& tile, const KvPages& kv, void* scratch);
void local_relative_attention(const LocalAttention& args, int64_t row_begin, int64_t row_end, void* scratch);
void depthwise_causal_conv(const float* x, int64_t row_begin, int64_t row_end, int64_t n, const float* weight,
                           int64_t taps, float* y);

}  // namespace dovetail::ops::reference
