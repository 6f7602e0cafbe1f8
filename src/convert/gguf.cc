#include "convert/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace dovetail::convert {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMaxAlignment = 1 << 20;
constexpr uint32_t kMaxDimensions = 4;
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr int kMaxArrayDepth = 4;

// Bytes of a number or boolean; 0 for strings, arrays and unknown types.
int64_t value_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUInt8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUInt16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUInt32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUInt64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <typename Value>
Value load(const std::byte* data) {
  Value value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

// `data` holds a value of an integer type. nullopt beyond int64.
std::optional<int64_t> load_integer(GgufType type, const std::byte* data) {
  switch (type) {
    case GgufType::kUInt8:
      return load<uint8_t>(data);
    case GgufType::kInt8:
      return load<int8_t>(data);
    case GgufType::kUInt16:
      return load<uint16_t>(data);
    case GgufType::kInt16:
      return load<int16_t>(data);
    case GgufType::kUInt32:
      return load<uint32_t>(data);
    case GgufType::kInt32:
      return load<int32_t>(data);
    case GgufType::kInt64:
      return load<int64_t>(data);
    case GgufType::kUInt64: {
      const auto value = load<uint64_t>(data);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

bool is_integer(GgufType type) {
  return value_bytes(type) > 0 && type != GgufType::kBool && type != GgufType::kFloat32 &&
         type != GgufType::kFloat64;
}

}  // namespace

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, std::string source) : file_(file), source_(std::move(source)) {}

  Gguf run() {
    const int64_t tensors = read_header();
    for (int64_t i = 0; i < pairs_; ++i) read_pair(i);
    const uint32_t alignment = read_alignment();
    for (int64_t i = 0; i < tensors; ++i) read_tensor(i);
    place_tensors(alignment);
    out_.source_ = std::move(source_);
    out_.file_ = file_;
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string field, std::string message, std::string expected, std::string actual,
                           std::string hint = {}) const {
    if (hint.empty()) hint = "the file is damaged or not completely downloaded; fetch it again";
    throw Error(ErrorCode::kMalformed, Problem{.message = std::move(message),
                                               .source = source_,
                                               .field = std::move(field),
                                               .expected = std::move(expected),
                                               .actual = std::move(actual),
                                               .hint = std::move(hint)});
  }

  uint64_t left() const { return file_.size() - at_; }

  const std::byte* take(uint64_t bytes, const std::string& field) {
    if (bytes > left()) {
      refuse(field, "the file ends in the middle of it",
             std::to_string(bytes) + " bytes from byte " + std::to_string(at_) + " on",
             std::to_string(left()));
    }
    const std::byte* data = file_.data() + at_;
    at_ += static_cast<size_t>(bytes);
    return data;
  }

  template <typename Value>
  Value number(const std::string& field) {
    return load<Value>(take(sizeof(Value), field));
  }

  // A count of things that take at least `smallest` bytes each.
  int64_t count(uint64_t smallest, const std::string& field) {
    const auto value = number<uint64_t>(field);
    if (value > left() / smallest) {
      refuse(field, "the count is larger than the file can hold",
             "at most " + std::to_string(left() / smallest), std::to_string(value));
    }
    return static_cast<int64_t>(value);
  }

  std::string_view string(const std::string& field) {
    const auto length = number<uint64_t>(field);
    if (length > left()) {
      refuse(field, "the length of the text is larger than the rest of the file",
             "at most " + std::to_string(left()), std::to_string(length));
    }
    return {reinterpret_cast<const char*>(take(length, field)), static_cast<size_t>(length)};
  }

  std::string_view name(const std::string& field) {
    const std::string_view text = string(field);
    if (text.empty() || text.size() > kMaxNameBytes) {
      refuse(field, "the name has a wrong length", "1 to " + std::to_string(kMaxNameBytes) + " bytes",
             std::to_string(text.size()));
    }
    return text;
  }

  GgufType type(const std::string& field) {
    const auto value = number<uint32_t>(field);
    if (value > static_cast<uint32_t>(GgufType::kFloat64))
      refuse(field, "unknown type of metadata", "0 to 12", std::to_string(value));
    return static_cast<GgufType>(value);
  }

  // The number of tensors; the number of pairs goes into pairs_.
  int64_t read_header() {
    const std::byte* magic = take(4, "magic");
    if (std::memcmp(magic, "GGUF", 4) != 0)
      refuse("magic", "is no GGUF file", "\"GGUF\"", "other bytes", "is it the right file?");
    out_.version_ = number<uint32_t>("version");
    if (out_.version_ != 2 && out_.version_ != 3) {
      const bool swapped = out_.version_ == 0x02000000u || out_.version_ == 0x03000000u;
      throw Error(ErrorCode::kUnsupported,
                  Problem{.message = swapped ? "a GGUF file for big-endian machines is not read"
                                             : "this version of the GGUF format is not read",
                          .source = source_,
                          .field = "version",
                          .expected = "2 or 3",
                          .actual = swapped ? "with its bytes reversed" : std::to_string(out_.version_),
                          .hint = "make the file again with a current version of llama.cpp"});
    }
    const int64_t tensors = count(8 + 1 + 4 + 4 + 8, "tensor_count");
    pairs_ = count(8 + 1 + 4 + 1, "metadata_kv_count");
    return tensors;
  }

  void read_pair(int64_t index) {
    const std::string_view key = name("metadata[" + std::to_string(index) + "].key");
    const std::string field = "\"" + printable(key) + "\"";
    GgufValue value = read_value(type(field), field, 0);
    if (!out_.values_.emplace(key, std::move(value)).second)
      refuse(field, "the key is there twice", "once", "twice");
    out_.keys_.push_back(key);
  }

  bool boolean(const std::byte* data, const std::string& field) const {
    const auto value = load<uint8_t>(data);
    if (value > 1) refuse(field, "is no truth value", "0 or 1", std::to_string(value));
    return value != 0;
  }

  GgufValue read_value(GgufType type, const std::string& field, int depth) {
    switch (type) {
      case GgufType::kString:
        return string(field);
      case GgufType::kArray:
        return read_array(field, depth + 1);
      case GgufType::kBool:
        return boolean(take(1, field), field);
      case GgufType::kFloat32:
        return static_cast<double>(number<float>(field));
      case GgufType::kFloat64:
        return number<double>(field);
      default: {
        const std::byte* data = take(static_cast<uint64_t>(value_bytes(type)), field);
        if (const auto value = load_integer(type, data)) return *value;
        return load<uint64_t>(data);
      }
    }
  }

  GgufArray read_array(const std::string& field, int depth) {
    if (depth > kMaxArrayDepth) {
      refuse(field, "arrays are nested too deeply", "at most " + std::to_string(kMaxArrayDepth) + " levels",
             "more");
    }
    GgufArray out{.type = type(field)};
    if (const int64_t size = value_bytes(out.type); size > 0) {
      out.count = count(static_cast<uint64_t>(size), field);
      const uint64_t bytes = static_cast<uint64_t>(out.count) * static_cast<uint64_t>(size);
      out.values = {take(bytes, field), static_cast<size_t>(bytes)};
      if (out.type == GgufType::kBool) {
        for (const std::byte& value : out.values) boolean(&value, field);
      }
    } else if (out.type == GgufType::kString) {
      out.count = count(8, field);
      out.strings.reserve(static_cast<size_t>(out.count));
      for (int64_t i = 0; i < out.count; ++i) out.strings.push_back(string(field));
    } else {
      out.count = count(4 + 8, field);
      for (int64_t i = 0; i < out.count; ++i) read_array(field, depth + 1);
    }
    return out;
  }

  uint32_t read_alignment() const {
    const GgufValue* value = out_.find("general.alignment");
    if (value == nullptr) return kDefaultAlignment;
    const auto* number = std::get_if<int64_t>(value);
    if (number == nullptr || *number < 1 || *number > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*number))) {
      refuse("\"general.alignment\"", "is no alignment",
             "a power of two up to " + std::to_string(kMaxAlignment),
             number != nullptr ? std::to_string(*number) : "another type");
    }
    return static_cast<uint32_t>(*number);
  }

  void read_tensor(int64_t index) {
    GgufTensor tensor{.name = std::string(name("tensor[" + std::to_string(index) + "].name"))};
    const std::string field = "\"" + printable(tensor.name) + "\"";
    const auto dimensions = number<uint32_t>(field);
    if (dimensions > kMaxDimensions) {
      refuse(field, "too many dimensions", "at most " + std::to_string(kMaxDimensions),
             std::to_string(dimensions));
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = number<uint64_t>(field);
      if (size > static_cast<uint64_t>(kMaxElements)) {
        refuse(field, "dimension " + std::to_string(i) + " is too large",
               "at most " + std::to_string(kMaxElements), std::to_string(size));
      }
      tensor.shape.push_back(static_cast<int64_t>(size));
    }
    const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    const std::optional<int64_t> elements = element_count(tensor.shape);
    if (!elements || *elements > kMaxElements) {
      refuse(field, "the number of values is too large", "at most " + std::to_string(kMaxElements), "more");
    }
    tensor.type = number<uint32_t>(field);
    tensor.info = find_ggml_type(tensor.type);
    if (tensor.info != nullptr) {
      if (row % tensor.info->block_values != 0) {
        refuse(field, "a row is no whole number of " + std::string(tensor.info->name) + " blocks",
               "a multiple of " + std::to_string(tensor.info->block_values), std::to_string(row));
      }
      // At most 2^48 values of at most 8 bytes.
      tensor.bytes = *elements / tensor.info->block_values * tensor.info->block_bytes;
    }
    const auto offset = number<uint64_t>(field);
    if (offset > file_.size()) {
      refuse(field, "begins behind the end of the file", "at most byte " + std::to_string(file_.size()),
             std::to_string(offset));
    }
    tensor.offset = static_cast<int64_t>(offset);
    if (!out_.tensor_index_.emplace(tensor.name, out_.tensors_.size()).second)
      refuse(field, "the tensor is there twice", "once", "twice");
    out_.tensors_.push_back(std::move(tensor));
  }

  // Offsets count from the first aligned byte after the header.
  void place_tensors(uint32_t alignment) {
    if (out_.tensors_.empty()) return;
    const int64_t begin = static_cast<int64_t>((at_ + alignment - 1) / alignment * alignment);
    const int64_t size = static_cast<int64_t>(file_.size());
    std::vector<Problem> problems;
    const auto problem = [&](const GgufTensor& tensor, std::string message, std::string expected,
                             std::string actual) {
      problems.push_back({.message = std::move(message),
                          .source = source_,
                          .field = "\"" + printable(tensor.name) + "\"",
                          .expected = std::move(expected),
                          .actual = std::move(actual),
                          .hint = "the file is damaged or not completely downloaded; fetch it again"});
    };
    for (GgufTensor& tensor : out_.tensors_) {
      if (tensor.offset % alignment != 0) {
        problem(tensor, "begins at an unaligned place", "a multiple of " + std::to_string(alignment),
                std::to_string(tensor.offset));
      }
      tensor.offset += begin;
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
        problem(tensor, "ends behind the end of the file",
                std::to_string(tensor.offset) + " + " + std::to_string(tensor.bytes) + " bytes",
                std::to_string(size) + " bytes");
      }
    }
    if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : out_.tensors_) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const int64_t end = order[i - 1]->offset + order[i - 1]->bytes;
      if (order[i]->offset < end) {
        problem(*order[i], "overlaps the tensor before it",
                "begin at byte " + std::to_string(end) + " or later", std::to_string(order[i]->offset));
      }
    }
    if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  }

  std::span<const std::byte> file_;
  std::string source_;
  size_t at_ = 0;
  int64_t pairs_ = 0;
  Gguf out_;
};

std::string_view gguf_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"uint8", "int8", "uint16", "int16",  "uint32", "int32",  "float32",
                                         "bool",  "text", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<std::vector<int64_t>> GgufArray::integers() const {
  if (!is_integer(type)) return std::nullopt;
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(count));
  const int64_t size = value_bytes(type);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = load_integer(type, values.data() + i * size);
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

std::optional<std::vector<float>> GgufArray::floats() const {
  if (type != GgufType::kFloat32 && type != GgufType::kFloat64) return std::nullopt;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(type == GgufType::kFloat32 ? load<float>(values.data() + 4 * i)
                                             : static_cast<float>(load<double>(values.data() + 8 * i)));
  }
  return out;
}

std::optional<std::vector<bool>> GgufArray::booleans() const {
  if (type != GgufType::kBool) return std::nullopt;
  std::vector<bool> out;
  for (const std::byte value : values) out.push_back(value != std::byte{0});
  return out;
}

int64_t GgufTensor::elements() const { return element_count(shape).value_or(0); }

std::string GgufTensor::type_name() const {
  return info != nullptr ? std::string(info->name) : "type " + std::to_string(type);
}

Gguf Gguf::parse(std::span<const std::byte> file, std::string source) {
  return GgufParser(file, std::move(source)).run();
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(std::string(name));
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace dovetail::convert
