// Matrix products and table look-ups.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/split.h"

namespace dovetail::ops {
namespace {

constexpr int64_t kRowGrain = 32;
// Rows of x that one expansion of the weights shall serve; see multiply_rows().
constexpr int64_t kPieceRows = 120;
constexpr int64_t kFewestPieceRows = 96;

double row_cost(const Matrix& w, int64_t m) {
  const double read = static_cast<double>(row_bytes(w) + scale_row_bytes(w)) / 8;
  const double multiply = static_cast<double>(m * w.cols) / (w.quantized() ? 150 : 30);
  return std::max(read, multiply);
}

bool in_integers(const Matrix& w, bool exact) {
  return !exact && w.quantized() && w.type != Matrix::Type::kQ3Stored;
}

// All products together are one list of blocks of weight rows: one wake-up for all of them. Of the products
// in integers, `x8` is x rounded for weights of `type`.
void multiply_blocks(Context& context, const float* x, const std::byte* x8, int64_t m, Matrix::Type type,
                     std::span<const Product> products, bool exact) {
  const KernelTable& kernels = context.kernels();
  const int64_t cols = products.front().w->cols;
  int64_t blocks = 0;
  double cost = 0;
  for (const Product& product : products) {
    blocks += (product.w->rows + kRowGrain - 1) / kRowGrain;
    cost += row_cost(*product.w, m) * static_cast<double>(product.w->rows);
  }
  split(context, blocks, cost / static_cast<double>(blocks), 1, [&](int64_t begin, int64_t end, int worker) {
    int64_t first = 0;  // of this product
    for (const Product& product : products) {
      const Matrix& w = *product.w;
      const int64_t count = (w.rows + kRowGrain - 1) / kRowGrain;
      const int64_t row_begin = std::max<int64_t>(0, begin - first) * kRowGrain;
      const int64_t row_end = std::min(w.rows, (end - first) * kRowGrain);
      first += count;
      if (row_begin >= row_end) continue;
      if (in_integers(w, exact)) {
        void* scratch = context.scratch(worker, kernels.matmul_int8_scratch(type, m, cols)).data();
        kernels.matmul_int8(x8, m, w, row_begin, row_end, product.y, w.rows, scratch);
      } else {
        void* scratch = context.scratch(worker, kernels.matmul_f32_scratch(m, cols)).data();
        kernels.matmul_f32(x, m, w, row_begin, row_end, product.y, w.rows, scratch);
      }
    }
  });
}

// Whole weights for pieces of x: cut along the weights, every piece would pack all of x anew. As many pieces
// as threads, or a multiple.
void multiply_rows(Context& context, const float* x, int64_t m, std::span<const Product> products) {
  const KernelTable& kernels = context.kernels();
  const int64_t cols = products.front().w->cols, threads = context.pool().threads();
  const int64_t pieces = threads * ((m + threads * kPieceRows - 1) / (threads * kPieceRows));
  constexpr int64_t kTile = 6;  // rows of x of a register tile, or a multiple, at every level
  const int64_t piece = ((m + pieces - 1) / pieces + kTile - 1) / kTile * kTile;
  double cost = 0;
  for (const Product& product : products) cost += static_cast<double>(product.w->rows * cols) / 30;
  split(context, m, cost, piece, [&](int64_t begin, int64_t end, int worker) {
    for (const Product& product : products) {
      void* scratch = context.scratch(worker, kernels.matmul_f32_scratch(end - begin, cols)).data();
      kernels.matmul_f32(x + begin * cols, end - begin, *product.w, 0, product.w->rows,
                         product.y + begin * product.w->rows, product.w->rows, scratch);
    }
  });
}

}  // namespace

int64_t row_bytes(const Matrix& w) {
  switch (w.type) {
    case Matrix::Type::kF32:
      return 4 * w.cols;
    case Matrix::Type::kF16:
    case Matrix::Type::kBF16:
      return 2 * w.cols;
    case Matrix::Type::kQ3Stored:
    case Matrix::Type::kQ3:
      return (w.cols + 39) / 40 * 16;
    case Matrix::Type::kQ4:
      return (w.cols + 31) / 32 * 16;
    case Matrix::Type::kQ8:
      return (w.cols + 31) / 32 * 32;
  }
  return 0;
}

int64_t scale_row_bytes(const Matrix& w) {
  if (!w.quantized()) return 0;
  const int64_t group = w.type == Matrix::Type::kQ3 || w.type == Matrix::Type::kQ3Stored ? 40 : 32;
  return (w.cols + group - 1) / group * dtype_bytes(w.scale_type);
}

void rearrange_q3(const void* stored, int64_t groups, void* out) {
  const auto* from = static_cast<const std::byte*>(stored);
  auto* to = static_cast<std::byte*>(out);
  for (int64_t i = 0; i < groups * 4; ++i) {
    uint32_t w;
    std::memcpy(&w, from + 4 * i, 4);
    w = (w & 0x3fu) | (w & 0xfc0u) << 2 | (w & 0x3f000u) << 4 | (w & 0xfc0000u) << 6 | (w >> 18 & 0xc0u) |
        (w >> 13 & 0xc000u) | (w >> 4 & 0x400000u) | (w << 1 & 0x40000000u);
    std::memcpy(to + 4 * i, &w, 4);
  }
}

void matmul(Context& context, const float* x, int64_t m, const Matrix& w, float* y) {
  const Product product{&w, y};
  matmul(context, x, m, std::span(&product, 1));
}

void matmul(Context& context, const float* x, int64_t m, std::span<const Product> products) {
  if (m <= 0 || products.empty()) return;
  const KernelTable& kernels = context.kernels();
  const bool exact = context.precision == Precision::kExact;

  const int64_t cols = products.front().w->cols;
  bool any_rounded = false;
  Matrix::Type type = Matrix::Type::kQ4;  // for which x is rounded
  for (const Product& product : products) {
    if (!in_integers(*product.w, exact)) continue;
    if (any_rounded && product.w->type != type) {
      for (const Product& one : products) matmul(context, x, m, std::span(&one, 1));
      return;
    }
    any_rounded = true;
    type = product.w->type;
  }
  const auto start = std::chrono::steady_clock::now();
  const size_t x_stride = any_rounded ? kernels.quantized_row_bytes(type, cols) : 0;
  std::byte* const x8 =
      any_rounded ? context.shared_scratch(x_stride * static_cast<size_t>(m)).data() : nullptr;
  if (any_rounded) {
    split(context, m, static_cast<double>(cols) / 8, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        kernels.quantize_row(type, x + i * cols, cols, x8 + static_cast<size_t>(i) * x_stride);
      }
    });
  }

  if (!any_rounded && m >= kFewestPieceRows * context.pool().threads()) {
    multiply_rows(context, x, m, products);
  } else {
    multiply_blocks(context, x, x8, m, type, products, exact);
  }
  ProductCount& done = any_rounded ? context.int8_products : context.float_products;
  for (const Product& product : products) done.operations += 2 * m * cols * product.w->rows;
  done.nanoseconds +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
}

void embed_rows(Context& context, const Matrix& table, std::span<const int32_t> ids, float scale,
                float* out) {
  const KernelTable& kernels = context.kernels();
  split(context, static_cast<int64_t>(ids.size()), static_cast<double>(table.cols) / 4, 1,
        [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) {
            kernels.dequantize_row(table, ids[static_cast<size_t>(i)], scale, out + i * table.cols);
          }
        });
}

}  // namespace dovetail::ops
