// The plain implementation against values worked out by hand.
#include "ops/reference/reference.h"

#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

TEST(Reference, ReadsNibblesLowFirstAndTakesOffTheZeroPoint) {
  // Word 0x76543210: element i of the first eight is i; the other words are zero, elements of -7.
  const uint32_t words[4] = {0x76543210u, 0, 0, 0xfu << 28};
  const uint16_t scale = f32_to_f16(0.5f);
  const Matrix w{Matrix::Type::kQ4, DType::kFloat16, words, &scale, 1, 32};
  EXPECT_EQ(reference::element(w, 0, 0), -3.5f);
  EXPECT_EQ(reference::element(w, 0, 7), 0.0f);
  EXPECT_EQ(reference::element(w, 0, 8), -3.5f);
  EXPECT_EQ(reference::element(w, 0, 31), 4.0f);
}

TEST(Reference, ReadsThreeAndEightBits) {
  // Ten values of three bits in a word, 40 in a group; element i of the first word is i mod 8, less 3.
  uint32_t words[8] = {0, 0, 0, 6u << 27, 0, 0, 0, 0};
  for (uint32_t i = 0; i < 10; ++i) words[0] |= (i % 8) << (3 * i);
  words[4] = 5;
  const uint16_t scales[2] = {f32_to_f16(0.5f), f32_to_f16(2.0f)};
  const Matrix three{Matrix::Type::kQ3Stored, DType::kFloat16, words, scales, 1, 80};
  EXPECT_EQ(reference::element(three, 0, 0), -1.5f);
  EXPECT_EQ(reference::element(three, 0, 7), 2.0f);
  EXPECT_EQ(reference::element(three, 0, 9), -1.0f);
  EXPECT_EQ(reference::element(three, 0, 10), -1.5f);
  EXPECT_EQ(reference::element(three, 0, 39), 1.5f);
  EXPECT_EQ(reference::element(three, 0, 40), 4.0f);

  const uint32_t bytes[8] = {0xfe7f0080u, 0, 0, 0, 0, 0, 0, 0xffu << 24};
  const Matrix eight{Matrix::Type::kQ8, DType::kFloat16, bytes, scales, 1, 32};
  EXPECT_EQ(reference::element(eight, 0, 0), 0.5f);
  EXPECT_EQ(reference::element(eight, 0, 1), -63.5f);
  EXPECT_EQ(reference::element(eight, 0, 2), 0.0f);
  EXPECT_EQ(reference::element(eight, 0, 3), 63.5f);
  EXPECT_EQ(reference::element(eight, 0, 31), 64.0f);
}

// Rearranging moves bits only: every value stays what it is, whatever the words hold.
TEST(Reference, RearrangedThreeBitsAreTheSameValues) {
  Random random(3);
  uint32_t stored[400], rearranged[400];
  for (uint32_t& word : stored) word = static_cast<uint32_t>(random()) & 0x3fffffffu;
  rearrange_q3(stored, 100, rearranged);
  std::vector<uint16_t> scales(100, f32_to_f16(1.0f));
  const Matrix a{Matrix::Type::kQ3Stored, DType::kFloat16, stored, scales.data(), 4, 1000};
  const Matrix b{Matrix::Type::kQ3, DType::kFloat16, rearranged, scales.data(), 4, 1000};
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t col = 0; col < 1000; ++col)
      ASSERT_EQ(reference::element(a, row, col), reference::element(b, row, col)) << row << " " << col;
  }
  EXPECT_EQ(rearranged[0] & 0x80800000u, 0u);  // the two bits that nothing needs
  rearrange_q3(stored, 100, stored);
  EXPECT_EQ(std::memcmp(stored, rearranged, sizeof stored), 0);
}

TEST(Reference, RoundsActivationsPerGroupToEven) {
  std::vector<float> x(130, 0.0f);
  x[0] = 254.0f;  // scale 2
  x[1] = 3.0f;    // 1.5 → 2
  x[2] = 1.0f;    // 0.5 → 0
  x[3] = -3.0f;
  x[32] = -1.0f;     // second group: scale 1 / 127
  x[33] = 0.3f;      // 38.1 → 38
  x[128] = 2540.0f;  // second unit, which loses most: scale 20
  x[129] = 6.0f;     // 0.3 → 0, and then exactly
  std::vector<double> out(130);
  ASSERT_EQ(reference::quantized_row_bytes(Matrix::Type::kQ4, 130), out.size() * sizeof(double));
  reference::quantize_row(Matrix::Type::kQ4, x.data(), 130, out.data());
  EXPECT_EQ(out[0], 254.0);
  EXPECT_EQ(out[1], 4.0);
  EXPECT_EQ(out[2], 0.0);
  EXPECT_EQ(out[3], -4.0);
  EXPECT_FLOAT_EQ(static_cast<float>(out[32]), -1.0f);
  EXPECT_FLOAT_EQ(static_cast<float>(out[33]), 38.0f / 127.0f);
  EXPECT_EQ(out[34], 0.0);
  EXPECT_EQ(out[128], 2540.0);
  EXPECT_FLOAT_EQ(static_cast<float>(out[129]), 6.0f);
}

// Of 16 units one, of 17 two: the last unit is alone and has its own.
TEST(Reference, OneUnitOfSixteenHasASecondTerm) {
  constexpr int64_t kUnit = 4 * 40;
  for (const int64_t units : {16, 17}) {
    std::vector<float> x(static_cast<size_t>(units * kUnit));
    for (int64_t unit = 0; unit < units; ++unit) {
      x[static_cast<size_t>(unit * kUnit)] = 127.0f;
      x[static_cast<size_t>(unit * kUnit + 1)] = unit == 5 ? 0.5f : 0.375f;
    }
    std::vector<double> out(x.size());
    reference::quantize_row(Matrix::Type::kQ3, x.data(), units * kUnit, out.data());
    for (int64_t unit = 0; unit < units; ++unit) {
      const float value = static_cast<float>(out[static_cast<size_t>(unit * kUnit + 1)]);
      EXPECT_FLOAT_EQ(value, unit == 5 ? 0.5f : unit == 16 ? 0.375f : 0.0f) << unit << " of " << units;
    }
  }
}

TEST(Reference, Products) {
  const uint32_t words[4] = {0x98u, 0, 0, 0};  // elements 1 and 2, then -7
  const uint16_t scale = f32_to_f16(0.25f);
  const Matrix w{Matrix::Type::kQ4, DType::kFloat16, words, &scale, 1, 2};
  const float x[2] = {127.0f, -127.0f};
  float y = 0;
  reference::matmul_f32(x, 1, w, 0, 1, &y, 1, nullptr);
  EXPECT_EQ(y, -31.75f);
  std::vector<std::byte> rounded(reference::quantized_row_bytes(Matrix::Type::kQ4, 2));
  reference::quantize_row(Matrix::Type::kQ4, x, 2, rounded.data());
  y = 0;
  reference::matmul_int8(rounded.data(), 1, w, 0, 1, &y, 1, nullptr);
  EXPECT_EQ(y, -31.75f);
}

TEST(Reference, Norms) {
  const float x[2] = {3.0f, 4.0f}, weight[2] = {1.0f, 2.0f}, bias[2] = {0.5f, 0.5f};
  float y[2];
  reference::rms_norm(x, 1, 2, weight, 0.0f, y);
  EXPECT_FLOAT_EQ(y[0], 3.0f / std::sqrt(12.5f));
  EXPECT_FLOAT_EQ(y[1], 8.0f / std::sqrt(12.5f));
  reference::layer_norm(x, 1, 2, weight, bias, 0.0f, y);
  EXPECT_FLOAT_EQ(y[0], -0.5f);
  EXPECT_FLOAT_EQ(y[1], 2.5f);
}

TEST(Reference, ActivationsAndRotation) {
  const float gate_up[2] = {1.0f, 2.0f};
  float out;
  reference::gelu_tanh_gate(gate_up, 1, 1, &out);
  EXPECT_NEAR(out, 2 * 0.841192, 1e-6);
  reference::glu(gate_up, 1, 1, &out);
  EXPECT_NEAR(out, 0.880797, 1e-6);
  float x = 1.0f;
  reference::silu(&x, 1);
  EXPECT_NEAR(x, 0.731059, 1e-6);
  x = 100.0f;
  reference::softcap(&x, 30.0f, 1);
  EXPECT_NEAR(x, 30 * std::tanh(100.0 / 30), 1e-5);

  // A quarter turn takes the first half to the second.
  float v[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  const float cos[2] = {0.0f, 1.0f}, sin[2] = {1.0f, 0.0f};
  reference::rope(v, 1, 1, 4, cos, sin);
  EXPECT_EQ(v[0], -3.0f);
  EXPECT_EQ(v[2], 1.0f);
  EXPECT_EQ(v[1], 2.0f);
  EXPECT_EQ(v[3], 4.0f);
}

TEST(Reference, AttentionWeighsTheValuesItSees) {
  std::vector<float> keys(16), values(16);
  const int32_t page = 0;
  const KvPages kv{DType::kFloat32, keys.data(), values.data(), &page, 1, 1};
  const float k[3] = {9.0f, 0.0f, 1.0f}, v[3] = {100.0f, 1.0f, 2.0f};
  reference::store_kv(k, v, 3, 0, kv);
  const float q = 2.0f;
  const int32_t begin = 1, end = 3;
  float out = 0;
  const AttentionTile tile{&q, &out, 1, &begin, &end, 0.5f, 0.0f, 0, 1, 0, 1, 0};
  reference::attention(tile, kv, nullptr);
  EXPECT_NEAR(out, (1 + 2 * std::exp(1.0)) / (1 + std::exp(1.0)), 1e-6);
}

TEST(Reference, LocalAttentionAddsThePositionToTheKey) {
  const float q[2] = {1.0f, 1.0f}, k[2] = {0.5f, 0.0f}, v[2] = {1.0f, 3.0f};
  const float relative[3] = {100.0f, 0.25f, 0.0f};  // distances 2 (outside), 1, 0
  float out[2], scratch[32];
  const LocalAttention args{q, k, v, relative, out, 1, 1, 2, 0.0f};
  reference::local_relative_attention(args, 0, 2, scratch);
  EXPECT_EQ(out[0], 1.0f);
  const double older = std::exp(0.75), newer = 1.0;
  EXPECT_NEAR(out[1], (older + 3 * newer) / (older + newer), 1e-6);
}

TEST(Reference, DepthwiseConvolutionIsCausal) {
  const float x[3] = {1.0f, 2.0f, 3.0f}, weight[2] = {10.0f, 1.0f};
  float y[3];
  reference::depthwise_causal_conv(x, 0, 3, 1, weight, 2, y);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 12.0f);
  EXPECT_EQ(y[2], 23.0f);
}

}  // namespace
}  // namespace dovetail::ops
