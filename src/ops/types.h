// Plain types shared by the interface of the operations and by the kernels.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace dovetail::ops {

// Instruction-set levels. kAvx512 is x86-64-v4 plus AVX512-VNNI; where a CPU has v4 without VNNI it runs
// kAvx2. kReference is for tests.
enum class Level : uint8_t { kReference, kAvx2, kAvx512 };

// A weight matrix in the layout of a package: `rows` output features by `cols` input features.
// kQ3, kQ4 and kQ8 are MLC's group quantization: a group is a run of columns with one scale, `data` holds its
// values in uint32 words, the first value in the lowest bits, and `scales` is [rows, ceil(cols / group)] of
// scale_type; value = (q - zero point) * scale. Groups are never shared by rows.
//   kQ3Stored: groups of 40 in 4 words, 10 values in each word, zero point 3. Not for products with rounded
//     activations: rearrange_q3() makes kQ3 of it.
//   kQ3: the same with the bits of each word in another order: byte i of a word holds the values 2i and 2i +
//   1
//     in its low six bits; bits 6 and 7 of the bytes 0 and 1 are the low bits of the values 8 and 9, bit 6 of
//     the bytes 2 and 3 their highest
//   kQ4: groups of 32 in 4 words, zero point 7
//   kQ8: groups of 32 in 8 words, zero point 127
// Pointers are aligned to 2 bytes only (tensors of other tools lie in a shard without padding).
struct Matrix {
  enum class Type : uint8_t { kF32, kF16, kBF16, kQ3Stored, kQ3, kQ4, kQ8 };
  Type type = Type::kF32;
  DType scale_type = DType::kFloat16;
  const void* data = nullptr;
  const void* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  bool quantized() const { return type >= Type::kQ3Stored; }
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
