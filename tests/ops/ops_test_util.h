// Shared by the tests of the operations: the levels under test, guarded memory, random inputs, comparisons.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/kernels.h"
#include "ops/ops.h"

extern "C" const dovetail::ops::KernelTable dovetail_ops_table_avx512_simde
    __attribute__((visibility("hidden")));

namespace dovetail::ops {

struct LevelUnderTest {
  const char* name;
  const KernelTable* table;
  Level needs;
};

inline void PrintTo(const LevelUnderTest& level, std::ostream* out) { *out << level.name; }

inline const std::vector<LevelUnderTest>& levels_under_test() {
  static const std::vector<LevelUnderTest> levels = {
      {"avx2", &dovetail_ops_table_avx2, Level::kAvx2},
      {"avx512", &dovetail_ops_table_avx512, Level::kAvx512},
      {"avx512_simde", &dovetail_ops_table_avx512_simde, Level::kAvx2}};
  return levels;
}

inline const KernelTable& reference_table() { return dovetail_ops_table_reference; }

// Runs once per level; skips, visibly, what this CPU cannot execute.
class LevelTest : public testing::TestWithParam<LevelUnderTest> {
 protected:
  void SetUp() override {
    RecordProperty("instruction_set", GetParam().name);
    if (!cpu_supports(GetParam().needs)) GTEST_SKIP() << "this CPU cannot run " << GetParam().name;
  }
  const KernelTable& table() const { return *GetParam().table; }
};

#define INSTANTIATE_LEVELS(suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(Levels, suite, testing::ValuesIn(levels_under_test()), \
                           [](const auto& info) { return std::string(info.param.name); })

// `count` elements that end exactly at an inaccessible page, as the last tensor of a mapped file may; with
// `front`, that begin exactly behind one.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, bool front = false) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t body = (count * sizeof(T) + page - 1) / page * page;
    size_ = body + 2 * page;
    base_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + page, body, PROT_READ | PROT_WRITE) != 0) std::abort();
    data_ = reinterpret_cast<T*>(front ? base_ + page : base_ + page + body - count * sizeof(T));
  }
  template <typename Source>
  static Guarded copy(const Source& source) {
    Guarded guarded(source.size());
    std::memcpy(guarded.data(), source.data(), source.size() * sizeof(T));
    return guarded;
  }
  Guarded(Guarded&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        data_(other.data_),
        size_(other.size_),
        count_(other.count_) {}
  Guarded(const Guarded&) = delete;
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, size_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  std::byte* base_ = nullptr;
  T* data_ = nullptr;
  size_t size_ = 0;
  size_t count_ = 0;
};

// Scratch memory as the operations hand it out: aligned, and full of NaN so that nothing is taken from it
// unset.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : storage_((bytes + 127) / 4, std::nanf("")) {}
  void* data() {
    void* p = storage_.data();
    size_t space = storage_.size() * 4;
    return std::align(64, 1, p, space);
  }

 private:
  std::vector<float> storage_;
};

using Random = std::mt19937;

inline Guarded<float> random_floats(Random& random, size_t count, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  Guarded<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = normal(random);
  return values;
}

// A matrix with its memory.
struct OwnedMatrix {
  Guarded<uint8_t> data;
  Guarded<uint8_t> scales;
  Matrix matrix;
};

inline void put_number(uint8_t* p, DType type, float value) {
  if (type == DType::kFloat32) {
    std::memcpy(p, &value, 4);
    return;
  }
  const uint16_t bits = type == DType::kFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(p, &bits, 2);
}

struct Grouping {
  int bits;
  int64_t size;
  int64_t bytes() const { return size / (32 / bits) * 4; }
};
inline Grouping grouping(Matrix::Type type) {
  return type == Matrix::Type::kQ3 || type == Matrix::Type::kQ3Stored
             ? Grouping{3, 40}
             : Grouping{type == Matrix::Type::kQ4 ? 4 : 8, 32};
}

// Every value from 0 to the largest that fits, also those that no writer produces.
inline OwnedMatrix random_grouped(Random& random, Matrix::Type type, int64_t rows, int64_t cols,
                                  DType scale_type = DType::kFloat16) {
  const Grouping g = grouping(type);
  const int64_t groups = (cols + g.size - 1) / g.size, per_word = 32 / g.bits;
  Guarded<uint8_t> data(static_cast<size_t>(rows * groups * g.bytes()));
  Guarded<uint8_t> scales(static_cast<size_t>(rows * groups * dtype_bytes(scale_type)));
  std::uniform_real_distribution<float> size(0.001f, 0.02f);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < cols; ++k) {
      uint8_t* const at = data.data() + r * groups * g.bytes() + k / per_word * 4;
      uint32_t word;
      std::memcpy(&word, at, 4);
      word |= static_cast<uint32_t>(random() % (1u << g.bits)) << (k % per_word * g.bits);
      std::memcpy(at, &word, 4);
    }
    for (int64_t group = 0; group < groups; ++group) {
      put_number(scales.data() + (r * groups + group) * dtype_bytes(scale_type), scale_type,
                 (r + group) % 3 == 0 ? -size(random) : size(random));
    }
  }
  if (type == Matrix::Type::kQ3) rearrange_q3(data.data(), rows * groups, data.data());
  Matrix matrix{type, scale_type, data.data(), scales.data(), rows, cols};
  return {std::move(data), std::move(scales), matrix};
}

inline OwnedMatrix random_dense(Random& random, int64_t rows, int64_t cols, Matrix::Type type) {
  const DType dtype = type == Matrix::Type::kF32   ? DType::kFloat32
                      : type == Matrix::Type::kF16 ? DType::kFloat16
                                                   : DType::kBFloat16;
  Guarded<uint8_t> data(static_cast<size_t>(rows * cols * dtype_bytes(dtype)));
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (int64_t i = 0; i < rows * cols; ++i) {
    put_number(data.data() + i * dtype_bytes(dtype), dtype, normal(random));
  }
  Matrix matrix{type, DType::kFloat16, data.data(), nullptr, rows, cols};
  return {std::move(data), Guarded<uint8_t>(0), matrix};
}

template <typename A, typename B>
void expect_same_bits(const A& a, const B& b, size_t count, const std::string& what) {
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << ": element " << i << ": " << a[i] << " and " << b[i];
  }
}

// |actual - expected| <= tolerance * size, where size is the magnitude that rounding is relative to.
inline void expect_close(float actual, float expected, double tolerance, double size,
                         const std::string& what) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(actual)) << what << ": expected NaN, got " << actual;
  } else if (std::isinf(expected)) {
    ASSERT_EQ(actual, expected) << what;
  } else {
    ASSERT_LE(std::fabs(static_cast<double>(actual) - expected), tolerance * size)
        << what << ": got " << actual << ", expected " << expected;
  }
}

}  // namespace dovetail::ops
