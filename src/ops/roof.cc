#include "ops/roof.h"

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace dovetail::ops {
namespace {

constexpr int64_t kLoops = 2'000'000;
constexpr int kChains = 12;  // independent sums: more than latency times units

// The empty instructions hide values from the compiler, which else finds all chains equal and merges them.

__attribute__((target("avx512f,avx512vnni"))) void vnni_loop() {
  __m512i sum[kChains] = {};
  for (__m512i& one : sum) __asm__ volatile("" : "+v"(one));
  __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    __asm__ volatile("" : "+v"(a), "+v"(b));
  }
  for (const __m512i& one : sum) __asm__ volatile("" : : "v"(one));
}

// maddubs and a 16-bit addition, as the AVX2 product does.
__attribute__((target("avx2"))) void int16_sum_loop() {
  __m256i sum[kChains] = {};
  for (__m256i& one : sum) __asm__ volatile("" : "+x"(one));
  __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      __asm__ volatile("" : "+x"(a), "+x"(b));
      sum[j] = _mm256_add_epi16(sum[j], _mm256_maddubs_epi16(a, b));
    }
  }
  for (const __m256i& one : sum) __asm__ volatile("" : : "x"(one));
}

__attribute__((target("avx512f"))) void fma512_loop() {
  __m512 sum[kChains] = {};
  for (__m512& one : sum) __asm__ volatile("" : "+v"(one));
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_fmadd_ps(a, b, sum[j]);
    __asm__ volatile("" : "+v"(a), "+v"(b));
  }
  for (const __m512& one : sum) __asm__ volatile("" : : "v"(one));
}

__attribute__((target("avx2,fma"))) void fma256_loop() {
  __m256 sum[kChains] = {};
  for (__m256& one : sum) __asm__ volatile("" : "+x"(one));
  __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < kLoops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm256_fmadd_ps(a, b, sum[j]);
    __asm__ volatile("" : "+x"(a), "+x"(b));
  }
  for (const __m256& one : sum) __asm__ volatile("" : : "x"(one));
}

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double peak(void (*loop)(), int lanes) {
  double best = 1e9;
  for (int run = 0; run < 20; ++run) {
    const double start = thread_seconds();
    loop();
    best = std::min(best, thread_seconds() - start);
  }
  return static_cast<double>(kLoops) * kChains * lanes * 2 / best;
}

}  // namespace

double peak_float_operations(Level level) {
  return level == Level::kAvx512 ? peak(fma512_loop, 16) : peak(fma256_loop, 8);
}

double peak_int8_operations(Level level) {
  return level == Level::kAvx512 ? peak(vnni_loop, 64) : peak(int16_sum_loop, 32);
}

}  // namespace dovetail::ops
