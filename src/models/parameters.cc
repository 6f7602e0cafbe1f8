#include "models/parameters.h"

#include <xmmintrin.h>

#include <algorithm>
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

ops::Matrix::Type quantized_type(int bits) {
  return bits == 3   ? ops::Matrix::Type::kQ3Stored
         : bits == 4 ? ops::Matrix::Type::kQ4
                     : ops::Matrix::Type::kQ8;
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

// [rows, cols] to [cols, rows] by way of a small square: lines of memory are written whole, which strides of
// a power of two would otherwise throw out of the cache half done.
template <typename T>
void transpose(const std::byte* from, int64_t rows, int64_t cols, std::byte* to) {
  constexpr int64_t kSide = 32, kBytes = sizeof(T);
  alignas(16) T square[kSide][kSide];
  for (int64_t r = 0; r < rows; r += kSide) {
    const int64_t height = std::min(kSide, rows - r);
    for (int64_t c = 0; c < cols; c += kSide) {
      const int64_t width = std::min(kSide, cols - c);
      const auto source = [&](int64_t i, int64_t j) { return from + ((r + i) * cols + c + j) * kBytes; };
      if (kBytes == 4 && height == kSide && width == kSide) {
        for (int64_t i = 0; i < kSide; i += 4) {
          for (int64_t j = 0; j < kSide; j += 4) {
            __m128 line[4];
            for (int64_t k = 0; k < 4; ++k)
              line[k] = _mm_loadu_ps(reinterpret_cast<const float*>(source(i + k, j)));
            _MM_TRANSPOSE4_PS(line[0], line[1], line[2], line[3]);
            for (int64_t k = 0; k < 4; ++k)
              _mm_store_ps(reinterpret_cast<float*>(&square[j + k][i]), line[k]);
          }
        }
      } else {
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) std::memcpy(&square[j][i], source(i, j), sizeof(T));
        }
      }
      for (int64_t j = 0; j < width; ++j)
        std::memcpy(to + ((c + j) * rows + r) * kBytes, square[j], static_cast<size_t>(height * kBytes));
    }
  }
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
    const auto store = [&](const char* suffix, int64_t cols, DType type) {
      Parameter& stored = parameters_.emplace_back(Parameter{base + suffix, {weight.shape[0], cols}, type});
      if (weight.transposed) std::swap(stored.shape[0], stored.shape[1]);
      if (weight.vocab_rows) stored.vocab_dim = weight.transposed ? 1 : 0;
    };
    store(".q_weight", groups * group_words(bits), DType::kUInt32);
    store(".q_scale", groups, dtype);
  } else {
    parameters_.push_back({weight.name, weight.shape, dtype, weight.vocab_rows ? 0 : -1});
  }
  weights_.push_back(std::move(weight));
  outputs_.push_back(output);
  gathered_.push_back(false);
}

void ParameterTree::add_matrix(ops::Matrix& out, Layer layer, const std::string& base, Weight weight) {
  const DType dtype = quantization_->model_dtype;
  // MLC knows the head by its whole name: inside of another model ("language_model.lm_head") it is a linear
  // layer like others.
  const bool end = layer == Layer::kTable || base == "lm_head";
  weight.quantized = quantization_->bits != 0 && (quantization_->ends || !end);
  weight.transposed = weight.quantized && quantization_->transposed && layer == Layer::kLinear;
  weight.name = base + ".weight";
  out = {.type = weight.quantized ? quantized_type(quantization_->bits) : matrix_type(dtype),
         .scale_type = dtype,
         .rows = weight.shape[0],
         .cols = weight.shape[1]};
  add(&out, std::move(weight), dtype);
}

void ParameterTree::matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                           Source source) {
  add_matrix(out, Layer::kLinear, base, {.shape = {rows, cols}, .source = std::move(source)});
}

void ParameterTree::vocab_matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                                 Source source) {
  add_matrix(out, Layer::kLinear, base,
             {.shape = {rows, cols}, .vocab_rows = true, .source = std::move(source)});
}

void ParameterTree::table(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                          Source source) {
  add_matrix(out, Layer::kTable, base, {.shape = {rows, cols}, .source = std::move(source)});
}

void ParameterTree::vocab_table(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                                Source source) {
  add_matrix(out, Layer::kTable, base,
             {.shape = {rows, cols}, .vocab_rows = true, .source = std::move(source)});
}

void ParameterTree::gathered_table(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols,
                                   Source source) {
  table(out, base, rows, cols, std::move(source));
  gathered_.back() = true;
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

const void* ParameterTree::rearranged(const TensorRef& tensor, bool transposed, bool three_bits) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1], width = dtype_bytes(tensor.dtype);
  std::byte* const out = memory_.allocate(static_cast<size_t>(rows * cols * width));
  if (out == nullptr) {
    throw Error(ErrorCode::kLimit, Problem{.message = "no memory for the weights, which must be rearranged",
                                           .source = "params",
                                           .expected = std::to_string(rows * cols * width) + " bytes more",
                                           .hint = "q4f16_1 and q8f16_1 can be used as they are stored"});
  }
  const auto* from = static_cast<const std::byte*>(tensor.data);
  if (transposed && width == 4) {
    transpose<uint32_t>(from, rows, cols, out);
  } else if (transposed) {
    transpose<uint16_t>(from, rows, cols, out);
  }
  if (three_bits) ops::rearrange_q3(transposed ? out : from, rows * cols / group_words(3), out);
  return out;
}

void ParameterTree::bind(std::span<const TensorRef> tensors, const std::function<void(size_t)>& copied) {
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
  const auto is_copied = [&](size_t w) {
    return std::holds_alternative<ops::Matrix*>(outputs_[w]) && !gathered_[w];
  };
  size_t bytes = 0;
  for (size_t w = 0; w < weights_.size(); ++w) {
    const size_t first = weights_[w].first_parameter, count = weights_[w].quantized ? 2 : 1;
    for (size_t i = first; is_copied(w) && i < first + count; ++i)
      bytes += WeightMemory::rounded(static_cast<size_t>(parameters_[i].bytes()));
  }
  memory_ = WeightMemory(bytes);
  for (size_t w = 0; w < weights_.size(); ++w) {
    const size_t first = weights_[w].first_parameter;
    const auto place = [&](size_t i) {
      const bool three_bits = is_copied(w) && weights_[w].quantized && quantization_->bits == 3 && i == first;
      const void* data = tensors[i].data;
      if (weights_[w].transposed || three_bits) {
        data = rearranged(tensors[i], weights_[w].transposed, three_bits);
      } else if (is_copied(w)) {
        data = memory_.store(data, static_cast<size_t>(parameters_[i].bytes()));
      }
      if (copied && data != tensors[i].data) copied(i);
      return data;
    };
    if (auto* matrix = std::get_if<ops::Matrix*>(&outputs_[w])) {
      (*matrix)->data = place(first);
      if (is_copied(w) && (*matrix)->type == ops::Matrix::Type::kQ3Stored)
        (*matrix)->type = ops::Matrix::Type::kQ3;
      (*matrix)->scales = weights_[w].quantized ? place(first + 1) : nullptr;
    } else {
      int64_t count = 1;
      for (int64_t dim : weights_[w].shape) count *= dim;
      *std::get<std::vector<float>*>(outputs_[w]) = widen(tensors[first], count);
      if (copied) copied(first);
    }
  }
}

}  // namespace dovetail::models
