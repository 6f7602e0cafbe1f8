#include "convert/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "convert/quantize_avx2.h"
#include "convert/scale_search.h"
#include "ops/ops.h"
#include "package/values.h"

namespace dovetail::convert {
namespace {

using package::load_value;

constexpr int64_t kMaxGroup = 40;

bool use_avx2() {
  // The level has AVX2 and F16C; compilers differ in the names that __builtin_cpu_supports takes.
  static const bool yes = avx2::built() && ops::cpu_supports(ops::Level::kAvx2);
  return yes;
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

// A group whose scale is sought.
struct Group {
  const float* values;
  int64_t count;
  float low;
  float high;
  float mean;  // of the magnitudes

  // A scale that underflows makes zeros of all values.
  static float inverse(float scale) { return scale == 0 ? 0.0f : 1.0f / scale; }
  float quantized(int64_t i, float inverse) const {
    return std::min(std::max(std::nearbyint(values[i] * inverse), low), high);
  }
  float weight(int64_t i) const { return std::abs(values[i]) + mean; }
  float error(float scale) const {
    const float inverse = Group::inverse(scale);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float error = values[i] - quantized(i, inverse) * scale;
      sum += weight(i) * error * error;
    }
    return sum;
  }
  // The scale with the smallest error for the values as `scale` quantizes them.
  float refitted(float scale) const {
    const float inverse = Group::inverse(scale);
    float products = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float q = quantized(i, inverse);
      const float weighted = weight(i) * q;
      products += weighted * values[i];
      squares += weighted * q;
    }
    return squares == 0 ? 0.0f : products / squares;
  }
};

float searched_scale(const GroupMode& mode, const Group& group, float largest) {
  float best = 0, best_error = 0;
  for (int i = 0; i < kScales + kRefits; ++i) {
    const float wanted =
        i < kScales ? largest / (group.high + static_cast<float>(i - kScaleOrigin) * scale_step(mode.bits))
                    : group.refitted(best);
    const float scale = rounded(mode.model_dtype, wanted);
    const float error = group.error(scale);
    if (i > 0 && !(error < best_error)) continue;
    best = scale;
    best_error = error;
  }
  return best;
}

// False, and nothing written, when the group is not for searching. Codes behind `count` are left.
bool search_group(const GroupMode& mode, const float* values, int64_t count, std::byte* scales, int64_t g,
                  uint32_t* codes) {
  uint32_t magnitude = 0;
  float largest = 0, total = 0;
  for (int64_t i = 0; i < count; ++i) {
    total += std::abs(values[i]);
    // Compared as integers, so that NaN counts as the largest.
    const uint32_t size = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    if (size <= magnitude) continue;
    magnitude = size;
    largest = mode.bits == 8 ? std::abs(values[i]) : values[i];
  }
  const float size = std::bit_cast<float>(magnitude);
  if (!(size >= kSmallestSearched && size <= largest_searched(mode.model_dtype == DType::kFloat16)))
    return false;
  const int low = lowest(mode.bits);
  const Group group{.values = values,
                    .count = count,
                    .low = static_cast<float>(low),
                    .high = static_cast<float>(highest(mode.bits)),
                    .mean = total * (1.0f / static_cast<float>(models::group_size(mode.bits)))};
  const float scale = searched_scale(mode, group, largest);
  store_value(mode.model_dtype, scales, g, scale);
  const float inverse = Group::inverse(scale);
  for (int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint32_t>(static_cast<int>(group.quantized(i, inverse)) - low);
  return true;
}

void round_group_as_mlc(const GroupMode& mode, const float* values, int64_t count, std::byte* scales,
                        int64_t g, uint32_t* codes) {
  const float zero_point = static_cast<float>(models::zero_point(mode.bits));
  // Eight bits lie so close together that float16 arithmetic would move values by a tenth of a step.
  const DType arithmetic = mode.bits == 8 ? DType::kFloat32 : mode.model_dtype;
  // float16: every operation is rounded. bfloat16: weights and scales are, but the operations are float32.
  const DType step = arithmetic == DType::kFloat16 ? DType::kFloat16 : DType::kFloat32;
  uint32_t largest = 0;
  float w[kMaxGroup];
  for (int64_t i = 0; i < count; ++i) {
    w[i] = rounded(arithmetic, values[i]);
    // As in search_group.
    largest = std::max(largest, std::bit_cast<uint32_t>(w[i]) & 0x7fffffffu);
  }
  const float exact = std::bit_cast<float>(largest) / zero_point;
  store_value(mode.model_dtype, scales, g, exact);
  const bool exact_scale = arithmetic == DType::kBFloat16 && mode.transposed;
  const float scale = exact_scale ? exact : rounded(mode.model_dtype, exact);
  for (int64_t i = 0; i < count; ++i) {
    const float ratio = rounded(step, w[i] / scale);
    const float q = std::nearbyint(rounded(step, ratio + zero_point));
    // NaN, from 0 / 0 in a group of zeros, becomes 0.
    codes[i] = static_cast<uint32_t>(q > 0.0f ? std::min(q, 2 * zero_point) : 0.0f);
  }
}

}  // namespace

namespace portable {

void quantize_row(const GroupMode& mode, DType source, const std::byte* values, int64_t cols, uint32_t* words,
                  std::byte* scales) {
  const int64_t size = models::group_size(mode.bits), per_word = models::word_values(mode.bits);
  float group[kMaxGroup];
  for (int64_t g = 0; g * size < cols; ++g) {
    const int64_t count = std::min(size, cols - g * size);
    for (int64_t i = 0; i < count; ++i) group[i] = load_value(source, values, g * size + i);
    // What lies behind the end of the row stays 0, which is not the value 0 (that would be the zero point).
    uint32_t codes[kMaxGroup] = {};
    if (mode.rounding == Rounding::kMlc || !search_group(mode, group, count, scales, g, codes))
      round_group_as_mlc(mode, group, count, scales, g, codes);
    for (int64_t first = 0; first < size; first += per_word) {
      uint32_t packed = 0;
      for (int64_t i = 0; i < per_word; ++i) packed |= codes[first + i] << (mode.bits * i);
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
  if (!use_avx2()) return portable::quantize_row(mode, source, values, cols, words, scales);
  const avx2::Mode as_built{float_kind(mode.model_dtype), mode.bits, mode.transposed};
  if (mode.rounding == Rounding::kSearch)
    return avx2::search_row(float_kind(source), values, cols, as_built, words, scales);
  const int64_t whole = cols / models::group_size(mode.bits), done = whole * models::group_size(mode.bits);
  avx2::quantize_groups(float_kind(source), values, whole, as_built, words, scales);
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
