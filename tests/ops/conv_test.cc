// The operations of the audio tower.
#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

class AudioKernelTest : public LevelTest {};
INSTANTIATE_LEVELS(AudioKernelTest);

TEST_P(AudioKernelTest, LocalRelativeAttention) {
  Random random(1);
  for (const int64_t dim : {1, 8, 24, 128}) {
    for (const int64_t window : {1, 5, 13, 40}) {
      for (const float softcap : {0.0f, 50.0f}) {
        const int64_t m = 30, heads = 2;
        const size_t count = static_cast<size_t>(m * heads * dim);
        const Guarded<float> q = random_floats(random, count), k = random_floats(random, count);
        const Guarded<float> v = random_floats(random, count);
        const Guarded<float> relative =
            random_floats(random, static_cast<size_t>((window + 1) * heads * dim));
        Guarded<float> expected(count), actual(count);
        Scratch scratch(static_cast<size_t>(window + 16) * sizeof(float));
        LocalAttention args{q.data(), k.data(), v.data(), relative.data(), expected.data(),
                            heads,    dim,      window,   softcap};
        reference_table().local_relative_attention(args, 0, m, scratch.data());
        args.out = actual.data();
        table().local_relative_attention(args, 0, 11, scratch.data());
        table().local_relative_attention(args, 11, m, scratch.data());
        for (size_t i = 0; i < count; ++i) expect_close(actual[i], expected[i], 2e-5, 1.0, "local attention");
      }
    }
  }
}

TEST_P(AudioKernelTest, DepthwiseConvolution) {
  Random random(2);
  for (const int64_t n : {1, 15, 16, 33, 100}) {
    for (const int64_t taps : {1, 5, 9}) {
      const int64_t m = 12;
      const Guarded<float> x = random_floats(random, static_cast<size_t>(m * n));
      const Guarded<float> weight = random_floats(random, static_cast<size_t>(n * taps));
      Guarded<float> expected(x.size()), actual(x.size());
      reference_table().depthwise_causal_conv(x.data(), 0, m, n, weight.data(), taps, expected.data());
      table().depthwise_causal_conv(x.data(), 0, 4, n, weight.data(), taps, actual.data());
      table().depthwise_causal_conv(x.data(), 4, m, n, weight.data(), taps, actual.data());
      for (size_t i = 0; i < x.size(); ++i) expect_close(actual[i], expected[i], 1e-5, 1.0, "depthwise");
    }
  }
}

TEST(Convolution, TakesTheNeighbourhoodWithZerosOutside) {
  // One channel, 3 x 2 points; the kernel counts in powers of ten, so each digit of the result is one point.
  Context context(Level::kReference, 1);
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float kernel[9];
  for (int i = 0; i < 9; ++i) kernel[i] = std::pow(10.0f, static_cast<float>(8 - i));
  const Matrix w{Matrix::Type::kF32, DType::kFloat32, kernel, nullptr, 1, 9};
  float y[2];
  conv3x3_stride2(context, x, 3, 2, 1, w, y);
  EXPECT_EQ(y[0], 12034.0f);     // rows -1, 0, 1; columns -1, 0, 1
  EXPECT_EQ(y[1], 34056000.0f);  // rows 1, 2, 3
}

TEST(Convolution, EveryLevelAndChannelOrder) {
  Random random(3);
  for (const Level level : built_levels()) {
    if (!cpu_supports(level)) continue;
    for (const auto& [h, w, in, out] : {std::array<int64_t, 4>{1, 1, 1, 1}, {7, 9, 3, 5}, {20, 16, 8, 33}}) {
      const OwnedMatrix weight = random_dense(random, out, in * 9, Matrix::Type::kF32);
      const Guarded<float> x = random_floats(random, static_cast<size_t>(h * w * in));
      const size_t outputs = static_cast<size_t>((h + 1) / 2 * ((w + 1) / 2) * out);
      Guarded<float> expected(outputs), actual(outputs);
      Context plain(Level::kReference, 1), tested(level, 2);
      conv3x3_stride2(plain, x.data(), h, w, in, weight.matrix, expected.data());
      conv3x3_stride2(tested, x.data(), h, w, in, weight.matrix, actual.data());
      for (size_t i = 0; i < outputs; ++i) expect_close(actual[i], expected[i], 1e-5, 1.0, "convolution");
    }
  }
}

}  // namespace
}  // namespace dovetail::ops
