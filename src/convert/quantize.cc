#include "convert/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "convert/quantize_avx2.h"
#include "package/values.h"

namespace dovetail::convert {
namespace {

using package::load_value;

constexpr int64_t kMaxGroup = 40;

bool use_avx2() {
#if defined(__x86_64__)
  static const bool yes = avx2::built() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return yes;
#else
  return false;
#endif
}

avx2::Float float_kind(DType type) {
  switch (type) {
    case DType::kFloat16:
      return avx2::Float::kF16;
    case DType::kBFloat16:
      return avx2::Float::kBF16;
    default:
      return avx2::Float::kF32;
  }
}

template <typename Bits>
Bits load_bits(const std::byte* values, int64_t index) {
  Bits bits;
  std::memcpy(&bits, values + index * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}

// A value as MLC's tools take it: in the model dtype.
float rounded(DType type, float value) {
  switch (type) {
    case DType::kFloat16:
      return f16_to_f32(f32_to_f16(value));
    case DType::kBFloat16:
      return bf16_to_f32(f32_to_bf16(value));
    default:
      return value;
  }
}

void store_value(DType type, std::byte* out, int64_t index, float value) {
  if (type == DType::kFloat32) {
    std::memcpy(out + 4 * index, &value, 4);
    return;
  }
  const uint16_t bits = type == DType::kFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(out + 2 * index, &bits, 2);
}

}  // namespace

namespace portable {

void quantize_row(const GroupMode& mode, DType source, const std::byte* values, int64_t cols, uint32_t* words,
                  std::byte* scales) {
  const int bits = mode.bits;
  const int64_t size = models::group_size(bits), per_word = models::word_values(bits);
  const float zero_point = static_cast<float>(models::zero_point(bits));
  // Eight bits lie so close together that float16 arithmetic would move values by a tenth of a step.
  const DType arithmetic = bits == 8 ? DType::kFloat32 : mode.model_dtype;
  // float16: every operation is rounded. bfloat16: weights and scales are, but the operations are float32.
  const DType step = arithmetic == DType::kFloat16 ? DType::kFloat16 : DType::kFloat32;
  const bool exact_scale = arithmetic == DType::kBFloat16 && mode.transposed;
  const int64_t groups = (cols + size - 1) / size;
  float w[kMaxGroup];
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t count = std::min(size, cols - g * size);
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      w[i] = rounded(arithmetic, load_value(source, values, g * size + i));
      // Compared as integers, so that NaN counts as the largest.
      largest = std::max(largest, std::bit_cast<uint32_t>(w[i]) & 0x7fffffffu);
    }
    const float exact = std::bit_cast<float>(largest) / zero_point;
    store_value(mode.model_dtype, scales, g, exact);
    const float scale = exact_scale ? exact : rounded(mode.model_dtype, exact);
    for (int64_t first = 0; first < size; first += per_word) {
      uint32_t packed = 0;
      // What lies behind the end of the row stays 0, which is not the value 0 (that would be the zero point).
      for (int64_t i = 0; i < std::min(per_word, count - first); ++i) {
        const float ratio = rounded(step, w[first + i] / scale);
        const float q = std::nearbyint(rounded(step, ratio + zero_point));
        // NaN, from 0 / 0 in a group of zeros, becomes 0.
        const float clamped = q > 0.0f ? std::min(q, 2 * zero_point) : 0.0f;
        packed |= static_cast<uint32_t>(clamped) << (bits * i);
      }
      *words++ = packed;
    }
  }
}

void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) store_value(target, out, i, load_value(source, values, i));
}

}  // namespace portable

void quantize_row(const GroupMode& mode, DType source, const std::byte* values, int64_t cols, uint32_t* words,
                  std::byte* scales) {
  const int64_t whole = use_avx2() ? cols / models::group_size(mode.bits) : 0;
  const int64_t done = whole * models::group_size(mode.bits);
  if (whole > 0) {
    avx2::quantize_groups(float_kind(source), values, whole,
                          {float_kind(mode.model_dtype), mode.bits, mode.transposed}, words, scales);
  }
  if (done < cols) {
    portable::quantize_row(mode, source, values + done * dtype_bytes(source), cols - done,
                           words + whole * models::group_words(mode.bits),
                           scales + whole * dtype_bytes(mode.model_dtype));
  }
}

void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out) {
  if (source == target) {
    std::memcpy(out, values, static_cast<size_t>(count * dtype_bytes(source)));
    return;
  }
  int64_t done = 0;
  if (target == DType::kFloat16 && use_avx2()) {
    done = avx2::convert_to_half(float_kind(source), values, count, reinterpret_cast<uint16_t*>(out));
  } else if (source == DType::kBFloat16 && target == DType::kFloat32) {
    for (; done < count; ++done) {
      const uint32_t bits = static_cast<uint32_t>(load_bits<uint16_t>(values, done)) << 16;
      std::memcpy(out + 4 * done, &bits, 4);
    }
  }
  portable::convert_values(source, values + done * dtype_bytes(source), count - done, target,
                           out + done * dtype_bytes(target));
}

}  // namespace dovetail::convert
