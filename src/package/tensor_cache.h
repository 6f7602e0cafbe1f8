// The weights of a package: tensor-cache.json and the shards it names, mapped into memory. The format is
// MLC's (docs/packages.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace dovetail::package {

inline constexpr std::string_view kTensorCacheFile = "tensor-cache.json";
// The name that older tools of MLC gave it.
inline constexpr std::string_view kOldTensorCacheFile = "ndarray-cache.json";

// The name that the file has in a package: the older one only where the newer file is missing and the package
// has no manifest, which would name the newer one.
std::string_view tensor_cache_file(const std::filesystem::path& dir);

struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;   // every dimension at least 1, or {} for a scalar
  DType dtype;                  // of the parameter
  bool stored_as_bf16 = false;  // a float32 parameter of which the shard holds bfloat16 values
  size_t shard = 0;             // index into TensorCache::shards()
  int64_t offset = 0;           // in the shard, bytes
  int64_t bytes = 0;            // in the shard

  int64_t elements() const;
  DType stored_dtype() const { return stored_as_bf16 ? DType::kBFloat16 : dtype; }
};

struct Shard {
  std::string file;  // relative to the package
  int64_t bytes = 0;
  std::string md5;                            // lower-case hex; empty when the document has none
  std::vector<size_t> tensors;                // indices into TensorCache::tensors()
  std::shared_ptr<const MappedFile> mapping;  // null after parse()
};

// "float16 [262144, 48]"
std::string tensor_type_text(DType dtype, std::span<const int64_t> shape);

class TensorCache {
 public:
  // Parses the document alone; shards are not opened. Throws Error kMalformed with all problems.
  static TensorCache parse(std::string_view json, const std::string& source = std::string(kTensorCacheFile));
  // Parses the file of tensor_cache_file() and maps every shard. Throws Error kNotFound, kIo, kMalformed
  // (also for shards that are missing or have another size than the document says) with all problems.
  static TensorCache open(const std::filesystem::path& dir);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
  const std::vector<Shard>& shards() const { return shards_; }
  const StoredTensor* find(std::string_view name) const;
  // Throws Error kNotFound that names the nearest tensor.
  const StoredTensor& get(std::string_view name) const;

  // The bytes in the shard; the cache must come from open(). They may be aligned to 2 bytes only, in packages
  // made by others. Valid as long as a copy of the cache (or of the shard's mapping) lives.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  // The values of a float32 parameter, widened when they are stored as bfloat16.
  std::vector<float> materialize(const StoredTensor& tensor) const;

  // Drops mapped pages from this process, of all tensors or of one; what is read again comes from the page
  // cache. For after a library has made its own copy of what it reads often.
  void release_pages() const;
  void release_pages(const StoredTensor& tensor) const;

  int64_t parameter_bytes() const;  // bytes of all parameters in their own dtypes
  int64_t stored_bytes() const;     // bytes of all shards

 private:
  std::vector<StoredTensor> tensors_;
  std::vector<Shard> shards_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace dovetail::package
