// Plain types shared by the interface of the operations and by the kernels.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace dovetail::ops {

// Instruction-set levels. kAvx512 is x86-64-v4 plus AVX512-VNNI; where a CPU has v4 without VNNI it runs
// kAvx2. kReference is for tests.
enum class Level : uint8_t { kReference, kAvx2, kAvx512 };

// A weight matrix in the layout of a package: `rows` output features by `cols` input features.
// kQ4 is MLC's q4f16_1 scheme: `data` is uint32 [rows, 4 * ceil(cols / 32)], element i of a word at bits
// 4i..4i+3; `scales` is [rows, ceil(cols / 32)] of scale_type; value = (q - 7) * scale. Pointers are aligned
// to 2 bytes only (tensors lie in a shard without padding).
struct Matrix {
  enum class Type : uint8_t { kF32, kF16, kBF16, kQ4 };
  Type type = Type::kF32;
  DType scale_type = DType::kFloat16;
  const void* data = nullptr;
  const void* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

enum class Activation : uint8_t { kGelu, kGeluTanh, kQuickGelu };

// One layer's keys and values of one sequence, in pages of page_size positions. Elements are of `type`
// (kFloat32 or kFloat16). Page p of the values holds [kv_heads, page_size, head_dim]; page p of the keys
// holds [kv_heads, head_dim, page_size], so that the scores of a page are sums of whole vectors. Position s
// lies in page pages[s / page_size]; entries that no query can see may be -1. Memory of positions that no
// query sees is never used, it may hold anything.
struct KvPages {
  static constexpr int32_t page_size = 16;
  DType type = DType::kFloat16;
  void* keys = nullptr;
  void* values = nullptr;
  const int32_t* pages = nullptr;
  int32_t kv_heads = 1;
  int32_t head_dim = 0;
};

}  // namespace dovetail::ops
