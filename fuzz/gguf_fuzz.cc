// The header of a GGUF file, from any bytes, and the values of its tensors. What is accepted lies inside the
// file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.h"
#include "convert/gguf.h"

using namespace dovetail;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    const convert::Gguf gguf = convert::Gguf::parse(file, "fuzz.gguf");
    for (const std::string_view key : gguf.keys()) {
      const convert::GgufValue* value = gguf.find(key);
      if (value == nullptr) std::abort();
      if (const auto* array = std::get_if<convert::GgufArray>(value)) {
        if (const auto values = array->integers();
            values && static_cast<int64_t>(values->size()) != array->count)
          std::abort();
        array->floats();
      }
    }
    for (const convert::GgufTensor& tensor : gguf.tensors()) {
      if (gguf.find_tensor(tensor.name) != &tensor) std::abort();
      if (tensor.offset < 0 || tensor.bytes < 0 || tensor.offset > static_cast<int64_t>(size) - tensor.bytes)
        std::abort();
      if (tensor.info == nullptr || !tensor.info->readable || tensor.bytes == 0) continue;
      std::vector<float> block(static_cast<size_t>(tensor.info->block_values));
      const auto type = static_cast<convert::GgmlType>(tensor.type);
      const std::byte* first = file.data() + tensor.offset;
      convert::dequantize(type, first, block);
      convert::dequantize(type, first + tensor.bytes - tensor.info->block_bytes, block);
    }
  } catch (const Error& error) {
    if (error.problems().empty()) std::abort();
  }
  return 0;
}
