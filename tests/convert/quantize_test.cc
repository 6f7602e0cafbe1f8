#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint_fixture.h"
#include "package/values.h"

namespace dovetail::convert {
namespace {

using package::load_value;

struct Row {
  std::vector<uint32_t> words;
  std::vector<std::byte> scales;

  float scale(size_t group, DType dtype) const {
    return load_value(dtype, scales.data(), static_cast<int64_t>(group));
  }
  bool operator==(const Row&) const = default;
};

using Function = void (*)(DType, const std::byte*, int64_t, DType, uint32_t*, std::byte*);

Row run(Function function, DType source, const std::vector<std::byte>& values, int64_t cols, DType model) {
  const size_t groups = static_cast<size_t>((cols + 31) / 32);
  Row row{.words = std::vector<uint32_t>(groups * 4, 0xcccccccc),
          .scales = std::vector<std::byte>(groups * static_cast<size_t>(dtype_bytes(model)))};
  function(source, values.data(), cols, model, row.words.data(), row.scales.data());
  return row;
}

std::vector<std::byte> pack(DType type, const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * static_cast<size_t>(dtype_bytes(type)));
  portable::convert_values(DType::kFloat32, reinterpret_cast<const std::byte*>(values.data()),
                           static_cast<int64_t>(values.size()), type, out.data());
  return out;
}

// The values at the edges, against what MLC's tools gave for them.
TEST(Quantize, EdgesAreThoseOfMlc) {
  const Json expected = read_json(testing::kMlcPackages / "quant_edge.json");
  for (const DType model : {DType::kFloat16, DType::kFloat32}) {
    std::vector<float> rows[2] = {std::vector<float>(64), std::vector<float>(64)};
    // numpy.linspace(-1, 1, 32)
    for (int i = 0; i < 32; ++i)
      rows[0][static_cast<size_t>(i)] = static_cast<float>(-1.0 + i * (2.0 / 31.0));
    rows[1][5] = std::numeric_limits<float>::infinity();
    for (size_t i = 32; i < 64; ++i) rows[1][i] = model == DType::kFloat16 ? 1e-7f : 1e-30f;
    for (const Function function : {quantize_row, portable::quantize_row}) {
      for (size_t r = 0; r < 2; ++r) {
        const Row row = run(function, DType::kFloat32, pack(DType::kFloat32, rows[r]), 64, model);
        for (size_t i = 0; i < 8; ++i) {
          // The tiny value underflows its scale in float16 only, but is 7 times its scale in float32: 14 both
          // times.
          EXPECT_EQ(row.words[i], std::stoul(expected["q_weight_hex"][r][i].get<std::string>(), nullptr, 16))
              << r << " " << i;
        }
        for (size_t g = 0; g < 2; ++g) {
          const Json& scale = expected[model == DType::kFloat16 ? "q_scale_f16" : "q_scale_f32"][r][g];
          if (scale.is_string()) {
            EXPECT_TRUE(std::isinf(row.scale(g, model)));
          } else {
            const float value = scale.get<float>();
            EXPECT_NEAR(row.scale(g, model), value, std::abs(value) * 4e-4) << r << " " << g;
          }
        }
      }
    }
  }
}

TEST(Quantize, RowsThatEndInsideAGroup) {
  for (const int64_t cols : {1, 31, 33, 48, 100}) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) - 6.0f;
    std::vector<float> padded = values;
    padded.resize(static_cast<size_t>((cols + 31) / 32 * 32), 0.0f);
    const Row row =
        run(quantize_row, DType::kBFloat16, pack(DType::kBFloat16, values), cols, DType::kFloat16);
    const Row whole = run(quantize_row, DType::kBFloat16, pack(DType::kBFloat16, padded),
                          static_cast<int64_t>(padded.size()), DType::kFloat16);
    EXPECT_EQ(row.scales, whole.scales) << cols;
    for (int64_t i = 0; i < static_cast<int64_t>(padded.size()); ++i) {
      const auto nibble = [&](const Row& r) {
        return r.words[static_cast<size_t>(i / 8)] >> (4 * (i % 8)) & 15u;
      };
      EXPECT_EQ(nibble(row), i < cols ? nibble(whole) : 0u) << cols << " " << i;
    }
  }
}

TEST(Quantize, ValuesComeBack) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(256);
  for (float& value : values) value = normal(random);
  const Row row = run(quantize_row, DType::kFloat32, pack(DType::kFloat32, values), 256, DType::kFloat32);
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = row.scale(i / 32, DType::kFloat32);
    const int q = static_cast<int>(row.words[i / 8] >> (4 * (i % 8)) & 15u);
    EXPECT_LE(std::abs(static_cast<float>(q - 7) * scale - values[i]), scale * 0.5001f);
  }
}

// Every bit pattern of 16 bits, and random ones of 32, in random company: both implementations give the same
// bytes.
TEST(Quantize, EveryCpuLevelGivesTheSame) {
  std::mt19937 random(11);
  for (const DType source : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    std::vector<std::byte> values;
    constexpr int64_t kCols = 160;
    const int64_t rows = 1000;
    values.resize(static_cast<size_t>(rows * kCols * dtype_bytes(source)));
    for (int64_t i = 0; i < rows * kCols; ++i) {
      // Groups of any bits (NaN and infinity are common in them), of all sizes, and of ordinary weights.
      const int kind = static_cast<int>(i / 32 % 4);
      uint32_t bits = static_cast<uint32_t>(random());
      if (kind > 0) {
        const float scale = std::ldexp(1.0f, static_cast<int>(i / 32 % 60) - (kind == 1 ? 140 : 30));
        const float value = (static_cast<float>(bits) / 4294967296.0f - 0.5f) * scale;
        bits = source == DType::kFloat32   ? std::bit_cast<uint32_t>(value)
               : source == DType::kFloat16 ? f32_to_f16(value)
                                           : f32_to_bf16(value);
      }
      std::memcpy(values.data() + i * dtype_bytes(source), &bits, static_cast<size_t>(dtype_bytes(source)));
    }
    for (const DType model : {DType::kFloat16, DType::kFloat32}) {
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<std::byte> one(values.begin() + row * kCols * dtype_bytes(source),
                                         values.begin() + (row + 1) * kCols * dtype_bytes(source));
        const Row fast = run(quantize_row, source, one, kCols, model);
        const Row plain = run(portable::quantize_row, source, one, kCols, model);
        ASSERT_EQ(fast.words, plain.words) << dtype_name(source) << " row " << row;
        for (size_t g = 0; g < kCols / 32; ++g) {
          const float a = fast.scale(g, model), b = plain.scale(g, model);
          ASSERT_TRUE(std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
                      (std::isnan(a) && std::isnan(b)))
              << row << " " << g;
        }
      }
    }
  }
}

TEST(ConvertValues, EveryCpuLevelGivesTheSame) {
  std::mt19937 random(3);
  for (const DType source : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const int64_t count = 65536 + 5;
    std::vector<std::byte> values(static_cast<size_t>(count * dtype_bytes(source)));
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits =
          source == DType::kFloat32 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(i);
      std::memcpy(values.data() + i * dtype_bytes(source), &bits, static_cast<size_t>(dtype_bytes(source)));
    }
    for (const DType target : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      std::vector<std::byte> fast(static_cast<size_t>(count * dtype_bytes(target))), plain(fast.size());
      convert_values(source, values.data(), count, target, fast.data());
      portable::convert_values(source, values.data(), count, target, plain.data());
      for (int64_t i = 0; i < count; ++i) {
        const float a = load_value(target, fast.data(), i), b = load_value(target, plain.data(), i);
        ASSERT_TRUE(std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
                    (std::isnan(a) && std::isnan(b)))
            << dtype_name(source) << " to " << dtype_name(target) << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::convert
