#include "models/parameters.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace dovetail::models {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

ops::Matrix::Type matrix_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return ops::Matrix::Type::kF16;
    case DType::kBFloat16:
      return ops::Matrix::Type::kBF16;
    default:
      return ops::Matrix::Type::kF32;
  }
}

ops::Matrix::Type matrix_type(const Quantization& quantization) {
  switch (quantization.bits) {
    case 4:
      return ops::Matrix::Type::kQ4;
    case 8:
      return ops::Matrix::Type::kQ8;
    default:
      return matrix_type(quantization.model_dtype);
  }
}

std::vector<float> widen(const TensorRef& tensor, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  const auto* bytes = static_cast<const std::byte*>(tensor.data);
  for (size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == DType::kFloat32) {
      std::memcpy(&out[i], bytes + 4 * i, 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, 2);
      out[i] = tensor.dtype == DType::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
  }
  return out;
}

}  // namespace

int64_t Parameter::bytes() const {
  int64_t count = dtype_bytes(dtype);
  for (int64_t dim : shape) count *= dim;
  return count;
}

void ParameterTree::add(Output output, Weight weight, DType dtype) {
  weight.first_parameter = parameters_.size();
  if (weight.quantized) {
    const std::string base = weight.name.substr(0, weight.name.rfind('.'));
    const int bits = quantization_->bits;
    const int64_t groups = (weight.shape[1] + group_size(bits) - 1) / group_size(bits);
    parameters_.push_back({base + ".q_weight",
                           {weight.shape[0], groups * group_words(bits)},
                           DType::kUInt32,
                           weight.vocab_rows});
    parameters_.push_back({base + ".q_scale", {weight.shape[0], groups}, dtype, weight.vocab_rows});
  } else {
    parameters_.push_back({weight.name, weight.shape, dtype, weight.vocab_rows});
  }
  weights_.push_back(std::move(weight));
  outputs_.push_back(output);
  gathered_.push_back(false);
}

void ParameterTree::add_matrix(ops::Matrix& out, Weight weight) {
  const DType dtype = quantization_->model_dtype;
  out = {.type = matrix_type(*quantization_),
         .scale_type = dtype,
         .rows = weight.shape[0],
         .cols = weight.shape[1]};
  weight.quantized = quantization_->bits != 0;
  add(&out, std::move(weight), dtype);
}

void ParameterTree::matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                           Source source) {
  add_matrix(out, {.name = base + ".weight", .shape = {rows, cols}, .source = std::move(source)});
}

void ParameterTree::gathered_matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                                    Source source) {
  matrix(out, base, rows, cols, std::move(source));
  gathered_.back() = true;
}

void ParameterTree::vocab_matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                                 Source source) {
  add_matrix(
      out,
      {.name = base + ".weight", .shape = {rows, cols}, .vocab_rows = true, .source = std::move(source)});
}

void ParameterTree::plain_matrix(ops::Matrix& out, const std::string& name, std::vector<int64_t> shape,
                                 Source source) {
  const DType dtype = quantization_->model_dtype;
  int64_t cols = 1;
  for (size_t i = 1; i < shape.size(); ++i) cols *= shape[i];
  out = {.type = matrix_type(dtype), .rows = shape[0], .cols = cols};
  add(&out, {.name = name, .shape = std::move(shape), .source = std::move(source)}, dtype);
}

void ParameterTree::values(std::vector<float>& out, const std::string& name, std::vector<int64_t> shape,
                           Source source) {
  values(out, name, std::move(shape), std::move(source), quantization_->model_dtype);
}

void ParameterTree::values(std::vector<float>& out, const std::string& name, std::vector<int64_t> shape,
                           Source source, DType dtype) {
  add(&out, {.name = name, .shape = std::move(shape), .source = std::move(source)}, dtype);
}

void ParameterTree::bind(std::span<const TensorRef> tensors) {
  std::vector<Problem> problems;
  if (tensors.size() != parameters_.size()) {
    throw Error(ErrorCode::kMismatch, Problem{.message = "wrong number of parameters",
                                              .source = "params",
                                              .expected = std::to_string(parameters_.size()),
                                              .actual = std::to_string(tensors.size())});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const TensorRef& tensor = tensors[i];
    const bool same_shape =
        std::equal(tensor.shape.begin(), tensor.shape.end(), parameter.shape.begin(), parameter.shape.end());
    if (same_shape && tensor.dtype == parameter.dtype) continue;
    problems.push_back(
        {.message = "parameter differs from what the library was compiled for",
         .source = "params[" + std::to_string(i) + "]",
         .field = parameter.name,
         .expected = std::string(dtype_name(parameter.dtype)) + " " + shape_text(parameter.shape),
         .actual = std::string(dtype_name(tensor.dtype)) + " " + shape_text(tensor.shape)});
  }
  if (!problems.empty()) throw Error(ErrorCode::kMismatch, std::move(problems));
  const auto copied = [&](size_t w) {
    return std::holds_alternative<ops::Matrix*>(outputs_[w]) && !gathered_[w];
  };
  size_t bytes = 0;
  for (size_t w = 0; w < weights_.size(); ++w) {
    const size_t first = weights_[w].first_parameter, count = weights_[w].quantized ? 2 : 1;
    for (size_t i = first; copied(w) && i < first + count; ++i)
      bytes += WeightMemory::rounded(static_cast<size_t>(parameters_[i].bytes()));
  }
  memory_ = WeightMemory(bytes);
  for (size_t w = 0; w < weights_.size(); ++w) {
    const size_t first = weights_[w].first_parameter;
    const auto place = [&](size_t i) {
      return copied(w) ? memory_.store(tensors[i].data, static_cast<size_t>(parameters_[i].bytes()))
                       : tensors[i].data;
    };
    if (auto* matrix = std::get_if<ops::Matrix*>(&outputs_[w])) {
      (*matrix)->data = place(first);
      (*matrix)->scales = weights_[w].quantized ? place(first + 1) : nullptr;
    } else {
      int64_t count = 1;
      for (int64_t dim : weights_[w].shape) count *= dim;
      *std::get<std::vector<float>*>(outputs_[w]) = widen(tensors[first], count);
    }
  }
}

}  // namespace dovetail::models
