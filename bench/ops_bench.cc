// Speed of the operations beside what this machine can do at most, for every level the CPU has.
//
//   ops_bench [cpu] [part …]     parts: roof gemv gemm attention elementwise; all when none is named
//
// Every figure is the best of several repetitions, so that other load disturbs it least; roofs are measured
// in the same run.
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/roof.h"

namespace dovetail::ops {
namespace {

// Wall time by default. On a machine that others use as well, "cpu" says more: the CPU time of the process,
// with one thread only, leaves out the time in which it did not run.
bool use_cpu_time = false;

double now() {
  timespec t;
  clock_gettime(use_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds of the fastest of the repetitions that fit into about `budget` seconds, at least five.
template <typename Body>
double best_time(const Body& body, double budget = 1.0) {
  body();
  double best = 1e9, spent = 0;
  for (int runs = 0; spent < budget || runs < 5; ++runs) {
    const double start = now();
    body();
    const double seconds = now() - start;
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

void on_threads(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body, i);
  body(0);
  for (std::thread& other : others) other.join();
}

volatile int64_t sink;

// ---- roofs
// -----------------------------------------------------------------------------------------------------

// With `ahead` = 0 the hardware's prefetcher is alone; which is faster depends on the machine.
__attribute__((target("avx2"))) void read_all(const std::byte* p, size_t bytes, size_t ahead) {
  __m256i sum[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(p) + i + ahead, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p) + i + ahead + 64, _MM_HINT_T0);
    for (int j = 0; j < 4; ++j) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * j));
      sum[j] = _mm256_add_epi64(sum[j], v);
    }
  }
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  sink = _mm256_extract_epi64(all, 0);
}

constexpr size_t kReadBytes = size_t{1} << 30;

std::vector<std::byte>& big_buffer() {
  static std::vector<std::byte> buffer(kReadBytes, std::byte{1});
  return buffer;
}

// GB/s of sequential reading of 1 GiB, the better of two ways.
double read_bandwidth(int threads) {
  const std::vector<std::byte>& buffer = big_buffer();
  const size_t part = buffer.size() / static_cast<size_t>(threads);
  double best = 1e9;
  for (const size_t ahead : {0, 8192}) {
    best = std::min(best, best_time([&] {
                      on_threads(threads, [&](int i) {
                        read_all(buffer.data() + static_cast<size_t>(i) * part, part, ahead);
                      });
                    }));
  }
  return static_cast<double>(kReadBytes) / best / 1e9;
}

// ---- inputs
// ----------------------------------------------------------------------------------------------------

std::vector<float> random_floats(size_t count) {
  static std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double matrix_bytes(const Matrix& w) {
  return static_cast<double>(w.rows) * static_cast<double>(row_bytes(w) + scale_row_bytes(w));
}

// Weights over the big buffer; the scales, if any, lie behind the data.
Matrix big_matrix(Matrix::Type type, int64_t rows, int64_t cols) {
  std::vector<std::byte>& buffer = big_buffer();
  Matrix w{type, DType::kFloat16, buffer.data(), nullptr, rows, cols};
  if (!w.quantized()) {
    std::memset(buffer.data(), 0, static_cast<size_t>(matrix_bytes(w)));
    return w;
  }
  uint16_t* scales = reinterpret_cast<uint16_t*>(buffer.data() + rows * row_bytes(w));
  std::fill_n(scales, rows * scale_row_bytes(w) / 2, f32_to_f16(0.01f));
  w.scales = scales;
  return w;
}

const char* type_name(Matrix::Type type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "q3 stored", "q3", "q4", "q8"};
  return kNames[static_cast<size_t>(type)];
}

// ---- measurements
// ----------------------------------------------------------------------------------------------

struct Run {
  Level level;
  int threads;
  double bandwidth;
};

void print_head(const Run& run, const char* what) {
  std::printf("%-9s %d thread%s  %-40s", std::string(level_name(run.level)).c_str(), run.threads,
              run.threads == 1 ? " " : "s", what);
}

void bench_gemv(const Run& run) {
  Context context(run.level, run.threads);
  const struct {
    int64_t rows, cols, m;
    Matrix::Type type;
  } cases[] = {{262144, 1536, 1, Matrix::Type::kQ4}, {262144, 1536, 1, Matrix::Type::kQ3},
               {262144, 1536, 1, Matrix::Type::kQ8}, {262144, 1536, 2, Matrix::Type::kQ4},
               {262144, 1536, 3, Matrix::Type::kQ4}, {262144, 1536, 4, Matrix::Type::kQ4},
               {262144, 1536, 8, Matrix::Type::kQ4}, {49152, 2048, 1, Matrix::Type::kF16},
               {2048, 2048, 1, Matrix::Type::kQ4},   {2048, 2048, 1, Matrix::Type::kQ3},
               {2048, 2048, 1, Matrix::Type::kQ8}};
  for (const auto& c : cases) {
    const Matrix w = big_matrix(c.type, c.rows, c.cols);
    const std::vector<float> x = random_floats(static_cast<size_t>(c.m * c.cols));
    std::vector<float> y(static_cast<size_t>(c.m * c.rows));
    const double seconds = best_time([&] { matmul(context, x.data(), c.m, w, y.data()); });
    const double rate = matrix_bytes(w) / seconds / 1e9;
    char what[80];
    std::snprintf(what, sizeof what, "%s x%lld %lldx%lld (%.0f MB)", type_name(c.type),
                  static_cast<long long>(c.m), static_cast<long long>(c.rows), static_cast<long long>(c.cols),
                  matrix_bytes(w) / 1e6);
    print_head(run, what);
    std::printf("%7.1f GB/s  %5.1f %% of reading\n", rate, 100 * rate / run.bandwidth);
  }
}

void bench_gemm(const Run& run) {
  Context context(run.level, run.threads);
  const double integer = peak_int8_operations(run.level) / 1e9 * run.threads,
               floating = peak_float_operations(run.level) / 1e9 * run.threads;
  const struct {
    int64_t m, n, k;
    Matrix::Type type;
    Precision precision;
  } cases[] = {{4, 2048, 2048, Matrix::Type::kQ4, Precision::kInt8},
               {8, 2048, 2048, Matrix::Type::kQ4, Precision::kInt8},
               {32, 2048, 2048, Matrix::Type::kQ4, Precision::kInt8},
               {128, 2048, 2048, Matrix::Type::kQ4, Precision::kInt8},
               {512, 2048, 2048, Matrix::Type::kQ4, Precision::kInt8},
               {512, 6144, 1536, Matrix::Type::kQ4, Precision::kInt8},
               {512, 1536, 6144, Matrix::Type::kQ4, Precision::kInt8},
               {128, 2048, 2048, Matrix::Type::kQ3, Precision::kInt8},
               {128, 2048, 2048, Matrix::Type::kQ8, Precision::kInt8},
               {128, 2048, 2048, Matrix::Type::kQ4, Precision::kExact},
               {128, 2048, 2048, Matrix::Type::kQ3, Precision::kExact},
               {128, 2048, 2048, Matrix::Type::kQ8, Precision::kExact},
               {128, 2048, 2048, Matrix::Type::kF16, Precision::kInt8},
               {577, 1024, 1024, Matrix::Type::kF16, Precision::kInt8},
               {1024, 1152, 1152, Matrix::Type::kF16, Precision::kInt8},
               {1024, 4304, 1152, Matrix::Type::kF16, Precision::kInt8},
               {1024, 1152, 4304, Matrix::Type::kF16, Precision::kInt8}};
  for (const auto& c : cases) {
    const Matrix w = big_matrix(c.type, c.n, c.k);
    context.precision = c.precision;
    const bool ints = w.quantized() && c.precision == Precision::kInt8;
    const std::vector<float> x = random_floats(static_cast<size_t>(c.m * c.k));
    std::vector<float> y(static_cast<size_t>(c.m * c.n));
    const double seconds = best_time([&] { matmul(context, x.data(), c.m, w, y.data()); });
    const double rate = 2.0 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k) / seconds / 1e9;
    char what[80];
    std::snprintf(what, sizeof what, "%s%s m %lld n %lld k %lld", type_name(c.type),
                  !w.quantized() ? ""
                  : ints         ? " int8"
                                 : " exact",
                  static_cast<long long>(c.m), static_cast<long long>(c.n), static_cast<long long>(c.k));
    print_head(run, what);
    std::printf("%7.0f GOP/s %5.1f %% of the %s peak %.0f\n", rate, 100 * rate / (ints ? integer : floating),
                ints ? "int8" : "float", ints ? integer : floating);
  }
}

void bench_attention(const Run& run) {
  Context context(run.level, run.threads);
  const double peak = peak_float_operations(run.level) / 1e9 * run.threads;
  const struct {
    int64_t m, positions, heads;
    int32_t kv_heads, dim;
  } cases[] = {{512, 512, 8, 1, 256}, {512, 512, 9, 3, 64},  {512, 4096, 8, 1, 256},
               {1, 512, 8, 1, 256},   {1, 4096, 8, 1, 256},  {1, 512, 9, 3, 64},
               {1, 4096, 9, 3, 64},   {1, 4096, 32, 32, 64}, {1, 4096, 8, 1, 512}};
  for (const auto& c : cases) {
    const int64_t count = (c.positions + 15) / 16;
    std::vector<int32_t> pages(static_cast<size_t>(count)), begin(static_cast<size_t>(c.m), 0), end;
    for (int64_t i = 0; i < count; ++i) pages[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    double seen = 0;
    for (int64_t i = 0; i < c.m; ++i) {
      end.push_back(static_cast<int32_t>(c.positions - c.m + i + 1));
      seen += end.back();
    }
    const size_t elements = static_cast<size_t>(count * 16 * c.kv_heads * c.dim);
    std::vector<uint16_t> keys(elements, f32_to_f16(0.1f)), values(elements, f32_to_f16(0.1f));
    const KvPages kv{DType::kFloat16, keys.data(), values.data(), pages.data(), c.kv_heads, c.dim};
    const std::vector<float> q = random_floats(static_cast<size_t>(c.m * c.heads * c.dim));
    std::vector<float> out(q.size());
    const Attention args{.q = q.data(),
                         .m = c.m,
                         .heads = c.heads,
                         .begin = begin,
                         .end = end,
                         .scale = 0.1f,
                         .out = out.data()};
    const double seconds = best_time([&] { attention(context, args, kv); }, 0.5);
    char what[80];
    std::snprintf(what, sizeof what, "%lld queries %lld keys %lld/%d heads of %d",
                  static_cast<long long>(c.m), static_cast<long long>(c.positions),
                  static_cast<long long>(c.heads), c.kv_heads, c.dim);
    print_head(run, what);
    const double rate = 4 * seen * static_cast<double>(c.heads * c.dim) / seconds / 1e9;
    std::printf("%9.3f ms  %6.1f GFLOP/s %5.1f %%  KV %.1f GB/s\n", seconds * 1e3, rate, 100 * rate / peak,
                4.0 * static_cast<double>(c.positions * c.kv_heads * c.dim) / seconds / 1e9);
  }
}

void bench_elementwise(const Run& run) {
  Context context(run.level, run.threads);
  for (const int64_t m : {1, 512}) {
    const int64_t n = 1536;
    const size_t count = static_cast<size_t>(m * n);
    std::vector<float> x = random_floats(2 * count), y(count);
    auto report = [&](const char* name, const std::function<void()>& body) {
      const double seconds = best_time(body, 0.1);
      print_head(run, (std::string(name) + " " + std::to_string(m) + " x 1536").c_str());
      std::printf("%9.2f us  %5.2f ns per element\n", seconds * 1e6,
                  seconds * 1e9 / static_cast<double>(count));
    };
    report("rms_norm", [&] { rms_norm(context, x.data(), m, n, x.data(), 1e-6f, y.data()); });
    report("gelu_tanh_gate", [&] { gelu_tanh_gate(context, x.data(), m, n, y.data()); });
    report("add_scaled", [&] { add_scaled(context, x.data(), 1e-9f, y.data(), m * n); });
    const KernelTable& kernels = context.kernels();
    std::vector<std::byte> rounded(kernels.quantized_row_bytes(Matrix::Type::kQ4, n));
    report("rounding to int8 (1 row at a time)", [&] {
      for (int64_t i = 0; i < m; ++i)
        kernels.quantize_row(Matrix::Type::kQ4, x.data() + i * n, n, rounded.data());
    });
  }
}

int run_all(std::vector<std::string> parts) {
  use_cpu_time = std::erase(parts, "cpu") != 0;
  std::printf("clock: %s\n", use_cpu_time ? "CPU time" : "wall");
  auto wanted = [&](const char* part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  double bandwidth[2] = {1, 1};
  const int cpus = use_cpu_time ? 1 : std::min(2, ThreadPool::available_cpus());
  if (wanted("roof") || wanted("gemv")) {
    for (int threads = 1; threads <= cpus; ++threads) {
      bandwidth[threads - 1] = read_bandwidth(threads);
      std::printf("reading 1 GiB, %d thread%s: %.1f GB/s\n", threads, threads == 1 ? "" : "s",
                  bandwidth[threads - 1]);
    }
  }
  for (const Level level : built_levels()) {
    if (!cpu_supports(level)) continue;
    if (wanted("roof")) {
      std::printf("%s, 1 thread, registers only: %.0f GOP/s int8, %.0f GFLOP/s\n",
                  std::string(level_name(level)).c_str(), peak_int8_operations(level) / 1e9,
                  peak_float_operations(level) / 1e9);
    }
    for (int threads = 1; threads <= cpus; ++threads) {
      const Run run{level, threads, bandwidth[threads - 1]};
      if (wanted("gemv")) bench_gemv(run);
      if (wanted("gemm")) bench_gemm(run);
      if (wanted("attention")) bench_attention(run);
      if (wanted("elementwise")) bench_elementwise(run);
    }
  }
  return 0;
}

}  // namespace
}  // namespace dovetail::ops

int main(int argc, char** argv) { return dovetail::ops::run_all({argv + 1, argv + argc}); }
