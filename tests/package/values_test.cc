#include "package/values.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace dovetail::package {
namespace {

std::vector<std::byte> pack(DType type, const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * static_cast<size_t>(dtype_bytes(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kFloat32) {
      std::memcpy(out.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t bits = type == DType::kFloat16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      std::memcpy(out.data() + 2 * i, &bits, 2);
    }
  }
  return out;
}

TEST(LoadValue, ReadsAnyAlignment) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    std::vector<std::byte> bytes = pack(type, {1.5f, -2.0f});
    bytes.insert(bytes.begin(), std::byte{0});
    EXPECT_EQ(load_value(type, bytes.data() + 1, 0), 1.5f);
    EXPECT_EQ(load_value(type, bytes.data() + 1, 1), -2.0f);
  }
}

TEST(FirstNonFinite, FindsNanAndInfinity) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    std::vector<float> values(3000, 1.0f);
    EXPECT_EQ(first_non_finite(type, pack(type, values).data(), 3000), -1);
    values[2999] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_non_finite(type, pack(type, values).data(), 3000), 2999);
    values[1024] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(first_non_finite(type, pack(type, values).data(), 3000), 1024);
    EXPECT_EQ(first_non_finite(type, pack(type, values).data(), 1024), -1);
  }
}

}  // namespace
}  // namespace dovetail::package
