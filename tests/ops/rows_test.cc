// Norms, activations and rotation of every level against the plain implementation.
#include <functional>

#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 65, 100, 129, 640};

class RowsTest : public LevelTest {
 protected:
  // Runs `call` with both tables on copies of `input` and compares; tolerance is relative to max(1,
  // |expected|) * unit.
  void compare(const Guarded<float>& input, size_t outputs, double tolerance, double unit,
               const std::string& what,
               const std::function<void(const KernelTable&, float* in, float* out)>& call) {
    Guarded<float> expected_in = Guarded<float>::copy(input), actual_in = Guarded<float>::copy(input);
    Guarded<float> expected(outputs), actual(outputs);
    call(reference_table(), expected_in.data(), expected.data());
    call(table(), actual_in.data(), actual.data());
    for (size_t i = 0; i < outputs; ++i) {
      expect_close(actual[i], expected[i], tolerance,
                   std::max(unit, std::fabs(static_cast<double>(expected[i]))),
                   what + " element " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
    // What was changed in place.
    for (size_t i = 0; i < input.size(); ++i) {
      expect_close(actual_in[i], expected_in[i], tolerance,
                   std::max(unit, std::fabs(static_cast<double>(expected_in[i]))),
                   what + " in place " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
  Random random_{42};
};
INSTANTIATE_LEVELS(RowsTest);

TEST_P(RowsTest, Norms) {
  for (const int64_t n : kSizes) {
    for (const int64_t m : {1, 3}) {
      const size_t count = static_cast<size_t>(m * n);
      const Guarded<float> x = random_floats(random_, count, 20.0f);
      const Guarded<float> weight = random_floats(random_, static_cast<size_t>(n));
      const Guarded<float> bias = random_floats(random_, static_cast<size_t>(n));
      compare(x, count, 2e-6, 1, "rms_norm", [&](const KernelTable& t, float* in, float* out) {
        t.rms_norm(in, m, n, weight.data(), 1e-6f, out);
      });
      compare(x, count, 2e-6, 1, "rms_norm without weight in place",
              [&](const KernelTable& t, float* in, float* out) {
                t.rms_norm(in, m, n, nullptr, 1e-6f, in);
                std::memcpy(out, in, count * sizeof(float));
              });
      // A row of one element is all mean: what is left is rounding error over sqrt(eps).
      if (n > 2) {
        compare(x, count, 1e-5, 1, "layer_norm", [&](const KernelTable& t, float* in, float* out) {
          t.layer_norm(in, m, n, weight.data(), bias.data(), 1e-6f, out);
        });
        compare(x, count, 1e-5, 1, "layer_norm without bias",
                [&](const KernelTable& t, float* in, float* out) {
                  t.layer_norm(in, m, n, weight.data(), nullptr, 1e-6f, in);
                  std::memcpy(out, in, count * sizeof(float));
                });
      }
    }
  }
}

// Values across the whole range, dense around zero, with the special ones.
Guarded<float> sweep(bool special) {
  std::vector<float> values;
  for (int i = -4000; i <= 4000; ++i) values.push_back(static_cast<float>(i) * 0.00517f);
  for (int exponent = -140; exponent <= 30; ++exponent) {
    values.push_back(std::ldexp(1.1f, exponent));
    values.push_back(std::ldexp(-1.1f, exponent));
  }
  if (special) {
    for (const float v :
         {0.0f, -0.0f, 87.0f, 88.7f, 89.0f, 104.0f, -87.4f, -104.0f, 1e30f, -1e30f, std::nanf("")}) {
      values.push_back(v);
    }
  }
  return Guarded<float>::copy(values);
}

TEST_P(RowsTest, ActivationsOverTheWholeRange) {
  const Guarded<float> x = sweep(true);
  const int64_t count = static_cast<int64_t>(x.size());
  // Relative to the result; gelu and silu of large negative numbers come from exp of a rounded argument.
  compare(x, 0, 2e-6, 1e-3, "silu", [&](const KernelTable& t, float* in, float*) { t.silu(in, count); });
  compare(x, 0, 3e-7, 1e-6, "softcap",
          [&](const KernelTable& t, float* in, float*) { t.softcap(in, 1.0f, count); });
  compare(x, 0, 3e-7, 1e-6, "softcap 30",
          [&](const KernelTable& t, float* in, float*) { t.softcap(in, 30.0f, count); });
  Guarded<float> ones(x.size());
  for (size_t i = 0; i < ones.size(); ++i) ones[i] = 1.0f;
  compare(x, 0, 1e-6, 1, "gelu_tanh_mul", [&](const KernelTable& t, float* in, float*) {
    t.gelu_tanh_mul(in, 1, count, ones.data(), count);
  });
}

TEST_P(RowsTest, GatesOfOddSizes) {
  for (const int64_t n : kSizes) {
    const int64_t m = 3;
    const Guarded<float> x = random_floats(random_, static_cast<size_t>(2 * m * n), 3.0f);
    const size_t outputs = static_cast<size_t>(m * n);
    compare(x, outputs, 1e-6, 1, "gelu_tanh_gate",
            [&](const KernelTable& t, float* in, float* out) { t.gelu_tanh_gate(in, m, n, out); });
    compare(x, outputs, 1e-6, 1, "glu",
            [&](const KernelTable& t, float* in, float* out) { t.glu(in, m, n, out); });
    const Guarded<float> other = random_floats(random_, static_cast<size_t>((m - 1) * (n + 5) + n));
    compare(random_floats(random_, outputs), 0, 1e-6, 1, "gelu_tanh_mul",
            [&](const KernelTable& t, float* in, float*) { t.gelu_tanh_mul(in, m, n, other.data(), n + 5); });
  }
}

TEST_P(RowsTest, ExactElementwise) {
  for (const int64_t n : kSizes) {
    const size_t count = static_cast<size_t>(n);
    Guarded<float> x = random_floats(random_, count, 3.0f);
    x[count / 2] = std::nanf("");
    const Guarded<float> other = random_floats(random_, count);
    compare(x, 0, 0, 1, "add_scaled",
            [&](const KernelTable& t, float* in, float*) { t.add_scaled(other.data(), 0.3f, in, n); });
    compare(x, 0, 0, 1, "scale", [&](const KernelTable& t, float* in, float*) { t.scale(in, 0.3f, n); });
    compare(x, 0, 0, 1, "clamp",
            [&](const KernelTable& t, float* in, float*) { t.clamp(in, -1.0f, 2.0f, n); });
  }
}

TEST_P(RowsTest, Rope) {
  for (const int64_t dim : {2, 6, 24, 32, 64, 256}) {
    for (const int64_t heads : {1, 3}) {
      const int64_t m = 4;
      const Guarded<float> cos = random_floats(random_, static_cast<size_t>(m * dim / 2));
      const Guarded<float> sin = random_floats(random_, static_cast<size_t>(m * dim / 2));
      compare(random_floats(random_, static_cast<size_t>(m * heads * dim)), 0, 1e-6, 1, "rope",
              [&](const KernelTable& t, float* in, float*) {
                t.rope(in, m, heads, dim, cos.data(), sin.data());
              });
    }
  }
}

TEST_P(RowsTest, NaNShowsInItsRow) {
  const int64_t n = 37;
  Guarded<float> x = random_floats(random_, static_cast<size_t>(2 * n));
  x[5] = std::nanf("");
  const Guarded<float> weight = random_floats(random_, static_cast<size_t>(n));
  Guarded<float> y(static_cast<size_t>(2 * n));
  table().rms_norm(x.data(), 2, n, weight.data(), 1e-6f, y.data());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i < static_cast<size_t>(n));
  table().layer_norm(x.data(), 2, n, weight.data(), nullptr, 1e-6f, y.data());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i < static_cast<size_t>(n));
}

TEST(RopeTables, RoundsTheAngleToFloat) {
  const std::vector<int32_t> positions = {0, 1, 131071};
  const std::vector<float> frequencies = {1.0f, 0.1f, 1e-4f};
  std::vector<float> cos(9), sin(9);
  rope_tables(positions, frequencies, cos.data(), sin.data());
  EXPECT_EQ(cos[0], 1.0f);
  EXPECT_EQ(sin[0], 0.0f);
  const float angle = 131071.0f * 0.1f;
  EXPECT_FLOAT_EQ(cos[7], static_cast<float>(std::cos(static_cast<double>(angle))));
  EXPECT_FLOAT_EQ(sin[7], static_cast<float>(std::sin(static_cast<double>(angle))));
}

}  // namespace
}  // namespace dovetail::ops
