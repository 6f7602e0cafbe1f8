// The header of a safetensors file, from any bytes. What is accepted covers the file exactly.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "convert/safetensors.h"

using namespace dovetail;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    int64_t bytes = 0;
    for (const convert::SafeTensor& tensor : convert::parse_safetensors(file, "fuzz.safetensors")) {
      if (tensor.offset < 8 || tensor.bytes < 0 || tensor.offset + tensor.bytes > static_cast<int64_t>(size))
        std::abort();
      if (tensor.dtype && tensor.elements() * dtype_bytes(*tensor.dtype) != tensor.bytes) std::abort();
      bytes += tensor.bytes;
    }
    if (bytes > static_cast<int64_t>(size)) std::abort();
  } catch (const Error& error) {
    if (error.problems().empty()) std::abort();
  }
  return 0;
}
