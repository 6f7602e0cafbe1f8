// The safetensors file format: a 64-bit little-endian header length, a JSON header, then the tensors' bytes.
// Source: https://huggingface.co/docs/safetensors, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace dovetail::convert {

struct SafeTensor {
  std::string name;
  std::string dtype_text;      // as the file says, for example "BF16" or "F8_E4M3"
  std::optional<DType> dtype;  // only for BF16, F16 and F32, which conversion reads
  std::vector<int64_t> shape;  // row-major; {} for a scalar
  int64_t offset = 0;          // of the first byte in the file
  int64_t bytes = 0;

  int64_t elements() const;
};

// Reads the header of a whole file. Every tensor lies inside it, none overlap, and nothing is left between or
// after them. Throws Error kMalformed with all problems; `source` names the file.
std::vector<SafeTensor> parse_safetensors(std::span<const std::byte> file, const std::string& source);

}  // namespace dovetail::convert
