#include "package/values.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dovetail::package {
namespace {

template <typename Bits>
Bits load_bits(const std::byte* values, int64_t index) {
  Bits bits;
  std::memcpy(&bits, values + index * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}

template <typename Bits, Bits kExponent>
int64_t find_exponent(const std::byte* values, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += 1024) {
    const int64_t end = std::min(count, begin + 1024);
    bool found = false;
    for (int64_t i = begin; i < end; ++i) found |= (load_bits<Bits>(values, i) & kExponent) == kExponent;
    if (!found) continue;
    for (int64_t i = begin; i < end; ++i) {
      if ((load_bits<Bits>(values, i) & kExponent) == kExponent) return i;
    }
  }
  return -1;
}

}  // namespace

float load_value(DType type, const std::byte* values, int64_t index) {
  switch (type) {
    case DType::kFloat16:
      return f16_to_f32(load_bits<uint16_t>(values, index));
    case DType::kBFloat16:
      return bf16_to_f32(load_bits<uint16_t>(values, index));
    default:
      return std::bit_cast<float>(load_bits<uint32_t>(values, index));
  }
}

int64_t first_non_finite(DType type, const std::byte* values, int64_t count) {
  switch (type) {
    case DType::kFloat16:
      return find_exponent<uint16_t, 0x7c00>(values, count);
    case DType::kBFloat16:
      return find_exponent<uint16_t, 0x7f80>(values, count);
    default:
      return find_exponent<uint32_t, 0x7f800000>(values, count);
  }
}

}  // namespace dovetail::package
