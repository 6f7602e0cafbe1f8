// Norms, activations and rotary embedding: work on rows or on single elements.
#include <cmath>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/split.h"

namespace dovetail::ops {
namespace {

// Nanoseconds per element, roughly; they only decide whether threads are worth waking.
constexpr double kMove = 0.15;
constexpr double kNorm = 0.3;
constexpr double kTranscendental = 0.6;
constexpr int64_t kElementGrain = 64;

}  // namespace

void rms_norm(Context& context, const float* x, int64_t m, int64_t n, const float* weight, float eps,
              float* y) {
  split(context, m, kNorm * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().rms_norm(x + begin * n, end - begin, n, weight, eps, y + begin * n);
  });
}

void layer_norm(Context& context, const float* x, int64_t m, int64_t n, const float* weight,
                const float* bias, float eps, float* y) {
  split(context, m, kNorm * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().layer_norm(x + begin * n, end - begin, n, weight, bias, eps, y + begin * n);
  });
}

void gelu_tanh_gate(Context& context, const float* gate_up, int64_t m, int64_t n, float* out) {
  split(context, m, kTranscendental * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().gelu_tanh_gate(gate_up + begin * 2 * n, end - begin, n, out + begin * n);
  });
}

void gelu_tanh_mul(Context& context, float* x, int64_t m, int64_t n, const float* y, int64_t y_stride) {
  split(context, m, kTranscendental * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().gelu_tanh_mul(x + begin * n, end - begin, n, y + begin * y_stride, y_stride);
  });
}

void silu(Context& context, float* x, int64_t count) {
  split(context, count, kTranscendental, kElementGrain,
        [&](int64_t begin, int64_t end, int) { context.kernels().silu(x + begin, end - begin); });
}

void silu_gate(Context& context, const float* gate_up, int64_t m, int64_t n, float* out) {
  split(context, m, kTranscendental * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().silu_gate(gate_up + begin * 2 * n, end - begin, n, out + begin * n);
  });
}

void activate(Context& context, Activation activation, float* x, int64_t count) {
  split(context, count, kTranscendental, kElementGrain, [&](int64_t begin, int64_t end, int) {
    context.kernels().activate(activation, x + begin, end - begin);
  });
}

void add_bias(Context& context, float* x, int64_t m, int64_t n, const float* bias) {
  split(context, m, kMove * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().add_bias(x + begin * n, end - begin, n, bias);
  });
}

void glu(Context& context, const float* ab, int64_t m, int64_t n, float* out) {
  split(context, m, kTranscendental * static_cast<double>(n), 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().glu(ab + begin * 2 * n, end - begin, n, out + begin * n);
  });
}

void add_scaled(Context& context, const float* x, float scale, float* y, int64_t count) {
  split(context, count, kMove, kElementGrain, [&](int64_t begin, int64_t end, int) {
    context.kernels().add_scaled(x + begin, scale, y + begin, end - begin);
  });
}

void scale(Context& context, float* x, float scale, int64_t count) {
  split(context, count, kMove, kElementGrain,
        [&](int64_t begin, int64_t end, int) { context.kernels().scale(x + begin, scale, end - begin); });
}

void clamp(Context& context, float* x, float low, float high, int64_t count) {
  split(context, count, kMove, kElementGrain,
        [&](int64_t begin, int64_t end, int) { context.kernels().clamp(x + begin, low, high, end - begin); });
}

void softcap(Context& context, float* x, float cap, int64_t count) {
  split(context, count, kTranscendental, kElementGrain,
        [&](int64_t begin, int64_t end, int) { context.kernels().softcap(x + begin, cap, end - begin); });
}

void rope(Context& context, float* x, int64_t m, int64_t heads, int64_t dim, const float* cos,
          const float* sin) {
  const int64_t row = heads * dim;
  split(context, m, kNorm * static_cast<double>(row), 1, [&](int64_t begin, int64_t end, int) {
    const int64_t angle = begin * (dim / 2);
    context.kernels().rope(x + begin * row, end - begin, heads, dim, cos + angle, sin + angle);
  });
}

void rope_tables(std::span<const int32_t> positions, std::span<const float> inverse_frequencies, float* cos,
                 float* sin) {
  for (const int32_t position : positions) {
    for (const float frequency : inverse_frequencies) {
      const double angle = static_cast<float>(position) * frequency;
      *cos++ = static_cast<float>(std::cos(angle));
      *sin++ = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace dovetail::ops
