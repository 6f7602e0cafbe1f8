// The parameter tree of a model. A model declares its weights once, in its constructor; from that declaration
// come the stored parameters (names, shapes, dtypes per quantization), where each comes from in a checkpoint,
// and, in a compiled library, the pointers that the computation reads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "models/quantization.h"
#include "models/weight_memory.h"
#include "ops/ops.h"

namespace dovetail::models {

// Where a weight comes from: tensors of the checkpoint (under their canonical names) laid one below the other
// along axis 0, of which the columns [column_begin, column_begin + columns of the weight) are taken; or,
// without tensors, values computed from the configuration.
struct Source {
  std::vector<std::string> tensors;
  int64_t column_begin = 0;
  int64_t columns = 0;                             // columns of each tensor; 0: as many as the weight has
  std::function<void(std::span<float>)> generate;  // fills the weight, row-major; set when `tensors` is empty
  // Applied to all values of the weight, in the tensor's order, before they are rounded; for small weights.
  std::function<void(std::vector<float>&)> transform;
  std::vector<int64_t> shape;  // of the tensor, where `transform` changes it
};

// One stored tensor.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  int vocab_dim = -1;  // index of the dimension that upstream calls "vocab_size"

  int64_t bytes() const;
};

// One weight of the model before quantization. It is stored as one parameter, or as two (<base>.q_weight
// uint32 and <base>.q_scale) when it is quantized.
struct Weight {
  std::string name;            // of the unquantized parameter, for example "language_model.norm.weight"
  std::vector<int64_t> shape;  // [rows, cols] for matrices
  bool quantized = false;
  bool transposed = false;  // the two tensors of a quantized weight are stored with their dimensions swapped
  bool vocab_rows = false;  // the rows are the named dimension "vocab_size"
  Source source;
  size_t first_parameter = 0;  // index into ParameterTree::parameters()
};

// A tensor as a library receives it.
struct TensorRef {
  const void* data;
  std::span<const int64_t> shape;
  DType dtype;
};

class ParameterTree {
 public:
  explicit ParameterTree(const Quantization& quantization) : quantization_(&quantization) {}
  ParameterTree(const ParameterTree&) = delete;
  ParameterTree& operator=(const ParameterTree&) = delete;

  const Quantization& quantization() const { return *quantization_; }

  // A linear layer's weight [rows, cols], quantized where the quantization says so. `base` has no ".weight".
  void matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols, Source source);
  // The same for a head over the vocabulary, whose rows upstream calls by name.
  void vocab_matrix(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols, Source source);
  // An embedding: never stored transposed. It may be the head at the same time.
  void table(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols, Source source);
  void vocab_table(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols, Source source);
  // An embedding from which only single rows are taken: it stays where it is, of all others a fast copy is
  // made.
  void gathered_table(ops::Matrix& out, const std::string& base, int64_t rows, int64_t cols, Source source);
  // A matrix that stays in the model dtype under every quantization. Rows are shape[0], columns all the rest.
  void plain_matrix(ops::Matrix& out, const std::string& name, std::vector<int64_t> shape, Source source);
  // Anything small that the computation wants in float32: norms, biases, scalars (shape {}), filters. Stored
  // in the model dtype, or in `dtype` when given.
  void values(std::vector<float>& out, const std::string& name, std::vector<int64_t> shape, Source source);
  void values(std::vector<float>& out, const std::string& name, std::vector<int64_t> shape, Source source,
              DType dtype);

  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Points every declared output at its tensor, or at a copy of it that is faster to read; tensors come in
  // the order of parameters(). The tensors must outlive the model. `copied` hears the position of every
  // tensor that will not be read again, right after its copy was made. Throws Error kMismatch listing every
  // tensor whose shape or dtype differs, kLimit when there is no memory for a copy that must be made.
  void bind(std::span<const TensorRef> tensors, const std::function<void(size_t)>& copied = {});

 private:
  using Output = std::variant<ops::Matrix*, std::vector<float>*>;
  void add(Output output, Weight weight, DType dtype);
  // A copy as the kernels read it: with the dimensions swapped, or 3-bit words in their order of bits.
  const void* rearranged(const TensorRef& tensor, bool transposed, bool three_bits);
  enum class Layer { kLinear, kTable };
  void add_matrix(ops::Matrix& out, Layer layer, const std::string& base, Weight weight);

  const Quantization* quantization_;
  std::vector<Weight> weights_;
  std::vector<Parameter> parameters_;
  std::vector<Output> outputs_;  // parallel to weights_
  std::vector<bool> gathered_;   // parallel to weights_
  WeightMemory memory_;
};

// Shorthands for sources.
inline Source from(std::string tensor) { return Source{.tensors = {std::move(tensor)}}; }

}  // namespace dovetail::models
