#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/reference/reference.h"

namespace dovetail::ops::reference {
namespace {

bool three_bits(Matrix::Type type) { return type == Matrix::Type::kQ3 || type == Matrix::Type::kQ3Stored; }
int bits_of(Matrix::Type type) { return three_bits(type) ? 3 : type == Matrix::Type::kQ4 ? 4 : 8; }
int64_t group_of(Matrix::Type type) { return three_bits(type) ? 40 : 32; }
int64_t groups_of(Matrix::Type type, int64_t cols) { return (cols + group_of(type) - 1) / group_of(type); }

template <typename T>
T load(const void* base, int64_t index) {
  T value;  // pointers into a shard may be unaligned
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float number(const void* base, int64_t index, DType type) {
  switch (type) {
    case DType::kFloat16:
      return f16_to_f32(load<uint16_t>(base, index));
    case DType::kBFloat16:
      return bf16_to_f32(load<uint16_t>(base, index));
    default:
      return load<float>(base, index);
  }
}

// Without its scale.
int quantized(const Matrix& w, int64_t row, int64_t col) {
  const int bits = bits_of(w.type);
  const int64_t per_word = 32 / bits, row_words = groups_of(w.type, w.cols) * group_of(w.type) / per_word;
  const uint32_t word = load<uint32_t>(w.data, row * row_words + col / per_word);
  const int64_t at = col % per_word;
  uint32_t value = (word >> (bits * at)) & ((1u << bits) - 1);
  if (w.type == Matrix::Type::kQ3) {
    const auto bit = [&](int64_t i) { return word >> i & 1u; };
    value = at < 8    ? word >> (8 * (at / 2) + 3 * (at % 2)) & 7u
            : at == 8 ? bit(6) | bit(7) << 1 | bit(22) << 2
                      : bit(14) | bit(15) << 1 | bit(30) << 2;
  }
  return static_cast<int>(value) - ((1 << (bits - 1)) - 1);
}

float group_scale(const Matrix& w, int64_t row, int64_t group) {
  return number(w.scales, row * groups_of(w.type, w.cols) + group, w.scale_type);
}

constexpr int64_t kTermUnits = 16;  // see quantize_row in kernels.h

// What rounding makes of a group; returns the sum of the squares of what it lost.
double round_group(const float* x, int64_t count, double* out) {
  float largest = 0;
  bool finite = true;
  for (int64_t k = 0; k < count; ++k) {
    finite = finite && std::isfinite(x[k]);
    largest = std::fmax(largest, std::fabs(x[k]));
  }
  const float scale = largest / 127.0f, inverse = 127.0f / largest;
  double lost = 0;
  for (int64_t k = 0; k < count; ++k) {
    out[k] = !finite                ? std::numeric_limits<double>::quiet_NaN()
             : largest >= 0x1p-118f ? std::nearbyint(x[k] * inverse) * static_cast<double>(scale)
                                    : 0;
    lost += (x[k] - out[k]) * (x[k] - out[k]);
  }
  return lost;
}

}  // namespace

float element(const Matrix& w, int64_t row, int64_t col) {
  switch (w.type) {
    case Matrix::Type::kF32:
      return number(w.data, row * w.cols + col, DType::kFloat32);
    case Matrix::Type::kF16:
      return number(w.data, row * w.cols + col, DType::kFloat16);
    case Matrix::Type::kBF16:
      return number(w.data, row * w.cols + col, DType::kBFloat16);
    default:
      return static_cast<float>(quantized(w, row, col)) * group_scale(w, row, col / group_of(w.type));
  }
}

// A rounded row holds the values that the rounding stands for, as doubles.
size_t quantized_row_bytes(Matrix::Type, int64_t cols) { return static_cast<size_t>(cols) * sizeof(double); }

void quantize_row(Matrix::Type type, const float* x, int64_t cols, void* out) {
  quantize_row_in_units(type, x, cols, kUnitGroups, out);
}

void quantize_row_in_units(Matrix::Type type, const float* x, int64_t cols, int64_t unit_groups, void* out) {
  const int64_t size = group_of(type), unit_size = unit_groups * size;
  std::vector<double> values(static_cast<size_t>(cols));
  std::vector<double> lost;  // of every unit
  for (int64_t k = 0; k < cols; k += size) {
    if (k % unit_size == 0) lost.push_back(0);
    lost.back() += round_group(x + k, std::min(size, cols - k), values.data() + k);
  }
  for (auto first = lost.begin(); first < lost.end(); first += std::min(kTermUnits, lost.end() - first)) {
    const auto most = std::max_element(first, first + std::min(kTermUnits, lost.end() - first));
    const int64_t begin = (most - lost.begin()) * unit_size, end = std::min(cols, begin + unit_size);
    for (int64_t k = begin; k < end; k += size) {
      const int64_t count = std::min(size, end - k);
      std::vector<float> rest(static_cast<size_t>(count));
      std::vector<double> second(rest.size());
      for (int64_t i = 0; i < count; ++i)
        rest[static_cast<size_t>(i)] = static_cast<float>(x[k + i] - values[static_cast<size_t>(k + i)]);
      round_group(rest.data(), count, second.data());
      for (int64_t i = 0; i < count; ++i)
        values[static_cast<size_t>(k + i)] += second[static_cast<size_t>(i)];
    }
  }
  std::memcpy(out, values.data(), values.size() * sizeof(double));
}

size_t no_matmul_scratch(int64_t, int64_t) { return 0; }
size_t no_int8_scratch(Matrix::Type, int64_t, int64_t) { return 0; }

void matmul_int8(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                 float* y, int64_t y_stride, void*) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t r = row_begin; r < row_end; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < w.cols; ++k)
        sum += load<double>(quantized_x, i * w.cols + k) * element(w, r, k);
      y[i * y_stride + r] = static_cast<float>(sum);
    }
  }
}

void matmul_f32(const float* x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end, float* y,
                int64_t y_stride, void*) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t r = row_begin; r < row_end; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < w.cols; ++k) sum += static_cast<double>(x[i * w.cols + k]) * element(w, r, k);
      y[i * y_stride + r] = static_cast<float>(sum);
    }
  }
}

void dequantize_row(const Matrix& w, int64_t row, float scale, float* out) {
  for (int64_t k = 0; k < w.cols; ++k) out[k] = element(w, row, k) * scale;
}

}  // namespace dovetail::ops::reference
