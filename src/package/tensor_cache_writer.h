// Writes the weights of a package: shards and tensor-cache.json, with MLC's rule of which tensor goes into
// which shard. Nothing is held in memory but the shards that are still being filled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "package/content_hashes.h"

namespace dovetail::package {

inline constexpr int64_t kShardBytes = int64_t{32} << 20;
// Tensors begin at multiples of this in a shard, so that they can be used in place. Only a tensor whose size
// is no multiple (a scalar, for example) leaves a gap behind it.
inline constexpr int64_t kTensorAlignment = 64;

// Writes into a folder that an AtomicDirectory makes whole. Not thread safe.
class TensorCacheWriter {
 public:
  explicit TensorCacheWriter(std::filesystem::path dir);
  ~TensorCacheWriter();
  TensorCacheWriter(const TensorCacheWriter&) = delete;
  TensorCacheWriter& operator=(const TensorCacheWriter&) = delete;

  // Reserves the next place for a tensor; float32 is stored raw. Its bytes follow through write(). Several
  // tensors may be open at once. Throws Error kInternal when the name was used before or the size overflows.
  size_t begin(const std::string& name, std::span<const int64_t> shape, DType dtype);
  // Appends to tensor `id`. Throws Error kIo, or kInternal when more bytes come than the tensor has.
  void write(size_t id, std::span<const std::byte> data);

  // Writes what is pending and tensor-cache.json. `source_elements` is the number of weights before
  // quantization, for BitsPerParam. Throws Error kInternal when a tensor is incomplete.
  void finish(int64_t source_elements);

  // After finish(): the files written.
  const std::vector<FileHash>& files() const { return files_; }
  int64_t parameter_bytes() const { return parameter_bytes_; }

 private:
  struct ShardFile;
  struct Tensor;

  void close_pending();
  void complete(ShardFile& shard);

  std::filesystem::path dir_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<ShardFile>> shards_;  // in the order of their numbers; without the pending one
  std::unique_ptr<ShardFile> pending_;
  std::vector<FileHash> files_;
  int64_t parameter_bytes_ = 0;
};

}  // namespace dovetail::package
