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

// A value rounded to the type in which MLC computes.
float rounded(float value, DType type) {
  return type == DType::kFloat16 ? f16_to_f32(f32_to_f16(value)) : value;
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

void quantize_row(DType source, const std::byte* values, int64_t cols, DType model_dtype, uint32_t* words,
                  std::byte* scales) {
  const int64_t groups = (cols + kGroupValues - 1) / kGroupValues;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t count = std::min(kGroupValues, cols - g * kGroupValues);
    float w[kGroupValues] = {};
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      w[i] = rounded(load_value(source, values, g * kGroupValues + i), model_dtype);
      // Compared as integers, so that NaN counts as the largest.
      largest = std::max(largest, std::bit_cast<uint32_t>(w[i]) & 0x7fffffffu);
    }
    const float scale = rounded(std::bit_cast<float>(largest) / 7.0f, model_dtype);
    store_value(model_dtype, scales, g, scale);
    for (int64_t word = 0; word < kGroupWords; ++word) {
      uint32_t packed = 0;
      // What lies behind the end of the row stays 0, which is not the value 0 (that would be 7).
      for (int64_t i = 0; i < std::min<int64_t>(8, count - 8 * word); ++i) {
        const float ratio = rounded(w[8 * word + i] / scale, model_dtype);
        const float q = std::nearbyint(rounded(ratio + 7.0f, model_dtype));
        // NaN, from 0 / 0 in a group of zeros, becomes 0.
        const float clamped = q > 0.0f ? std::min(q, 14.0f) : 0.0f;
        packed |= static_cast<uint32_t>(clamped) << (4 * i);
      }
      words[g * kGroupWords + word] = packed;
    }
  }
}

void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) store_value(target, out, i, load_value(source, values, i));
}

}  // namespace portable

void quantize_row(DType source, const std::byte* values, int64_t cols, DType model_dtype, uint32_t* words,
                  std::byte* scales) {
  if (!use_avx2()) return portable::quantize_row(source, values, cols, model_dtype, words, scales);
  const int64_t whole = cols / kGroupValues;
  avx2::quantize_groups(float_kind(source), values, whole, model_dtype == DType::kFloat16, words, scales);
  if (const int64_t done = whole * kGroupValues; done < cols) {
    portable::quantize_row(source, values + done * dtype_bytes(source), cols - done, model_dtype,
                           words + whole * kGroupWords, scales + whole * dtype_bytes(model_dtype));
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
