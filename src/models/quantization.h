// The quantizations of MLC that this version reads and writes. A property of layer types, not of models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace dovetail::models {

struct Quantization {
  std::string_view name;    // MLC's, but q8f16_1
  DType model_dtype;        // of everything that is not quantized, and of the scales
  int bits;                 // of the values of linear and embedding weights: 3, 4 or 8; 0: none is quantized
  bool transposed = false;  // linear weights are stored input by output (MLC's layout "KN")
  bool ends = true;         // embeddings and the output head are quantized too
};

// A group of values along the input shares a scale, and is stored in whole words of 32 bits.
constexpr int64_t group_size(int bits) { return bits == 3 ? 40 : 32; }
constexpr int64_t word_values(int bits) { return 32 / bits; }
constexpr int64_t group_words(int bits) { return group_size(bits) / word_values(bits); }
// A value q stands for (q - zero_point) * scale.
constexpr int zero_point(int bits) { return (1 << (bits - 1)) - 1; }

std::span<const Quantization> quantizations();
std::string quantization_names();  // comma separated
// Throws Error kUnsupported with the list of known names.
const Quantization& find_quantization(std::string_view name);

}  // namespace dovetail::models
