// A Hugging Face folder: its documents and the tensors of all its safetensors files, mapped into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "convert/safetensors.h"

namespace dovetail::convert {

struct CheckpointFile {
  std::string name;
  std::shared_ptr<const MappedFile> mapping;
};

struct CheckpointTensor : SafeTensor {
  size_t file = 0;  // index into Checkpoint::files
};

struct Checkpoint {
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;  // in file order

  std::span<const std::byte> bytes(const CheckpointTensor& tensor) const {
    return files[tensor.file].mapping->bytes().subspan(static_cast<size_t>(tensor.offset),
                                                       static_cast<size_t>(tensor.bytes));
  }
};

// Opens model.safetensors, or the files that model.safetensors.index.json names. Throws Error kNotFound or
// kMalformed with all problems of all files.
Checkpoint open_checkpoint(const std::filesystem::path& dir);

}  // namespace dovetail::convert
