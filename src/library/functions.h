// Calls into a TVM-FFI library: errors translated, tensors made without copies, argument counts looked at.
#pragma once

#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace dovetail::library {

// Rows of float32 that a function returned; the memory belongs to the library's tensor.
struct Rows {
  std::shared_ptr<const void> owner;
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;

  std::span<const float> row(int64_t i) const { return {data + i * width, static_cast<size_t>(width)}; }
  std::span<const float> all() const { return {data, static_cast<size_t>(rows * width)}; }
};

// A tensor over memory that `owner` keeps alive (or that outlives the call, when null).
tvm::ffi::Tensor borrow_tensor(const void* data, std::span<const int64_t> shape, DType dtype,
                               std::shared_ptr<const void> owner = nullptr);

// The tensor as float32 rows: all dimensions but the last two must be 1. `what` names it in errors.
// Throws Error kMismatch when it is not float32, contiguous and in main memory, or not of that form.
Rows float_rows(const tvm::ffi::Tensor& tensor, const std::string& what);

// One function of a library.
class LibraryFunction {
 public:
  LibraryFunction() = default;
  LibraryFunction(std::string name, std::string library, tvm::ffi::Function function)
      : name_(std::move(name)), library_(std::move(library)), function_(std::move(function)) {}

  const std::string& name() const { return name_; }

  // How many arguments it takes; nullopt when it does not say. Found by offering none, which a typed function
  // refuses before it does anything.
  std::optional<int64_t> argument_count() const;

  // Throws Error: kMismatch for arguments that the function refuses, kLimit for memory, kInternal for the
  // rest.
  template <typename... Args>
  tvm::ffi::Any operator()(Args&&... args) const {
    try {
      tvm::ffi::Any result;
      result = function_(std::forward<Args>(args)...);
      return result;
    } catch (const tvm::ffi::Error& error) {
      raise(error);
    }
  }

  // The result as a T, else Error kMismatch.
  template <typename T, typename... Args>
  T get(Args&&... args) const {
    tvm::ffi::Any result = (*this)(std::forward<Args>(args)...);
    if (std::optional<T> value = result.try_cast<T>()) return std::move(*value);
    throw wrong_result(result);
  }

  Error wrong_result(const tvm::ffi::Any& result) const;

 private:
  [[noreturn]] void raise(const tvm::ffi::Error& error) const;

  std::string name_;
  std::string library_;
  tvm::ffi::Function function_;
};

}  // namespace dovetail::library
