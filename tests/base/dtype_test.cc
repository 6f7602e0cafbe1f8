#include "base/dtype.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <random>

namespace dovetail {
namespace {

TEST(DType, NamesRoundTrip) {
  for (DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kUInt32, DType::kInt64}) {
    EXPECT_EQ(dtype_from_name(dtype_name(type)), type);
  }
  EXPECT_EQ(dtype_from_name("float8"), std::nullopt);
}

TEST(DType, EveryFloat16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(f32_to_f16(value), bits);
    }
  }
}

__attribute__((target("f16c"))) uint16_t hardware_f16(float value) {
  return static_cast<uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
}

TEST(DType, Float16RoundsLikeTheProcessor) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "no F16C";
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), hardware_f16(value)) << value;
  }
}

TEST(DType, BFloat16RoundsHalfToEven) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace dovetail
