#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
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

using Function = void (*)(const GroupMode&, DType, const std::byte*, int64_t, uint32_t*, std::byte*);

Row run(Function function, const models::Quantization& quantization, DType source,
        const std::vector<std::byte>& values, int64_t cols, Rounding rounding, bool transposed = false) {
  const int64_t size = models::group_size(quantization.bits), groups = (cols + size - 1) / size;
  Row row{
      .words = std::vector<uint32_t>(static_cast<size_t>(groups * models::group_words(quantization.bits)),
                                     0xcccccccc),
      .scales = std::vector<std::byte>(static_cast<size_t>(groups * dtype_bytes(quantization.model_dtype)))};
  function({quantization.model_dtype, quantization.bits, transposed, rounding}, source, values.data(), cols,
           row.words.data(), row.scales.data());
  return row;
}

// Value i of a row without its scale.
int quantized(const Row& row, const models::Quantization& quantization, int64_t i) {
  const int bits = quantization.bits;
  const int64_t per_word = models::word_values(bits);
  const uint32_t word = row.words[static_cast<size_t>(i / per_word)];
  return static_cast<int>(word >> (bits * (i % per_word)) & ((1u << bits) - 1)) - models::zero_point(bits);
}

// And with it.
float value(const Row& row, const models::Quantization& quantization, int64_t i) {
  const auto group = static_cast<size_t>(i / models::group_size(quantization.bits));
  return static_cast<float>(quantized(row, quantization, i)) * row.scale(group, quantization.model_dtype);
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
  for (const char* name : {"q4f16_1", "q4f32_1"}) {
    const models::Quantization& quantization = models::find_quantization(name);
    const DType model = quantization.model_dtype;
    std::vector<float> rows[2] = {std::vector<float>(64), std::vector<float>(64)};
    // numpy.linspace(-1, 1, 32)
    for (int i = 0; i < 32; ++i)
      rows[0][static_cast<size_t>(i)] = static_cast<float>(-1.0 + i * (2.0 / 31.0));
    rows[1][5] = std::numeric_limits<float>::infinity();
    for (size_t i = 32; i < 64; ++i) rows[1][i] = model == DType::kFloat16 ? 1e-7f : 1e-30f;
    for (const Function function : {quantize_row, portable::quantize_row}) {
      for (size_t r = 0; r < 2; ++r) {
        const Row row =
            run(function, quantization, DType::kFloat32, pack(DType::kFloat32, rows[r]), 64, Rounding::kMlc);
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

// The modes that quantize.
std::vector<const models::Quantization*> modes() {
  std::vector<const models::Quantization*> out;
  for (const models::Quantization& quantization : models::quantizations()) {
    if (quantization.bits != 0) out.push_back(&quantization);
  }
  return out;
}

// Each mode under each rounding.
std::vector<std::pair<const models::Quantization*, Rounding>> all_ways() {
  std::vector<std::pair<const models::Quantization*, Rounding>> out;
  for (const models::Quantization* mode : modes()) {
    out.emplace_back(mode, Rounding::kSearch);
    out.emplace_back(mode, Rounding::kMlc);
  }
  return out;
}

std::vector<std::vector<uint32_t>> hex_rows(const Json& rows) {
  std::vector<std::vector<uint32_t>> out;
  for (const Json& row : rows) {
    std::istringstream text(row.get<std::string>());
    text >> std::hex;
    std::vector<uint32_t>& values = out.emplace_back();
    for (uint32_t value; text >> value;) values.push_back(value);
  }
  return out;
}

// Every mode of MLC, against what MLC's own code gave for the same values.
TEST(Quantize, WordsAndScalesAreThoseOfMlc) {
  const Json expected = read_json(testing::kMlcPackages / "quant_modes.json");
  const std::vector<std::vector<uint32_t>> values = hex_rows(expected["values"]);
  int compared = 0;
  for (const models::Quantization* mode : modes()) {
    if (!expected.contains(std::string(mode->name))) continue;
    ++compared;
    const Json& entry = expected[std::string(mode->name)];
    const auto words = hex_rows(entry["q_weight"]), scales = hex_rows(entry["q_scale"]);
    for (const Function function : {quantize_row, portable::quantize_row}) {
      for (size_t r = 0; r < values.size(); ++r) {
        std::vector<std::byte> row(values[r].size() * 4);
        std::memcpy(row.data(), values[r].data(), row.size());
        const Row actual = run(function, *mode, DType::kFloat32, row, 100, Rounding::kMlc, mode->transposed);
        for (size_t i = 0; i < actual.words.size(); ++i) {
          EXPECT_EQ(actual.words[i], mode->transposed ? words.at(i).at(r) : words.at(r).at(i))
              << mode->name << " row " << r << " word " << i;
        }
        const size_t width = static_cast<size_t>(dtype_bytes(mode->model_dtype));
        ASSERT_EQ(actual.scales.size() / width, mode->transposed ? scales.size() : scales.at(r).size());
        for (size_t g = 0; g < actual.scales.size() / width; ++g) {
          uint32_t bits = 0;
          std::memcpy(&bits, actual.scales.data() + g * width, width);
          EXPECT_EQ(bits, mode->transposed ? scales.at(g).at(r) : scales.at(r).at(g))
              << mode->name << " row " << r << " group " << g;
        }
      }
    }
  }
  EXPECT_EQ(compared, 7);
}

TEST(Quantize, RowsThatEndInsideAGroup) {
  for (const auto& [mode, rounding] : all_ways()) {
    const int64_t size = models::group_size(mode->bits);
    for (const int64_t cols : {1, 31, 33, 39, 41, 48, 100}) {
      std::vector<float> values(static_cast<size_t>(cols));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) - 6.0f;
      std::vector<float> padded = values;
      padded.resize(static_cast<size_t>((cols + size - 1) / size * size), 0.0f);
      const Row row =
          run(quantize_row, *mode, DType::kBFloat16, pack(DType::kBFloat16, values), cols, rounding);
      const Row whole = run(quantize_row, *mode, DType::kBFloat16, pack(DType::kBFloat16, padded),
                            static_cast<int64_t>(padded.size()), rounding);
      EXPECT_EQ(row.scales, whole.scales) << mode->name << " " << cols;
      for (int64_t i = 0; i < static_cast<int64_t>(padded.size()); ++i) {
        EXPECT_EQ(quantized(row, *mode, i),
                  i < cols ? quantized(whole, *mode, i) : -models::zero_point(mode->bits))
            << mode->name << " " << cols << " " << i;
      }
    }
  }
}

// Half a step, and what the arithmetic of the mode adds: float16 rounds w / scale and the sum with the zero
// point, a scale in bfloat16 may lie 1/256 below the exact one, which the largest values feel.
TEST(Quantize, ValuesComeBackWithinHalfAStep) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(1280);
  for (float& value : values) value = normal(random);
  for (const models::Quantization* mode : modes()) {
    const Row row =
        run(quantize_row, *mode, DType::kFloat32, pack(DType::kFloat32, values), 1280, Rounding::kMlc);
    const bool half = mode->model_dtype == DType::kFloat16 && mode->bits < 8;
    const double slack = mode->model_dtype == DType::kBFloat16 ? 0.03 : half ? 0.011 : 1e-3;
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float scale =
          row.scale(i / static_cast<size_t>(models::group_size(mode->bits)), mode->model_dtype);
      const int q = quantized(row, *mode, static_cast<int64_t>(i));
      worst = std::max(worst, std::abs(static_cast<double>(q) * scale - values[i]) / scale);
    }
    // The largest value of a group, 127 steps away, moves with the rounding of a float16 scale.
    EXPECT_LE(worst, mode->bits == 8 ? 0.57 : 0.5 + slack) << mode->name;
    EXPECT_GE(worst, 0.45) << mode->name;
  }
}

// What llama.cpp's Q8_0 holds, q · d with |q| up to 127 in groups of 32, is also what q8f16_1 can hold, and
// what its Q4_0 holds, with q from -8 to 7, q4f16_1 and q4f32_1.
TEST(Quantize, EightBitsKeepValuesOnAGridOf127Steps) {
  const models::Quantization& mode = models::find_quantization("q8f16_1");
  std::mt19937 random(5);
  for (const float step : {0.25f, 0.00126171112f, 6.103515625e-05f, 9.5367431640625e-07f}) {
    const float d = f16_to_f32(f32_to_f16(step));
    std::vector<float> values(96);
    std::vector<int> q(96);
    for (size_t i = 0; i < values.size(); ++i) {
      q[i] = i % 32 == 7 ? (i < 32 ? 127 : -127) : static_cast<int>(random() % 255) - 127;
      values[i] = static_cast<float>(q[i]) * d;
    }
    for (const Rounding rounding : {Rounding::kSearch, Rounding::kMlc}) {
      const Row row = run(quantize_row, mode, DType::kFloat32, pack(DType::kFloat32, values), 96, rounding);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(row.scale(i / 32, DType::kFloat16), d);
        EXPECT_EQ(quantized(row, mode, static_cast<int64_t>(i)), q[i]) << i;
      }
    }
  }
}

TEST(Quantize, SearchKeepsValuesOnAGridOfAllCodes) {
  std::mt19937 random(6);
  for (const models::Quantization* mode : modes()) {
    if (mode->bits == 8) continue;
    const int64_t size = models::group_size(mode->bits);
    const int top = 1 << (mode->bits - 1);
    for (const float step : {0.25f, -0.25f, 1.5f * 0x1p-10f, -1.5f * 0x1p-10f}) {
      for (const int most : {top, top - 1}) {
        std::vector<float> values(static_cast<size_t>(3 * size));
        for (size_t i = 0; i < values.size(); ++i) {
          const int q = i % static_cast<size_t>(size) == 9 ? most : static_cast<int>(random()) % top;
          values[i] = static_cast<float>(q) * step;
        }
        const Row row = run(quantize_row, *mode, DType::kFloat32, pack(DType::kFloat32, values), 3 * size,
                            Rounding::kSearch);
        for (int64_t i = 0; i < 3 * size; ++i)
          EXPECT_EQ(value(row, *mode, i), values[static_cast<size_t>(i)])
              << mode->name << " " << step << " " << i;
      }
    }
  }
}

double weighted_error(const Row& row, const models::Quantization& mode, const std::vector<float>& values,
                      int64_t begin, int64_t end) {
  double mean = 0, sum = 0;
  for (int64_t i = begin; i < end; ++i)
    mean += std::abs(values[static_cast<size_t>(i)]) / static_cast<double>(end - begin);
  for (int64_t i = begin; i < end; ++i) {
    const double w = values[static_cast<size_t>(i)], error = w - value(row, mode, i);
    sum += (std::abs(w) + mean) * error * error;
  }
  return sum;
}

TEST(Quantize, SearchLeavesLessErrorInEveryGroup) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::uniform_real_distribution<float> uniform(-3.0f, 1.0f);
  std::cauchy_distribution<float> outliers(0.0f, 0.001f);
  for (const models::Quantization* mode : modes()) {
    const int64_t size = models::group_size(mode->bits), cols = 300 * size;
    std::vector<float> values(static_cast<size_t>(cols));
    for (size_t i = 0; i < values.size(); ++i) {
      const float w = i % 3 == 0 ? outliers(random) : normal(random);
      values[i] = i / static_cast<size_t>(size) % 2 == 0 ? w : uniform(random);
    }
    const auto packed = pack(DType::kFloat32, values);
    const Row search = run(quantize_row, *mode, DType::kFloat32, packed, cols, Rounding::kSearch);
    const Row mlc = run(quantize_row, *mode, DType::kFloat32, packed, cols, Rounding::kMlc);
    for (int64_t g = 0; g < cols / size; ++g) {
      EXPECT_LE(weighted_error(search, *mode, values, g * size, (g + 1) * size),
                weighted_error(mlc, *mode, values, g * size, (g + 1) * size) * 1.0001)
          << mode->name << " group " << g;
    }
    // Of all groups. The 8 bits are near the best there is.
    double left = 0, before = 0;
    for (int64_t g = 0; g < cols / size; ++g) {
      left += weighted_error(search, *mode, values, g * size, (g + 1) * size);
      before += weighted_error(mlc, *mode, values, g * size, (g + 1) * size);
    }
    const double ratio = left / before;
    EXPECT_LE(ratio, mode->bits == 8 ? 0.9 : mode->bits == 4 ? 0.7 : 0.6) << mode->name;
    EXPECT_GE(ratio, 0.2) << mode->name;
  }
}

TEST(Quantize, SearchAtTheEdges) {
  for (const models::Quantization* mode : modes()) {
    const int64_t size = models::group_size(mode->bits);
    const bool half = mode->model_dtype == DType::kFloat16;
    const auto group = [&](float first, float rest) {
      std::vector<float> values(static_cast<size_t>(size), rest);
      values[0] = first;
      return run(quantize_row, *mode, DType::kFloat32, pack(DType::kFloat32, values), size,
                 Rounding::kSearch);
    };
    for (const float zero : {0.0f, -0.0f}) {
      EXPECT_EQ(group(zero, zero).scale(0, mode->model_dtype), 0.0f) << mode->name;
      EXPECT_EQ(value(group(zero, zero), *mode, 3), 0.0f);
    }
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      EXPECT_FALSE(std::isfinite(group(bad, 1.0f).scale(0, mode->model_dtype))) << mode->name << " " << bad;
      EXPECT_FALSE(std::isfinite(group(1.0f, bad).scale(0, mode->model_dtype))) << mode->name << " " << bad;
    }
    if (half && mode->bits < 8) {
      EXPECT_FALSE(std::isfinite(group(65536.0f, 1.0f).scale(0, DType::kFloat16))) << mode->name;
    }
    // Whatever the size: within two steps of the scale, and where scales underflow, within what the smallest
    // one can tell apart.
    for (const float largest : {1e-45f, 1e-38f, 1e-12f, 0x1p-30f, 1e-8f, 6e-8f, 1e-7f, 5e-7f, 3e-6f, 1e-4f,
                                0x1p15f, 32769.0f, 60000.0f, 65504.0f, 0x1p30f, 2e9f, 1e30f, 3e38f}) {
      if (half && largest > 65504.0f) continue;
      for (const float sign : {1.0f, -1.0f}) {
        for (const float ratio : {1.0f, -1.0f, 0.3f, -0.04f}) {
          const float first = sign * largest, rest = first * ratio;
          const Row row = group(first, rest);
          const float scale = row.scale(0, mode->model_dtype);
          ASSERT_TRUE(std::isfinite(scale)) << mode->name << " " << first;
          const double step = std::max(std::abs(static_cast<double>(scale)), half ? 0x1p-24 : 0x1p-149);
          for (const int64_t i : {int64_t{0}, size - 1}) {
            const float back = value(row, *mode, i), expected = i == 0 ? first : rest;
            EXPECT_LE(std::abs(static_cast<double>(back) - expected),
                      (half ? 1 << (mode->bits - 1) : 2) * step)
                << mode->name << " " << first << " " << rest << " " << scale;
            if (half && largest <= 0x1p15f) {
              EXPECT_LE(std::abs(back), 65504.0f) << mode->name << " " << first;
            }
          }
        }
      }
    }
  }
}

TEST(Quantize, EightBitsStayWithinInt8) {
  const models::Quantization& mode = models::find_quantization("q8f16_1");
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(3200);
  for (float& value : values) value = normal(random);
  const Row row =
      run(quantize_row, mode, DType::kFloat32, pack(DType::kFloat32, values), 3200, Rounding::kSearch);
  int most = 0;
  for (int64_t i = 0; i < 3200; ++i) most = std::max(most, std::abs(quantized(row, mode, i)));
  EXPECT_EQ(most, 127);
  for (size_t g = 0; g < 100; ++g) EXPECT_GT(row.scale(g, DType::kFloat16), 0.0f);
}

TEST(Quantize, EightBitsAreBytesAroundTheZeroPoint) {
  const models::Quantization& mode = models::find_quantization("q8f16_1");
  std::vector<float> values(64, 0.0f);
  values[0] = 127.0f;
  values[1] = -127.0f;
  values[2] = 1.0f;
  values[3] = -2.5f;  // ties go to even
  const Row row = run(quantize_row, mode, DType::kFloat32, pack(DType::kFloat32, values), 64, Rounding::kMlc);
  EXPECT_EQ(row.words[0], 0x7c8000feu);
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(row.words[i], 0x7f7f7f7fu) << i;
  for (size_t i = 8; i < 16; ++i) EXPECT_EQ(row.words[i], 0u) << i;  // a group of zeros
  EXPECT_EQ(row.scale(0, DType::kFloat16), 1.0f);
  EXPECT_EQ(row.scale(1, DType::kFloat16), 0.0f);
}

// Every bit pattern of 16 bits, and random ones of 32, in random company: both implementations give the same
// bytes.
TEST(Quantize, EveryCpuLevelGivesTheSame) {
  std::mt19937 random(11);
  for (const DType source : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    std::vector<std::byte> values;
    constexpr int64_t kCols = 450;
    const int64_t rows = 300;
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
    for (const auto& [mode, rounding] : all_ways()) {
      const int64_t size = models::group_size(mode->bits);
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<std::byte> one(values.begin() + row * kCols * dtype_bytes(source),
                                         values.begin() + (row + 1) * kCols * dtype_bytes(source));
        const Row fast = run(quantize_row, *mode, source, one, kCols, rounding);
        const Row plain = run(portable::quantize_row, *mode, source, one, kCols, rounding);
        ASSERT_EQ(fast.words, plain.words) << mode->name << " " << dtype_name(source) << " row " << row;
        for (size_t g = 0; g < static_cast<size_t>((kCols + size - 1) / size); ++g) {
          const float a = fast.scale(g, mode->model_dtype), b = plain.scale(g, mode->model_dtype);
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
