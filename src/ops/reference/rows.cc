#include <cmath>

#include "ops/reference/reference.h"

namespace dovetail::ops::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double gelu_tanh(double x) {
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return 0.5 * x * (1.0 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

}  // namespace

void rms_norm(const float* x, int64_t m, int64_t n, const float* weight, float eps, float* y) {
  for (int64_t i = 0; i < m; ++i, x += n, y += n) {
    double squares = 0;
    for (int64_t k = 0; k < n; ++k) squares += static_cast<double>(x[k]) * x[k];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t k = 0; k < n; ++k) y[k] = static_cast<float>(x[k] * inverse * (weight ? weight[k] : 1.0f));
  }
}

void layer_norm(const float* x, int64_t m, int64_t n, const float* weight, const float* bias, float eps,
                float* y) {
  for (int64_t i = 0; i < m; ++i, x += n, y += n) {
    double mean = 0, variance = 0;
    for (int64_t k = 0; k < n; ++k) mean += x[k];
    mean /= static_cast<double>(n);
    for (int64_t k = 0; k < n; ++k) variance += (x[k] - mean) * (x[k] - mean);
    variance /= static_cast<double>(n);
    const double inverse = 1.0 / std::sqrt(variance + eps);
    for (int64_t k = 0; k < n; ++k) {
      y[k] = static_cast<float>((x[k] - mean) * inverse * weight[k] + (bias ? bias[k] : 0.0f));
    }
  }
}

void gelu_tanh_gate(const float* gate_up, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; ++i, gate_up += 2 * n, out += n) {
    for (int64_t k = 0; k < n; ++k) out[k] = static_cast<float>(gelu_tanh(gate_up[k]) * gate_up[n + k]);
  }
}

void gelu_tanh_mul(float* x, int64_t m, int64_t n, const float* y, int64_t y_stride) {
  for (int64_t i = 0; i < m; ++i, x += n, y += y_stride) {
    for (int64_t k = 0; k < n; ++k) x[k] = static_cast<float>(gelu_tanh(x[k]) * y[k]);
  }
}

void silu(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] * sigmoid(x[i]));
}

void silu_gate(const float* gate_up, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; ++i, gate_up += 2 * n, out += n) {
    for (int64_t k = 0; k < n; ++k) {
      out[k] = static_cast<float>(gate_up[k] * sigmoid(gate_up[k]) * gate_up[n + k]);
    }
  }
}

void activate(Activation activation, float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    switch (activation) {
      case Activation::kGelu:
        x[i] = static_cast<float>(0.5 * value * std::erfc(-value / std::sqrt(2.0)));
        break;
      case Activation::kGeluTanh:
        x[i] = static_cast<float>(gelu_tanh(x[i]));
        break;
      case Activation::kQuickGelu:
        x[i] = static_cast<float>(value / (1.0 + std::exp(-1.702 * value)));
        break;
    }
  }
}

void add_bias(float* x, int64_t m, int64_t n, const float* bias) {
  for (int64_t i = 0; i < m; ++i, x += n) {
    for (int64_t k = 0; k < n; ++k) x[k] += bias[k];
  }
}

void glu(const float* ab, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; ++i, ab += 2 * n, out += n) {
    for (int64_t k = 0; k < n; ++k) out[k] = static_cast<float>(ab[k] * sigmoid(ab[n + k]));
  }
}

void add_scaled(const float* x, float scale, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = std::fma(scale, x[i], y[i]);
}

void scale(float* x, float scale, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= scale;
}

void clamp(float* x, float low, float high, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] < low) x[i] = low;
    if (x[i] > high) x[i] = high;
  }
}

void softcap(float* x, float cap, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    x[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
}

void rope(float* x, int64_t m, int64_t heads, int64_t dim, const float* cos, const float* sin) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < m; ++i, cos += half, sin += half) {
    for (int64_t head = 0; head < heads; ++head, x += dim) {
      for (int64_t k = 0; k < half; ++k) {
        const double a = x[k], b = x[half + k];
        x[k] = static_cast<float>(a * cos[k] - b * sin[k]);
        x[half + k] = static_cast<float>(b * cos[k] + a * sin[k]);
      }
    }
  }
}

void depthwise_causal_conv(const float* x, int64_t row_begin, int64_t row_end, int64_t n, const float* weight,
                           int64_t taps, float* y) {
  for (int64_t t = row_begin; t < row_end; ++t) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < taps; ++j) {
        const int64_t source = t - taps + 1 + j;
        if (source >= 0) sum += static_cast<double>(weight[c * taps + j]) * x[source * n + c];
      }
      y[t * n + c] = static_cast<float>(sum);
    }
  }
}

}  // namespace dovetail::ops::reference
