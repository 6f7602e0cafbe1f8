#include "convert/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "package/fields.h"

namespace dovetail::convert {
namespace {

using package::Fields;
using package::ProblemList;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr int kMaxDepth = 8;

struct KnownType {
  std::string_view name;
  int64_t bits;
};
constexpr std::array<KnownType, 17> kTypes{{{"F32", 32},
                                            {"F16", 16},
                                            {"BF16", 16},
                                            {"F64", 64},
                                            {"I64", 64},
                                            {"I32", 32},
                                            {"I16", 16},
                                            {"I8", 8},
                                            {"U64", 64},
                                            {"U32", 32},
                                            {"U16", 16},
                                            {"U8", 8},
                                            {"BOOL", 8},
                                            {"F8_E4M3", 8},
                                            {"F8_E5M2", 8},
                                            {"F8_E8M0", 8},
                                            {"C64", 64}}};

std::optional<DType> readable_type(std::string_view text) {
  if (text == "BF16") return DType::kBFloat16;
  if (text == "F16") return DType::kFloat16;
  if (text == "F32") return DType::kFloat32;
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& source, std::string message, std::string expected,
                         std::string actual) {
  throw Error(ErrorCode::kMalformed,
              Problem{.message = std::move(message),
                      .source = source,
                      .expected = std::move(expected),
                      .actual = std::move(actual),
                      .hint = "the file is damaged or not completely downloaded; fetch it again"});
}

}  // namespace

int64_t SafeTensor::elements() const { return element_count(shape).value_or(0); }

std::vector<SafeTensor> parse_safetensors(std::span<const std::byte> file, const std::string& source) {
  if (file.size() < 8)
    refuse(source, "is too short for a safetensors file", "at least 8 bytes", std::to_string(file.size()));
  uint64_t length;
  std::memcpy(&length, file.data(), 8);
  static_assert(std::endian::native == std::endian::little);
  if (std::string_view(reinterpret_cast<const char*>(file.data()), 8) == "version ") {
    throw Error(ErrorCode::kMalformed, Problem{.message = "is a Git LFS pointer, not the file itself",
                                               .source = source,
                                               .hint = "fetch the files with \"git lfs pull\""});
  }
  if (length > kMaxHeaderBytes || length > file.size() - 8) {
    refuse(source, "the header is longer than the file or than 100 MB",
           "at most " + std::to_string(std::min<uint64_t>(kMaxHeaderBytes, file.size() - 8)) + " bytes",
           std::to_string(length));
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (header.empty() || header.front() != '{')
    refuse(source, "the header is no JSON object", "\"{\" at byte 8", "another byte");
  // Places in messages count from the beginning of the file: blanks stand for the length.
  const Json document = parse_json(std::string(8, ' ').append(header), source, kMaxDepth);
  const int64_t data_begin = static_cast<int64_t>(8 + length);
  const int64_t data_bytes = static_cast<int64_t>(file.size()) - data_begin;

  ProblemList problems;
  std::vector<SafeTensor> tensors;
  for (const auto& [name, value] : document.items()) {
    if (name == "__metadata__") continue;
    Fields fields(value, source, "\"" + printable(name) + "\"", problems);
    const auto dtype = fields.string("dtype");
    const auto shape = fields.integers("shape", 0, kMaxElements);
    const auto offsets = fields.integers("data_offsets", 0, data_bytes);
    if (!dtype || !shape || !offsets) continue;
    if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
      fields.problem("data_offsets", "is no range", "[begin, end]", Json(*offsets).dump());
      continue;
    }
    SafeTensor tensor{.name = name, .dtype_text = *dtype, .dtype = readable_type(*dtype), .shape = *shape};
    tensor.offset = data_begin + (*offsets)[0];
    tensor.bytes = (*offsets)[1] - (*offsets)[0];
    const std::optional<int64_t> elements = element_count(*shape);
    if (!elements || *elements > kMaxElements) {
      fields.problem("shape", "the number of elements overflows");
      continue;
    }
    // A type that is not known here has a size that is not known here; its range is still checked.
    const auto known = std::find_if(kTypes.begin(), kTypes.end(),
                                    [&](const KnownType& type) { return type.name == *dtype; });
    if (known != kTypes.end() && *elements * known->bits / 8 != tensor.bytes) {
      fields.problem("data_offsets", "size does not follow from " + *dtype + " " + Json(*shape).dump(),
                     std::to_string(*elements * known->bits / 8) + " bytes", std::to_string(tensor.bytes));
      continue;
    }
    tensors.push_back(std::move(tensor));
  }
  problems.throw_if_any(ErrorCode::kMalformed);

  std::vector<const SafeTensor*> order;
  for (const SafeTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const SafeTensor* a, const SafeTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  int64_t end = data_begin;
  for (const SafeTensor* tensor : order) {
    if (tensor->offset != end) {
      problems.add(
          {.message = tensor->offset < end ? "overlaps the tensor before it" : "leaves a hole before it",
           .source = source,
           .field = "\"" + printable(tensor->name) + "\"",
           .expected = "begin at byte " + std::to_string(end - data_begin),
           .actual = std::to_string(tensor->offset - data_begin)});
    }
    end = std::max(end, tensor->offset + tensor->bytes);
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  if (end != static_cast<int64_t>(file.size())) {
    refuse(source, "the file is longer than its tensors", std::to_string(end) + " bytes",
           std::to_string(file.size()));
  }
  return tensors;
}

}  // namespace dovetail::convert
