// The operations models are written in. Activations are float32, row-major and contiguous unless said
// otherwise.
//
// Every operation has a plain implementation (ops/reference) and one per instruction-set level (ops/cpu);
// which one runs is fixed when the Context is made. Operations split their work over the context's threads,
// allocate nothing after their first call at a given size, and give the same bits for any number of threads.
// Sizes are the caller's duty: nothing here is reachable with sizes that were not checked before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "ops/types.h"

namespace dovetail::ops {

// "reference", "x86-64-v3", "x86-64-v4".
std::string_view level_name(Level level);

// The best level that both this build and this CPU have; the environment variable DOVETAIL_CPU
// ("x86-64-v3", "x86-64-v4", "reference") forces a lower one. Throws Error kUnsupported when the CPU lacks
// the forced or the lowest built level, naming what is missing.
Level best_level();
// Levels compiled into this program or library, lowest first (kReference not listed).
std::span<const Level> built_levels();
// True when the running CPU can execute the level.
bool cpu_supports(Level level);

// Bytes of one row of `data` and of `scales`.
int64_t row_bytes(const Matrix& w);
int64_t scale_row_bytes(const Matrix& w);

// `groups` groups of kQ3Stored become as many of kQ3, in as many bytes; `out` may be `stored`.
void rearrange_q3(const void* stored, int64_t groups, void* out);

// How products of quantized weights are computed. kInt8: activations are rounded to int8 per group of the
// weights and multiplied in integers. kExact: float32 activations times (q - zero point) * scale in float32.
enum class Precision : uint8_t { kInt8, kExact };

// What calls of matmul have done; one multiplication with its addition is two operations.
struct ProductCount {
  int64_t operations = 0;
  int64_t nanoseconds = 0;  // of the calling thread's time
};

struct KernelTable;  // one implementation of everything below; ops/kernels.h

class Context {
 public:
  explicit Context(Level level = best_level(), int threads = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Level level() const { return level_; }
  ThreadPool& pool() { return *pool_; }
  void set_threads(int threads);  // 0: all CPUs of this process
  Precision precision = Precision::kInt8;
  // Since the beginning: calls with a product in integers, and those in float32 only.
  ProductCount int8_products, float_products;

  const KernelTable& kernels() const { return *kernels_; }
  // Scratch memory of the ops themselves, one block per worker; grows, never shrinks.
  std::span<std::byte> scratch(int worker, size_t bytes);
  // Activations rounded to int8, shared by the products of one call.
  std::span<std::byte> shared_scratch(size_t bytes);

 private:
  Level level_;
  std::unique_ptr<ThreadPool> pool_;
  const KernelTable* kernels_;
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<std::byte> shared_;
};

// y[m, w.rows] = x[m, w.cols] · wᵀ. Same bits for every m that contains a row (a row's result does not depend
// on the other rows) in kExact precision; in kInt8 too, so that a prompt split into chunks gives the same
// answer.
void matmul(Context& context, const float* x, int64_t m, const Matrix& w, float* y);

// Several products of the same x; x is rounded to int8 once.
struct Product {
  const Matrix* w;
  float* y;
};
void matmul(Context& context, const float* x, int64_t m, std::span<const Product> products);

// out[n, table.cols] = scale * table[ids[i]]. Ids must be in [0, table.rows).
void embed_rows(Context& context, const Matrix& table, std::span<const int32_t> ids, float scale, float* out);

// y = x / sqrt(mean(x²) + eps) * weight, per row of n; weight may be null (no scale). y may be x.
void rms_norm(Context& context, const float* x, int64_t m, int64_t n, const float* weight, float eps,
              float* y);
// y = (x - mean) / sqrt(var + eps) * weight + bias, per row of n; bias may be null. y may be x.
void layer_norm(Context& context, const float* x, int64_t m, int64_t n, const float* weight,
                const float* bias, float eps, float* y);

// out[m, n] = gelu_tanh(gate_up[m, 0..n)) * gate_up[m, n..2n): gate and up lie side by side in each row of
// 2n.
void gelu_tanh_gate(Context& context, const float* gate_up, int64_t m, int64_t n, float* out);
// x[i] = gelu_tanh(x[i]) * y[i]; row r of y begins at y + r * y_stride.
void gelu_tanh_mul(Context& context, float* x, int64_t m, int64_t n, const float* y, int64_t y_stride);
// x[i] = x[i] * sigmoid(x[i])
void silu(Context& context, float* x, int64_t count);
// out[m, n] = silu(gate_up[m, 0..n)) * gate_up[m, n..2n)
void silu_gate(Context& context, const float* gate_up, int64_t m, int64_t n, float* out);
// x[i] = activation(x[i]). kGelu is x Φ(x) by the error function, within 2e-7 of it; kGeluTanh its tanh
// approximation; kQuickGelu x sigmoid(1.702 x).
void activate(Context& context, Activation activation, float* x, int64_t count);
// x[i, k] += bias[k] for m rows of n
void add_bias(Context& context, float* x, int64_t m, int64_t n, const float* bias);
// out[m, n] = ab[m, 0..n) * sigmoid(ab[m, n..2n))
void glu(Context& context, const float* ab, int64_t m, int64_t n, float* out);
// y[i] += scale * x[i]
void add_scaled(Context& context, const float* x, float scale, float* y, int64_t count);
// x[i] *= scale
void scale(Context& context, float* x, float scale, int64_t count);
// x[i] = min(max(x[i], low), high); NaN stays NaN.
void clamp(Context& context, float* x, float low, float high, int64_t count);
// x[i] = cap * tanh(x[i] / cap)
void softcap(Context& context, float* x, float cap, int64_t count);

// Rotary embedding, half-split (rotate_half): x[m, heads, dim] in place, angles from tables cos/sin [m, dim /
// 2].
void rope(Context& context, float* x, int64_t m, int64_t heads, int64_t dim, const float* cos,
          const float* sin);
// Fills cos/sin [m, half] with cos(position * inverse_frequency), the product rounded to float32 as in
// PyTorch.
void rope_tables(std::span<const int32_t> positions, std::span<const float> inverse_frequencies, float* cos,
                 float* sin);

// Stores k and v [m, kv_heads, head_dim] at positions first, first + 1, ….
void store_kv(Context& context, const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv);

// out[m, heads, head_dim] = softmax(scale * q kᵀ) v. Query row i sees positions [begin[i], end[i]); begin <
// end. Head h reads kv head h / (heads / kv_heads). `softcap` > 0 caps the scores before the softmax.
struct Attention {
  const float* q = nullptr;  // [m, heads, head_dim]
  int64_t m = 0;
  int64_t heads = 0;
  std::span<const int32_t> begin;
  std::span<const int32_t> end;
  float scale = 1.0f;
  float softcap = 0.0f;
  float* out = nullptr;
};
void attention(Context& context, const Attention& args, const KvPages& kv);

// Attention of conformer audio towers: row i of q [m, heads, dim] sees rows i - window + 1 … i of k and v;
// score(i, j) = softcap(q_i · (k_j + relative[window - (i - j)])), relative [window + 1, heads, dim] where
// entry p stands for the distance window - p. Out may not alias the inputs.
void local_relative_attention(Context& context, const float* q, const float* k, const float* v,
                              const float* relative, int64_t m, int64_t heads, int64_t dim, int64_t window,
                              float softcap, float* out);

// 3x3 convolution, stride 2, padding 1: x [h, w, channels_in] (channels last) to y [ceil(h/2), ceil(w/2),
// channels_out]. `weight` is [channels_out, channels_in * 9] with PyTorch's order inside a row: channel,
// kernel row, kernel column.
void conv3x3_stride2(Context& context, const float* x, int64_t h, int64_t w, int64_t channels_in,
                     const Matrix& weight, float* y);
// Causal depthwise convolution along the rows: y[t, c] = Σ_j weight[c, j] * x[t - taps + 1 + j, c]; rows
// before the first are zero. weight [n, taps] float32. y may not be x.
void depthwise_causal_conv(Context& context, const float* x, int64_t m, int64_t n, const float* weight,
                           int64_t taps, float* y);

}  // namespace dovetail::ops
