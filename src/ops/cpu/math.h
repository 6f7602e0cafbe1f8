// Exponential functions on vectors. NaN stays NaN.
#pragma once

#include "ops/cpu/simd.h"

namespace dovetail::ops::DOVETAIL_LEVEL {

// e^x, about 1 ulp; +0 below -103.98, infinity above 88.73.
DOVETAIL_INLINE F exp(F x) {
  // The limit comes first: max and min return the second operand for a NaN.
  x = max(set1(-110.0f), min(set1(90.0f), x));
  const F n = round(mul(x, set1(1.44269504088896341f)));
  // ln 2 in two parts, the first exact in few bits so that n times it is exact.
  F r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440054690583e-4f), r);
  // Taylor series up to r^7, |r| <= ln 2 / 2: its error is below 2^-27.
  F p = set1(1.0f / 5040);
  p = fma(p, r, set1(1.0f / 720));
  p = fma(p, r, set1(1.0f / 120));
  p = fma(p, r, set1(1.0f / 24));
  p = fma(p, r, set1(1.0f / 6));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  // 2^n in two steps, so that overflow and subnormal results come out right.
  const I whole = to_int(n);
  const I half = half_int(whole);
  const I bias = set1_int(127);
  p = mul(p, as_float(shift_left_int(add_int(half, bias), 23)));
  return mul(p, as_float(shift_left_int(add_int(sub_int(whole, half), bias), 23)));
}

// 1 / (1 + e^-x)
DOVETAIL_INLINE F sigmoid(F x) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x)))); }

// x / (1 + e^-x), without the product of an infinity and zero for large negative x.
DOVETAIL_INLINE F silu(F x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

DOVETAIL_INLINE F tanh(F x) {
  const F sign = as_float(set1_int(static_cast<int32_t>(0x80000000u)));
  const F magnitude = bit_and(x, as_float(set1_int(0x7fffffff)));
  // Near zero 1 - 2 / (e^2x + 1) cancels; there an odd polynomial, coefficients of Cephes' tanhf.
  const F square = mul(x, x);
  F p = set1(-5.70498872745e-3f);
  p = fma(p, square, set1(2.06390887954e-2f));
  p = fma(p, square, set1(-5.37397155531e-2f));
  p = fma(p, square, set1(1.33314422036e-1f));
  p = fma(p, square, set1(-3.33332819422e-1f));
  const F small = fma(mul(p, square), x, x);
  const F large = sub(set1(1.0f), div(set1(2.0f), add(exp(add(magnitude, magnitude)), set1(1.0f))));
  return select(less(magnitude, set1(0.625f)), small, bit_or(large, bit_and(x, sign)));
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x³): no cancellation for negative x.
DOVETAIL_INLINE F gelu_tanh(F x) {
  const F inner = fma(mul(set1(0.044715f), mul(x, x)), x, x);
  return div(x, add(set1(1.0f), exp(mul(set1(-1.59576912160573f), inner))));
}

// x Φ(x) = x (1 - erfc(|x| / sqrt 2) / 2) for x > 0 and x erfc(|x| / sqrt 2) / 2 for x < 0, where
// erfc(u) = p(t) e^-u², t = 1 / (1 + 0.3275911 u), is formula 7.1.26 of Abramowitz and Stegun (error 1.5e-7).
DOVETAIL_INLINE F gelu(F x) {
  const F u = mul(bit_and(x, as_float(set1_int(0x7fffffff))), set1(0.70710678118654752f));
  const F t = div(set1(1.0f), fma(set1(0.3275911f), u, set1(1.0f)));
  F p = set1(1.061405429f);
  p = fma(p, t, set1(-1.453152027f));
  p = fma(p, t, set1(1.421413741f));
  p = fma(p, t, set1(-0.284496736f));
  p = fma(p, t, set1(0.254829592f));
  const F half = mul(mul(mul(p, t), exp(sub(zero(), mul(u, u)))), set1(0.5f));
  return mul(x, select(less(x, zero()), half, sub(set1(1.0f), half)));
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
