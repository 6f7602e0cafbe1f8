// A GGUF file, from any bytes: its header, the values of its tensors, the configuration and the tokenizer
// that its metadata give. What is accepted lies inside the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.h"
#include "convert/gguf.h"
#include "convert/gguf_config.h"
#include "convert/gguf_tokenizer.h"

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
    if (const convert::GgufValue* name = gguf.find("general.architecture");
        name != nullptr && std::holds_alternative<std::string_view>(*name)) {
      std::vector<Problem> problems;
      for (const auto architecture : {convert::GgufArchitecture::kLlama, convert::GgufArchitecture::kGemma3,
                                      convert::GgufArchitecture::kGemma4}) {
        convert::gguf_config(architecture, gguf, nullptr, problems);
        convert::gguf_config(architecture, gguf, &gguf, problems);
      }
      convert::gguf_generation_config(gguf, problems);
    }
    std::vector<std::string> notes;
    convert::gguf_tokenizer_json(gguf, notes);
  } catch (const Error& error) {
    if (error.problems().empty()) std::abort();
  }
  return 0;
}
