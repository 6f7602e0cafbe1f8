// Whole operations: the same bits for any number of threads, on every level.
#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

// One of everything that is large enough to be split.
std::vector<float> run_all(Context& context) {
  Random random(1);
  const int64_t m = 70, k = 300, n = 515;
  const OwnedMatrix a = random_grouped(random, Matrix::Type::kQ4, n, k),
                    b = random_grouped(random, Matrix::Type::kQ8, 77, k),
                    c = random_grouped(random, Matrix::Type::kQ8, n, k);
  const OwnedMatrix dense = random_dense(random, n, k, Matrix::Type::kF16);
  const Guarded<float> x = random_floats(random, static_cast<size_t>(m * k));
  std::vector<float> all;
  auto keep = [&](const std::vector<float>& values) { all.insert(all.end(), values.begin(), values.end()); };

  for (const int64_t rows : {int64_t{1}, int64_t{2}, m}) {
    std::vector<float> y(static_cast<size_t>(rows * n)), z(static_cast<size_t>(rows * 77));
    for (const Precision precision : {Precision::kInt8, Precision::kExact}) {
      context.precision = precision;
      const Product products[] = {{&a.matrix, y.data()}, {&b.matrix, z.data()}};
      matmul(context, x.data(), rows, products);
      keep(y);
      keep(z);
      const Product alike[] = {{&b.matrix, z.data()}, {&c.matrix, y.data()}};
      matmul(context, x.data(), rows, alike);
      keep(z);
      keep(y);
    }
    matmul(context, x.data(), rows, dense.matrix, y.data());
    keep(y);
  }

  std::vector<int32_t> ids(200);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 77);
  std::vector<float> rows(ids.size() * static_cast<size_t>(k));
  embed_rows(context, b.matrix, ids, 2.0f, rows.data());
  keep(rows);
  const int64_t count = static_cast<int64_t>(ids.size());
  rms_norm(context, rows.data(), count, k, x.data(), 1e-6f, rows.data());
  silu(context, rows.data(), count * k);
  softcap(context, rows.data(), 3.0f, count * k);
  keep(rows);
  std::vector<float> half(rows.size() / 2);
  gelu_tanh_gate(context, rows.data(), count, k / 2, half.data());
  keep(half);

  const int64_t heads = 6, dim = 64, positions = 190;
  std::vector<int32_t> pages(12), begin, end;
  for (size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<int32_t>((p * 5) % 12);
  std::vector<uint16_t> keys(12 * 16 * 2 * 64), values(keys.size());
  const KvPages kv{DType::kFloat16, keys.data(), values.data(), pages.data(), 2, 64};
  const Guarded<float> kk = random_floats(random, static_cast<size_t>(positions * 2 * dim));
  store_kv(context, kk.data(), kk.data(), positions, 0, kv);
  for (int32_t i = 0; i < positions; ++i) {
    begin.push_back(0);
    end.push_back(i + 1);
  }
  const Guarded<float> q = random_floats(random, static_cast<size_t>(positions * heads * dim));
  std::vector<float> out(q.size());
  attention(context,
            {.q = q.data(),
             .m = positions,
             .heads = heads,
             .begin = begin,
             .end = end,
             .scale = 0.1f,
             .out = out.data()},
            kv);
  keep(out);
  // The last query alone, as in decoding.
  std::vector<float> one(static_cast<size_t>(heads * dim));
  attention(context,
            {.q = q.data() + (positions - 1) * heads * dim,
             .m = 1,
             .heads = heads,
             .begin = std::span(begin).last(1),
             .end = std::span(end).last(1),
             .scale = 0.1f,
             .out = one.data()},
            kv);
  keep(one);
  expect_same_bits(one, std::span(out).last(one.size()), one.size(), "decoding and prefill");

  const OwnedMatrix weight = random_dense(random, 32, 9 * 8, Matrix::Type::kF32);
  const Guarded<float> picture = random_floats(random, 64 * 40 * 8);
  std::vector<float> conv(32 * 20 * 32);
  conv3x3_stride2(context, picture.data(), 64, 40, 8, weight.matrix, conv.data());
  keep(conv);
  std::vector<float> depth(64 * 320);
  depthwise_causal_conv(context, picture.data(), 64, 320, x.data(), 5, depth.data());
  keep(depth);
  std::vector<float> local(64 * 320);
  local_relative_attention(context, picture.data(), picture.data(), depth.data(), x.data(), 64, 5, 64, 13,
                           50.0f, local.data());
  keep(local);
  return all;
}

TEST(Threads, SameBitsForAnyNumber) {
  for (const Level level : {Level::kReference, Level::kAvx2, Level::kAvx512}) {
    if (!cpu_supports(level)) continue;
    SCOPED_TRACE(level_name(level));
    Context context(level, 1);
    const std::vector<float> one = run_all(context);
    for (const int threads : {2, 5}) {
      context.set_threads(threads);
      expect_same_bits(run_all(context), one, one.size(), std::to_string(threads) + " threads");
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const float value : one) ASSERT_TRUE(std::isfinite(value));
  }
}

// Many rows of x, 96 for each thread or more, are cut along x, not along the weights.
TEST(Threads, SameBitsForManyRows) {
  for (const Level level : {Level::kReference, Level::kAvx2, Level::kAvx512}) {
    if (!cpu_supports(level)) continue;
    SCOPED_TRACE(level_name(level));
    Random random(2);
    const int64_t most = 1030, k = 45, n = 67;
    const OwnedMatrix dense = random_dense(random, n, k, Matrix::Type::kF16),
                      grouped = random_grouped(random, Matrix::Type::kQ4, 21, k);
    const Guarded<float> x = random_floats(random, static_cast<size_t>(most * k));
    for (const auto& [threads, m] :
         {std::pair<int, int64_t>{1, 95}, {1, 97}, {2, 191}, {2, 193}, {4, 577}, {1, most}, {3, most}}) {
      Context context(level, threads);
      context.precision = Precision::kExact;
      Guarded<float> y(static_cast<size_t>(m * n)), z(static_cast<size_t>(m * 21));
      const Product products[] = {{&dense.matrix, y.data()}, {&grouped.matrix, z.data()}};
      matmul(context, x.data(), m, products);
      EXPECT_EQ(context.float_products.operations, 2 * m * k * (n + 21));
      EXPECT_EQ(context.int8_products.operations, 0);
      for (int64_t row = 0; row < m; ++row) {
        std::vector<float> alone(static_cast<size_t>(n)), other(21);
        matmul(context, x.data() + row * k, 1, dense.matrix, alone.data());
        matmul(context, x.data() + row * k, 1, grouped.matrix, other.data());
        ASSERT_EQ(std::memcmp(alone.data(), y.data() + row * n, alone.size() * sizeof(float)), 0)
            << threads << " threads, row " << row << " of " << m;
        ASSERT_EQ(std::memcmp(other.data(), z.data() + row * 21, other.size() * sizeof(float)), 0)
            << threads << " threads, row " << row << " of " << m;
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::ops
