// The quantizations of MLC that this version reads and writes. A property of layer types, not of models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace dovetail::models {

struct Quantization {
  std::string_view name;  // MLC's name
  DType model_dtype;      // of everything that is not quantized, and of the scales
  bool group4;            // linear and embedding weights in 4 bits, groups of 32 along the input (NK layout)
};

inline constexpr int64_t kGroupSize = 32;

std::span<const Quantization> quantizations();
// Throws Error kUnsupported with the list of known names.
const Quantization& find_quantization(std::string_view name);

}  // namespace dovetail::models
