#include "library/functions.h"

#include <array>
#include <charconv>

namespace dovetail::library {
namespace ffi = tvm::ffi;
namespace {

DLDataType dl_type(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * dtype_bytes(dtype));
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
      return {kDLFloat, bits, 1};
    case DType::kBFloat16:
      return {kDLBfloat, bits, 1};
    case DType::kUInt32:
    case DType::kUInt8:
      return {kDLUInt, bits, 1};
    case DType::kInt32:
    case DType::kInt8:
    case DType::kInt64:
      return {kDLInt, bits, 1};
  }
  return {};
}

// Memory that somebody else owns.
struct BorrowedMemory {
  const void* data;
  std::shared_ptr<const void> owner;
  void AllocData(DLTensor* tensor) { tensor->data = const_cast<void*>(data); }
  void FreeData(DLTensor*) { owner.reset(); }
};

std::string shape_text(const ffi::Tensor& tensor) {
  std::string text = "[";
  for (int32_t i = 0; i < tensor.ndim(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(tensor.size(i));
  }
  return text + "]";
}

ErrorCode code_of(const std::string& kind) {
  if (kind == "ValueError" || kind == "TypeError" || kind == "KeyError") {
    return ErrorCode::kMismatch;
  }
  if (kind == "MemoryError" || kind == "IndexError") return ErrorCode::kLimit;
  if (kind == "NotImplementedError") return ErrorCode::kUnsupported;
  return ErrorCode::kInternal;
}

}  // namespace

ffi::Tensor borrow_tensor(const void* data, std::span<const int64_t> shape, DType dtype,
                          std::shared_ptr<const void> owner) {
  return ffi::Tensor::FromNDAlloc(BorrowedMemory{data, std::move(owner)},
                                  ffi::ShapeView(shape.data(), shape.size()), dl_type(dtype),
                                  DLDevice{kDLCPU, 0});
}

Rows float_rows(const ffi::Tensor& tensor, const std::string& what) {
  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorCode::kMismatch, Problem{.message = "the compiled library returned an unexpected tensor",
                                              .field = what,
                                              .expected = expected,
                                              .actual = actual,
                                              .hint = "compile the library again with 'dovetail compile'"});
  };
  if (!tensor.defined()) refuse("a tensor", "none");
  const DLDataType type = tensor.dtype();
  if (type.code != kDLFloat || type.bits != 32 || type.lanes != 1) {
    refuse("float32",
           "type code " + std::to_string(type.code) + " of " + std::to_string(type.bits) + " bits");
  }
  if (tensor.device().device_type != kDLCPU) {
    refuse("main memory", "device type " + std::to_string(tensor.device().device_type));
  }
  bool leading_ones = tensor.ndim() >= 2;
  for (int32_t i = 0; i + 2 < tensor.ndim(); ++i) leading_ones = leading_ones && tensor.size(i) == 1;
  if (!leading_ones || tensor.size(-1) <= 0) refuse("[rows, width]", shape_text(tensor));
  if (!tensor.IsContiguous()) refuse("contiguous rows", "strides");
  const auto* data = static_cast<const std::byte*>(tensor.data_ptr()) + tensor.byte_offset();
  return Rows{.owner = std::make_shared<ffi::Tensor>(tensor),
              .data = reinterpret_cast<const float*>(data),
              .rows = tensor.size(-2),
              .width = tensor.size(-1)};
}

std::optional<int64_t> LibraryFunction::argument_count() const {
  // Readable slots follow the (empty) argument list, so that a function that looks at its arguments without
  // counting them meets None values.
  std::array<ffi::AnyView, 16> slots;
  ffi::Any result;
  try {
    function_.CallPacked(slots.data(), 0, &result);
  } catch (const ffi::Error& error) {
    static constexpr std::string_view kExpected = ". Expected ";
    const std::string message = error.message();
    const size_t at = message.find(kExpected);
    if (error.kind() != "TypeError" || message.rfind("Mismatched number of arguments", 0) != 0 ||
        at == std::string::npos) {
      return std::nullopt;
    }
    int64_t count = 0;
    const char* digits = message.data() + at + kExpected.size();
    const auto [end, status] = std::from_chars(digits, message.data() + message.size(), count);
    if (status != std::errc() || end == digits) return std::nullopt;
    return count;
  }
  return 0;
}

Error LibraryFunction::wrong_result(const ffi::Any& result) const {
  return Error(ErrorCode::kMismatch, Problem{.message = "function returned an unexpected value",
                                             .source = library_,
                                             .field = name_,
                                             .actual = result.GetTypeKey(),
                                             .hint = "compile the library again with 'dovetail compile'"});
}

void LibraryFunction::raise(const ffi::Error& error) const {
  throw Error(code_of(error.kind()),
              Problem{.message = "function failed: " + error.message(), .source = library_, .field = name_});
}

}  // namespace dovetail::library
