// The tensor types of GGUF files: their sizes, and the values of those that conversion reads.
// Sources: https://github.com/ggml-org/ggml, "ggml-common.h" (layout of the blocks) and docs/gguf.md
// (numbers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dovetail::convert {

// Numbered as in the files.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
};

// A row of a tensor is a whole number of blocks.
struct GgmlTypeInfo {
  uint32_t number = 0;
  std::string_view name;     // "Q4_K"
  int64_t block_values = 0;  // values in a block
  int64_t block_bytes = 0;
  bool readable = false;  // a GgmlType

  double bits() const { return 8.0 * static_cast<double>(block_bytes) / static_cast<double>(block_values); }
};

// Null for a number that this version does not know, whose blocks have an unknown size.
const GgmlTypeInfo* find_ggml_type(uint32_t number);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
// "F32, F16, Q4_0, …": the names of the readable ones.
std::string readable_ggml_types();

// The values of whole blocks; `blocks` holds out.size() / block_values of them, at any alignment.
void dequantize(GgmlType type, const std::byte* blocks, std::span<float> out);

}  // namespace dovetail::convert
