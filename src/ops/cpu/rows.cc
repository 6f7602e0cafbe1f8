// Norms, activations, rotary embedding, depthwise convolution.
#include "ops/cpu/kernels.h"
#include "ops/cpu/math.h"

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

// y[i] = f(x[i]) over whole vectors and the rest.
template <typename Function>
DOVETAIL_INLINE void map(const float* x, float* y, int64_t count, Function f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, f(load(x + i)));
  if (i < count) store_n(y + i, f(load_n(x + i, count - i)), count - i);
}

// y[i] = f(a[i], b[i]); y may be a or b.
template <typename Function>
DOVETAIL_INLINE void map2(const float* a, const float* b, float* y, int64_t count, Function f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, f(load(a + i), load(b + i)));
  if (i < count) {
    const int64_t n = count - i;
    store_n(y + i, f(load_n(a + i, n), load_n(b + i, n)), n);
  }
}

// Σ f(x[i]) with four accumulators; f(0) must be 0, or `count` a multiple of kLanes.
template <typename Function>
DOVETAIL_INLINE float sum(const float* x, int64_t count, Function f) {
  F s[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) s[j] = add(s[j], f(load(x + i + j * kLanes)));
  }
  for (; i + kLanes <= count; i += kLanes) s[0] = add(s[0], f(load(x + i)));
  if (i < count) s[1] = add(s[1], f(load_n(x + i, count - i)));
  return horizontal_sum(add(add(s[0], s[1]), add(s[2], s[3])));
}

DOVETAIL_INLINE float square_root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

}  // namespace

void rms_norm(const float* x, int64_t m, int64_t n, const float* weight, float eps, float* y) {
  for (int64_t i = 0; i < m; ++i, x += n, y += n) {
    const float squares = sum(x, n, [](F a) { return mul(a, a); });
    const F inverse = set1(1.0f / square_root(squares / static_cast<float>(n) + eps));
    if (weight != nullptr) {
      map2(x, weight, y, n, [&](F a, F w) { return mul(mul(a, inverse), w); });
    } else {
      map(x, y, n, [&](F a) { return mul(a, inverse); });
    }
  }
}

void layer_norm(const float* x, int64_t m, int64_t n, const float* weight, const float* bias, float eps,
                float* y) {
  for (int64_t i = 0; i < m; ++i, x += n, y += n) {
    const float mean = sum(x, n, [](F a) { return a; }) / static_cast<float>(n);
    const F center = set1(mean);
    const int64_t whole = n / kLanes * kLanes;
    float squares = sum(x, whole, [&](F a) { return mul(sub(a, center), sub(a, center)); });
    for (int64_t k = whole; k < n; ++k) squares += (x[k] - mean) * (x[k] - mean);
    const F inverse = set1(1.0f / square_root(squares / static_cast<float>(n) + eps));
    map2(x, weight, y, n, [&](F a, F w) { return mul(mul(sub(a, center), inverse), w); });
    if (bias != nullptr) map2(y, bias, y, n, [](F a, F b) { return add(a, b); });
  }
}

void gelu_tanh_gate(const float* gate_up, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; ++i, gate_up += 2 * n, out += n) {
    map2(gate_up, gate_up + n, out, n, [](F a, F b) { return mul(gelu_tanh(a), b); });
  }
}

void gelu_tanh_mul(float* x, int64_t m, int64_t n, const float* y, int64_t y_stride) {
  for (int64_t i = 0; i < m; ++i, x += n, y += y_stride) {
    map2(x, y, x, n, [](F a, F b) { return mul(gelu_tanh(a), b); });
  }
}

void silu(float* x, int64_t count) {
  map(x, x, count, [](F a) { return silu(a); });
}

void silu_gate(const float* gate_up, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; ++i, gate_up += 2 * n, out += n) {
    map2(gate_up, gate_up + n, out, n, [](F a, F b) { return mul(silu(a), b); });
  }
}

void activate(Activation activation, float* x, int64_t count) {
  switch (activation) {
    case Activation::kGelu:
      return map(x, x, count, [](F a) { return gelu(a); });
    case Activation::kGeluTanh:
      return map(x, x, count, [](F a) { return gelu_tanh(a); });
    case Activation::kQuickGelu:
      return map(x, x, count, [](F a) { return div(a, add(set1(1.0f), exp(mul(set1(-1.702f), a)))); });
  }
}

void add_bias(float* x, int64_t m, int64_t n, const float* bias) {
  for (int64_t i = 0; i < m; ++i, x += n) map2(x, bias, x, n, [](F a, F b) { return add(a, b); });
}

void glu(const float* ab, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; ++i, ab += 2 * n, out += n) {
    map2(ab, ab + n, out, n, [](F a, F b) { return mul(a, sigmoid(b)); });
  }
}

void add_scaled(const float* x, float scale, float* y, int64_t count) {
  const F factor = set1(scale);
  map2(x, y, y, count, [&](F a, F b) { return fma(factor, a, b); });
}

void scale(float* x, float scale, int64_t count) {
  const F factor = set1(scale);
  map(x, x, count, [&](F a) { return mul(a, factor); });
}

void clamp(float* x, float low, float high, int64_t count) {
  const F least = set1(low), most = set1(high);
  map(x, x, count, [&](F a) { return min(most, max(least, a)); });
}

void softcap(float* x, float cap, int64_t count) {
  const F limit = set1(cap);
  map(x, x, count, [&](F a) { return mul(limit, tanh(div(a, limit))); });
}

void rope(float* x, int64_t m, int64_t heads, int64_t dim, const float* cos, const float* sin) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < m; ++i, cos += half, sin += half) {
    for (int64_t head = 0; head < heads; ++head, x += dim) {
      for (int64_t k = 0; k < half; k += kLanes) {
        const int64_t n = smaller(kLanes, half - k);
        const F c = load_n(cos + k, n), s = load_n(sin + k, n);
        const F a = load_n(x + k, n), b = load_n(x + half + k, n);
        store_n(x + k, fma(a, c, sub(zero(), mul(b, s))), n);
        store_n(x + half + k, fma(b, c, mul(a, s)), n);
      }
    }
  }
}

void depthwise_causal_conv(const float* x, int64_t row_begin, int64_t row_end, int64_t n, const float* weight,
                           int64_t taps, float* y) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const int64_t lanes = smaller(kLanes, n - c);
    for (int64_t t = row_begin; t < row_end; ++t) store_n(y + t * n + c, zero(), lanes);
    for (int64_t j = 0; j < taps; ++j) {
      float column[kLanes] = {};
      for (int64_t lane = 0; lane < lanes; ++lane) column[lane] = weight[(c + lane) * taps + j];
      const F w = load(column);
      const int64_t shift = j - taps + 1;
      for (int64_t t = larger(row_begin, -shift); t < row_end; ++t) {
        const F source = load_n(x + (t + shift) * n + c, lanes);
        store_n(y + t * n + c, fma(w, source, load_n(y + t * n + c, lanes)), lanes);
      }
    }
  }
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
