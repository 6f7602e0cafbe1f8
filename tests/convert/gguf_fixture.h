// Makes GGUF files for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/gguf.h"

namespace dovetail::testing {

template <typename Value>
std::string raw(Value value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::string gguf_text(std::string_view text) {
  return raw(static_cast<uint64_t>(text.size())) + std::string(text);
}

class GgufFile {
 public:
  uint32_t version = 3;
  uint32_t alignment = 32;

  // `value` as it stands in the file.
  GgufFile& pair(std::string_view key, convert::GgufType type, const std::string& value) {
    pairs_ += gguf_text(key) + raw(static_cast<uint32_t>(type)) + value;
    ++pair_count_;
    return *this;
  }
  GgufFile& set(std::string_view key, uint32_t value) {
    return pair(key, convert::GgufType::kUInt32, raw(value));
  }
  GgufFile& set(std::string_view key, float value) {
    return pair(key, convert::GgufType::kFloat32, raw(value));
  }
  GgufFile& set(std::string_view key, bool value) {
    return pair(key, convert::GgufType::kBool, raw(static_cast<uint8_t>(value)));
  }
  GgufFile& set(std::string_view key, std::string_view value) {
    return pair(key, convert::GgufType::kString, gguf_text(value));
  }
  GgufFile& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  GgufFile& set(std::string_view key, const std::vector<std::string>& values) {
    std::string out = raw(static_cast<uint32_t>(convert::GgufType::kString)) + raw(uint64_t{values.size()});
    for (const std::string& value : values) out += gguf_text(value);
    return pair(key, convert::GgufType::kArray, out);
  }
  GgufFile& set(std::string_view key, const std::vector<int32_t>& values) {
    return numbers(key, convert::GgufType::kInt32, values);
  }
  GgufFile& set(std::string_view key, const std::vector<float>& values) {
    return numbers(key, convert::GgufType::kFloat32, values);
  }

  // `shape` is row-major. Tensors lie one behind the other, aligned.
  GgufFile& tensor(std::string name, std::vector<int64_t> shape, convert::GgmlType type, std::string bytes) {
    return tensor(std::move(name), std::move(shape), static_cast<uint32_t>(type), std::move(bytes));
  }
  GgufFile& tensor(std::string name, std::vector<int64_t> shape, uint32_t type, std::string bytes) {
    tensors_.push_back({std::move(name), std::move(shape), type, std::move(bytes)});
    return *this;
  }
  GgufFile& f32(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return tensor(std::move(name), std::move(shape), convert::GgmlType::kF32, std::move(bytes));
  }

  std::string text() const {
    std::string out = "GGUF" + raw(version) + raw(uint64_t{tensors_.size()}) + raw(pair_count_) + pairs_;
    std::string data;
    for (const Tensor& tensor : tensors_) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      out += gguf_text(tensor.name) + raw(static_cast<uint32_t>(tensor.shape.size()));
      for (size_t i = tensor.shape.size(); i > 0; --i) out += raw(static_cast<uint64_t>(tensor.shape[i - 1]));
      out += raw(tensor.type) + raw(uint64_t{data.size()});
      data += tensor.bytes;
    }
    if (!tensors_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t type;
    std::string bytes;
  };

  template <typename Value>
  GgufFile& numbers(std::string_view key, convert::GgufType type, const std::vector<Value>& values) {
    std::string out = raw(static_cast<uint32_t>(type)) + raw(uint64_t{values.size()});
    for (const Value value : values) out += raw(value);
    return pair(key, convert::GgufType::kArray, out);
  }

  std::string pairs_;
  uint64_t pair_count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace dovetail::testing
