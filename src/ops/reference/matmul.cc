#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

// A rounded row: int8 values padded with zeros to whole groups, then one float scale per group.
const float* scales_of(Matrix::Type type, const int8_t* q, int64_t cols) {
  return reinterpret_cast<const float*>(q + groups_of(type, cols) * group_of(type));
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

size_t quantized_row_bytes(Matrix::Type type, int64_t cols) {
  return static_cast<size_t>(groups_of(type, cols)) *
         (static_cast<size_t>(group_of(type)) * sizeof(int8_t) + sizeof(float));
}

void quantize_row(Matrix::Type type, const float* x, int64_t cols, void* out) {
  const int64_t groups = groups_of(type, cols), size = group_of(type);
  int8_t* const q = static_cast<int8_t*>(out);
  float* const scales = reinterpret_cast<float*>(q + groups * size);
  std::memset(q, 0, static_cast<size_t>(groups * size));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * size, end = std::min(cols, begin + size);
    float largest = 0;
    bool finite = true;
    for (int64_t k = begin; k < end; ++k) {
      finite = finite && std::isfinite(x[k]);
      largest = std::fmax(largest, std::fabs(x[k]));
    }
    scales[g] = 0;
    if (!finite) {
      scales[g] = std::numeric_limits<float>::quiet_NaN();
    } else if (largest >= 0x1p-118f) {
      scales[g] = largest / 127.0f;
      const float inverse = 127.0f / largest;
      for (int64_t k = begin; k < end; ++k) q[k] = static_cast<int8_t>(std::nearbyint(x[k] * inverse));
    }
  }
}

size_t no_matmul_scratch(int64_t, int64_t) { return 0; }
size_t no_int8_scratch(Matrix::Type, int64_t, int64_t) { return 0; }

void matmul_int8(const void* quantized_x, int64_t m, const Matrix& w, int64_t row_begin, int64_t row_end,
                 float* y, int64_t y_stride, void*) {
  const int64_t row_bytes = static_cast<int64_t>(quantized_row_bytes(w.type, w.cols));
  const int64_t size = group_of(w.type);
  for (int64_t i = 0; i < m; ++i) {
    const int8_t* const q = static_cast<const int8_t*>(quantized_x) + i * row_bytes;
    const float* const scales = scales_of(w.type, q, w.cols);
    for (int64_t r = row_begin; r < row_end; ++r) {
      double sum = 0;
      for (int64_t g = 0; g < groups_of(w.type, w.cols); ++g) {
        int products = 0;
        for (int64_t k = g * size; k < std::min(w.cols, (g + 1) * size); ++k) {
          products += quantized(w, r, k) * q[k];
        }
        sum += static_cast<double>(products) * group_scale(w, r, g) * scales[g];
      }
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
