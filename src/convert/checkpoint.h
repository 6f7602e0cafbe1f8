// The weights of a model before conversion: the tensors of files that are mapped into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "convert/ggml_types.h"
#include "convert/safetensors.h"

namespace dovetail::convert {

struct CheckpointFile {
  std::string name;
  std::shared_ptr<const MappedFile> mapping;
};

// What to do to the bytes of a tensor to get the values that the model's definition expects.
struct TensorCoding {
  GgmlType type = GgmlType::kF32;
  // The file has each head's rows in another order: row 2 i + j of the file is row j * (rows of a head / 2) +
  // i. 0: the order is the same.
  int64_t interleaved_heads = 0;
  std::function<void(std::span<float>)> restore;  // applied to the values; null: nothing
};

struct CheckpointTensor : SafeTensor {
  size_t file = 0;  // index into Checkpoint::files
  // Set where the bytes are not simply the values: then `dtype` is float32, and read() gives them.
  std::optional<TensorCoding> coding;
};

struct Checkpoint {
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;  // in file order
  std::string readable_dtypes = "BF16, F16 or F32";

  std::span<const std::byte> bytes(const CheckpointTensor& tensor) const {
    return files[tensor.file].mapping->bytes().subspan(static_cast<size_t>(tensor.offset),
                                                       static_cast<size_t>(tensor.bytes));
  }
  // Columns [column, column + cols) of rows [begin, end) of a tensor with a coding, seen as a matrix of
  // `stride` columns. `out` gets (end - begin) * cols values.
  void read(const CheckpointTensor& tensor, int64_t stride, int64_t begin, int64_t end, int64_t column,
            int64_t cols, float* out) const;
};

// Opens the Hugging Face folder's model.safetensors, or the files that model.safetensors.index.json names.
// Throws Error kNotFound or kMalformed with all problems of all files.
Checkpoint open_checkpoint(const std::filesystem::path& dir);

}  // namespace dovetail::convert
