// The GGUF file format, versions 2 and 3: metadata as typed key-value pairs, then tensors.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "convert/ggml_types.h"

namespace dovetail::convert {

// Types of metadata, numbered as in the files.
enum class GgufType : uint32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kUInt16 = 2,
  kInt16 = 3,
  kUInt32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUInt64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::string_view gguf_type_name(GgufType type);

// Views into the file. An array of arrays is checked and has no members here.
struct GgufArray {
  GgufType type = GgufType::kUInt8;
  int64_t count = 0;
  std::span<const std::byte> values;      // of numbers and booleans
  std::vector<std::string_view> strings;  // of strings

  // Of an array of any type of integer; nullopt for another array, or a value beyond int64.
  std::optional<std::vector<int64_t>> integers() const;
  // Of float32 or float64.
  std::optional<std::vector<float>> floats() const;
  // Of booleans.
  std::optional<std::vector<bool>> booleans() const;
};

using GgufValue = std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string name;
  uint32_t type = 0;                   // number; find_ggml_type() knows most
  const GgmlTypeInfo* info = nullptr;  // null: a type of an unknown size
  std::vector<int64_t> shape;          // row-major, the reverse of the file's order
  int64_t offset = 0;                  // of the first byte in the file
  int64_t bytes = 0;                   // 0 for a type of an unknown size

  int64_t elements() const;
  std::string type_name() const;  // "Q4_K", or "type 99"
};

// Points into the bytes it was parsed from.
class Gguf {
 public:
  // Reads everything but the tensors' bytes. Every tensor lies inside the file, aligned, and none overlap.
  // Throws Error kMalformed, or kUnsupported for a version or byte order that is not read; `source` names the
  // file.
  static Gguf parse(std::span<const std::byte> file, std::string source);

  const std::string& source() const { return source_; }
  uint32_t version() const { return version_; }
  const std::vector<std::string_view>& keys() const { return keys_; }  // in file order
  const GgufValue* find(std::string_view key) const;
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  std::span<const std::byte> data(const GgufTensor& tensor) const {
    return file_.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
  }

 private:
  friend class GgufParser;
  std::string source_;
  std::span<const std::byte> file_;
  uint32_t version_ = 0;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
};

}  // namespace dovetail::convert
