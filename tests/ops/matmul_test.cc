// Products of every level against the plain implementation: odd sizes, extreme values, guarded memory, and
// the same bits whatever the number of rows.
#include "ops/reference/reference.h"
#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 39, 41, 48, 63, 65, 81, 100, 129};
constexpr Matrix::Type kQuantized[] = {Matrix::Type::kQ3, Matrix::Type::kQ4, Matrix::Type::kQ8};
constexpr Matrix::Type kTypes[] = {Matrix::Type::kF32,      Matrix::Type::kF16, Matrix::Type::kBF16,
                                   Matrix::Type::kQ3Stored, Matrix::Type::kQ3,  Matrix::Type::kQ4,
                                   Matrix::Type::kQ8};

OwnedMatrix random_matrix(Random& random, int64_t rows, int64_t cols, Matrix::Type type) {
  return Matrix{.type = type}.quantized() ? random_grouped(random, type, rows, cols)
                                          : random_dense(random, rows, cols, type);
}

// What rounding errors of a dot product are relative to: Σ |x| |w|.
double magnitude(const float* x, const Matrix& w, int64_t row) {
  std::vector<float> values(static_cast<size_t>(w.cols));
  reference_table().dequantize_row(w, row, 1.0f, values.data());
  double sum = 0;
  for (int64_t k = 0; k < w.cols; ++k)
    sum += std::fabs(static_cast<double>(x[k]) * values[static_cast<size_t>(k)]);
  return sum;
}

Guarded<float> product_int8(const KernelTable& table, const float* x, int64_t m, const Matrix& w) {
  const size_t stride = table.quantized_row_bytes(w.type, w.cols);
  Guarded<std::byte> rounded(stride * static_cast<size_t>(m));
  if (reinterpret_cast<uintptr_t>(rounded.data()) % 4 != 0) std::abort();
  for (int64_t i = 0; i < m; ++i)
    table.quantize_row(w.type, x + i * w.cols, w.cols, rounded.data() + static_cast<size_t>(i) * stride);
  Scratch scratch(table.matmul_int8_scratch(w.type, m, w.cols));
  Guarded<float> y(static_cast<size_t>(m * w.rows));
  table.matmul_int8(rounded.data(), m, w, 0, w.rows, y.data(), w.rows, scratch.data());
  return y;
}

Guarded<float> product_f32(const KernelTable& table, const float* x, int64_t m, const Matrix& w) {
  Scratch scratch(table.matmul_f32_scratch(m, w.cols));
  Guarded<float> y(static_cast<size_t>(m * w.rows));
  table.matmul_f32(x, m, w, 0, w.rows, y.data(), w.rows, scratch.data());
  return y;
}

// The plain implementation with the units of `table`.
const KernelTable& plain_for(const KernelTable& table) {
  static const KernelTable in_twos = [] {
    KernelTable out = reference_table();
    out.quantize_row = [](Matrix::Type type, const float* x, int64_t cols, void* to) {
      reference::quantize_row_in_units(type, x, cols, 2, to);
    };
    return out;
  }();
  return table.unit_groups == 2 ? in_twos : reference_table();
}

using Product = Guarded<float> (*)(const KernelTable&, const float*, int64_t, const Matrix&);

// Float additions over groups (int8) or columns (f32): the bound grows with their number.
void compare(const KernelTable& table, Product product, Random& random, int64_t m, const Matrix& w,
             float x_scale, const std::string& what) {
  const Guarded<float> x = random_floats(random, static_cast<size_t>(m * w.cols), x_scale);
  const Guarded<float> expected = product(plain_for(table), x.data(), m, w);
  const Guarded<float> actual = product(table, x.data(), m, w);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t r = 0; r < w.rows; ++r) {
      const size_t at = static_cast<size_t>(i * w.rows + r);
      expect_close(actual[at], expected[at], 2e-6, magnitude(x.data() + i * w.cols, w, r),
                   what + " m " + std::to_string(m) + " rows " + std::to_string(w.rows) + " cols " +
                       std::to_string(w.cols) + " at " + std::to_string(at));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

class MatmulTest : public LevelTest {};
INSTANTIATE_LEVELS(MatmulTest);

TEST_P(MatmulTest, Int8OddSizes) {
  Random random(1);
  for (const Matrix::Type type : kQuantized) {
    for (const DType scale_type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      for (const int64_t cols : kSizes) {
        for (const int64_t rows : {1, 3, 4, 5, 16, 17, 33}) {
          const OwnedMatrix w = random_grouped(random, type, rows, cols, scale_type);
          for (const int64_t m : {1, 2, 3, 6, 7, 13, 17})
            compare(table(), product_int8, random, m, w.matrix, 1.0f, "int8");
        }
      }
    }
  }
}

TEST_P(MatmulTest, Int8LongRows) {
  Random random(2);
  for (const Matrix::Type type : kQuantized) {
    for (const int64_t cols : {640, 1000, 2048, 2080}) {
      const OwnedMatrix w = random_grouped(random, type, 37, cols);
      for (const int64_t m : {1, 9, 64}) compare(table(), product_int8, random, m, w.matrix, 3.0f, "int8");
    }
  }
}

TEST_P(MatmulTest, F32OddSizes) {
  Random random(3);
  for (const Matrix::Type type : kTypes) {
    for (const int64_t cols : kSizes) {
      for (const int64_t rows : {1, 3, 4, 5, 16, 17, 33}) {
        const OwnedMatrix w = random_matrix(random, rows, cols, type);
        for (const int64_t m : {1, 2, 3, 5, 7})
          compare(table(), product_f32, random, m, w.matrix, 1.0f, "f32");
      }
    }
  }
}

TEST_P(MatmulTest, F32ColumnsOfSeveralBlocks) {
  Random random(4);
  for (const Matrix::Type type : kTypes) {
    for (const int64_t cols : {639, 640, 641, 1279, 1281, 2000}) {
      const OwnedMatrix w = random_matrix(random, 18, cols, type);
      for (const int64_t m : {1, 3, 97}) compare(table(), product_f32, random, m, w.matrix, 1.0f, "f32");
    }
  }
}

// More rows than are packed at once, with the number of columns that makes those as many as they can be and
// with one that makes them few.
TEST_P(MatmulTest, F32RowsOfSeveralChunks) {
  Random random(14);
  const struct {
    int64_t m, rows, cols;
  } shapes[] = {{239, 17, 40}, {240, 17, 40}, {241, 17, 40}, {481, 5, 3}, {25, 3, 12000}, {50, 3, 12000}};
  for (const Matrix::Type type : {Matrix::Type::kF16, Matrix::Type::kQ3, Matrix::Type::kQ4}) {
    for (const auto& shape : shapes) {
      const OwnedMatrix w = random_matrix(random, shape.rows, shape.cols, type);
      compare(table(), product_f32, random, shape.m, w.matrix, 1.0f, "f32");
    }
  }
}

// Weights that lie at an odd multiple of two bytes, as in a shard.
TEST_P(MatmulTest, UnalignedWeights) {
  Random random(5);
  for (const Matrix::Type type : kQuantized) {
    OwnedMatrix w = random_grouped(random, type, 9, 96);
    const Guarded<float> x = random_floats(random, 5 * 96);
    const Guarded<float> expected = product_int8(table(), x.data(), 5, w.matrix);
    Guarded<uint8_t> data(w.data.size() + 2, true), scales(w.scales.size() + 2, true);
    std::memcpy(data.data() + 2, w.data.data(), w.data.size());
    std::memcpy(scales.data() + 2, w.scales.data(), w.scales.size());
    w.matrix.data = data.data() + 2;
    w.matrix.scales = scales.data() + 2;
    expect_same_bits(product_int8(table(), x.data(), 5, w.matrix), expected, expected.size(), "unaligned");
  }
}

// The product of a row must not depend on how many rows come with it, nor on how the weight rows are cut.
void expect_same_rows(const KernelTable& table, Product product, const Matrix& w, int64_t most,
                      Random& random) {
  const Guarded<float> x = random_floats(random, static_cast<size_t>(most * w.cols));
  std::vector<float> alone(static_cast<size_t>(most * w.rows));
  for (int64_t i = 0; i < most; ++i) {
    const Guarded<float> y = product(table, x.data() + i * w.cols, 1, w);
    std::memcpy(alone.data() + i * w.rows, y.data(), static_cast<size_t>(w.rows) * sizeof(float));
  }
  for (int64_t m = 2; m <= most; ++m) {
    expect_same_bits(product(table, x.data(), m, w), alone, static_cast<size_t>(m * w.rows),
                     "m " + std::to_string(m));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(MatmulTest, Int8SameBitsForAnyNumberOfRows) {
  Random random(6);
  for (const Matrix::Type type : kQuantized) {
    for (const int64_t cols : {32, 160, 224, 333}) {
      const OwnedMatrix w = random_grouped(random, type, 45, cols);
      expect_same_rows(table(), product_int8, w.matrix, 70, random);
    }
    // Several second terms in every row.
    const OwnedMatrix w = random_grouped(random, type, 35, 2730);
    expect_same_rows(table(), product_int8, w.matrix, 14, random);
  }
}

TEST_P(MatmulTest, F32SameBitsForAnyNumberOfRows) {
  Random random(7);
  for (const Matrix::Type type : kTypes) {
    for (const int64_t cols : {65, 600, 1300}) {
      const OwnedMatrix w = random_matrix(random, 21, cols, type);
      expect_same_rows(table(), product_f32, w.matrix, 70, random);
    }
  }
}

TEST_P(MatmulTest, SameBitsForAnyCutOfTheRows) {
  Random random(8);
  const int64_t cols = 230, m = 9;
  for (const Matrix::Type type : kTypes) {
    const OwnedMatrix w = random_matrix(random, 50, cols, type);
    const Guarded<float> x = random_floats(random, static_cast<size_t>(m * cols));
    const Guarded<float> f32 = product_f32(table(), x.data(), m, w.matrix);
    Scratch scratch(table().matmul_f32_scratch(m, cols));
    for (const int64_t cut : {1, 3, 17, 32, 49}) {
      Guarded<float> y(f32.size());
      table().matmul_f32(x.data(), m, w.matrix, 0, cut, y.data(), 50, scratch.data());
      table().matmul_f32(x.data(), m, w.matrix, cut, 50, y.data(), 50, scratch.data());
      expect_same_bits(y, f32, f32.size(), "f32 cut " + std::to_string(cut));
    }
  }
}

TEST_P(MatmulTest, Int8SameBitsForAnyCutOfTheRows) {
  Random random(15);
  const int64_t cols = 2730;
  for (const Matrix::Type type : kQuantized) {
    const OwnedMatrix w = random_grouped(random, type, 50, cols);
    const size_t stride = table().quantized_row_bytes(type, cols);
    for (const int64_t m : {1, 9, 15}) {
      const Guarded<float> x = random_floats(random, static_cast<size_t>(m * cols));
      const Guarded<float> whole = product_int8(table(), x.data(), m, w.matrix);
      std::vector<std::byte> rounded(stride * static_cast<size_t>(m));
      for (int64_t i = 0; i < m; ++i)
        table().quantize_row(type, x.data() + i * cols, cols,
                             rounded.data() + static_cast<size_t>(i) * stride);
      Scratch scratch(table().matmul_int8_scratch(type, m, cols));
      for (const int64_t cut : {1, 3, 17, 32, 49}) {
        Guarded<float> y(whole.size());
        table().matmul_int8(rounded.data(), m, w.matrix, 0, cut, y.data(), 50, scratch.data());
        table().matmul_int8(rounded.data(), m, w.matrix, cut, 50, y.data(), 50, scratch.data());
        expect_same_bits(y, whole, whole.size(), "m " + std::to_string(m) + " cut " + std::to_string(cut));
      }
    }
  }
}

// Sums at the limits of int16 and int8: all weights at an end of their range, or by turns, and all
// activations too.
TEST_P(MatmulTest, Int8ExtremeOperands) {
  const int64_t cols = 200, rows = 20;
  for (const Matrix::Type type : kQuantized) {
    const Grouping group = grouping(type);
    const int64_t groups = (cols + group.size - 1) / group.size;
    for (const uint8_t fill : {0x00, 0xff, 0xf0, 0x0f, 0xaa}) {
      Guarded<uint8_t> data(static_cast<size_t>(rows * groups * group.bytes()));
      std::memset(data.data(), fill, data.size());
      for (const float scale : {1.0f, -1.0f, 0.0f, 5.9604645e-8f, 65504.0f, -65504.0f}) {
        Guarded<uint8_t> scales(static_cast<size_t>(rows * groups * 2));
        for (size_t i = 0; i < scales.size(); i += 2) put_number(scales.data() + i, DType::kFloat16, scale);
        const Matrix w{type, DType::kFloat16, data.data(), scales.data(), rows, cols};
        for (const float x_size : {127.0f, -127.0f, 1e30f, -1e30f, 1e-37f, 1e-45f, -0.0f}) {
          for (const int64_t m : {1, 15}) {
            Guarded<float> x(static_cast<size_t>(m * cols));
            for (size_t i = 0; i < x.size(); ++i) x[i] = x_size;
            const Guarded<float> expected = product_int8(plain_for(table()), x.data(), m, w);
            const Guarded<float> actual = product_int8(table(), x.data(), m, w);
            for (size_t i = 0; i < actual.size(); ++i) {
              expect_close(actual[i], expected[i], 1e-6, std::fabs(expected[i]),
                           "bits " + std::to_string(group.bits) + " fill " + std::to_string(fill));
              ASSERT_FALSE(HasFatalFailure()) << "scale " << scale << " x " << x_size << " m " << m;
            }
          }
        }
      }
    }
  }
}

// One activation that is not finite must show in every output of its row, and in no other row.
TEST_P(MatmulTest, NonFiniteActivationsPropagate) {
  Random random(9);
  const int64_t cols = 100, rows = 35;
  for (const Matrix::Type type : kQuantized) {
    const OwnedMatrix w = random_grouped(random, type, rows, cols);
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      for (const int64_t m : {1, 2, 16}) {
        for (const int64_t place : {0, 31, 32, 99}) {
          Guarded<float> x = random_floats(random, static_cast<size_t>(m * cols));
          x[static_cast<size_t>((m - 1) * cols + place)] = bad;
          for (const Product product : {product_int8, product_f32}) {
            const Guarded<float> y = product(table(), x.data(), m, w.matrix);
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t r = 0; r < rows; ++r) {
                const float value = y[static_cast<size_t>(i * rows + r)];
                ASSERT_EQ(std::isfinite(value), i != m - 1) << "x " << bad << " row " << i << " column " << r;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, NonFiniteScalesPropagate) {
  Random random(10);
  for (const Matrix::Type type : kQuantized) {
    OwnedMatrix w = random_grouped(random, type, 8, 96);  // three groups
    put_number(w.scales.data() + (3 * 3 + 1) * 2, DType::kFloat16, std::nanf(""));
    const Guarded<float> x = random_floats(random, 15 * 96);
    for (const int64_t m : {1, 15}) {
      const Guarded<float> y = product_int8(table(), x.data(), m, w.matrix);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i % 8 == 3) << i;
    }
  }
}

// Rounding is exact arithmetic: every level must give the numbers of the plain implementation, seen through a
// product with a unit vector.
TEST_P(MatmulTest, RoundsActivationsAsThePlainImplementation) {
  Random random(11);
  const int64_t cols = 96;
  for (const Matrix::Type type : kQuantized) {
    const OwnedMatrix w = random_grouped(random, type, 64, cols, DType::kFloat32);
    for (const float size : {1e-38f, 1e-20f, 1.0f, 300.0f, 1e30f}) {
      const Guarded<float> x = random_floats(random, static_cast<size_t>(cols), size);
      const Guarded<float> expected = product_int8(plain_for(table()), x.data(), 1, w.matrix);
      const Guarded<float> actual = product_int8(table(), x.data(), 1, w.matrix);
      for (size_t i = 0; i < 64; ++i) {
        expect_close(actual[i], expected[i], 1e-6, magnitude(x.data(), w.matrix, static_cast<int64_t>(i)),
                     "rounded");
      }
    }
  }
}

TEST_P(MatmulTest, DequantizesRowsExactly) {
  Random random(12);
  for (const Matrix::Type type : kTypes) {
    for (const int64_t cols : {1, 31, 33, 48, 129, 319, 321, 400}) {
      const OwnedMatrix w = random_matrix(random, 3, cols, type);
      for (int64_t row = 0; row < 3; ++row) {
        Guarded<float> expected(static_cast<size_t>(cols)), actual(static_cast<size_t>(cols));
        reference_table().dequantize_row(w.matrix, row, 1.7f, expected.data());
        table().dequantize_row(w.matrix, row, 1.7f, actual.data());
        expect_same_bits(actual, expected, expected.size(), "row");
      }
    }
  }
}

// SIMDe stands in for the instructions bit by bit.
TEST(MatmulSimde, SameBitsAsAvx512) {
  if (!cpu_supports(Level::kAvx512)) GTEST_SKIP() << "this CPU has no AVX-512";
  Random random(13);
  for (const Matrix::Type type : kQuantized) {
    const OwnedMatrix w = random_grouped(random, type, 33, 300);
    const Guarded<float> x = random_floats(random, 17 * 300);
    for (const Product product : {product_int8, product_f32}) {
      for (const int64_t m : {1, 17}) {
        const Guarded<float> native = product(dovetail_ops_table_avx512, x.data(), m, w.matrix);
        expect_same_bits(product(dovetail_ops_table_avx512_simde, x.data(), m, w.matrix), native,
                         native.size(), "SIMDe");
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::ops
