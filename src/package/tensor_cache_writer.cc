#include "package/tensor_cache_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "package/tensor_cache.h"

namespace dovetail::package {
namespace {

[[noreturn]] void bug(const std::string& name, std::string message) {
  throw Error(ErrorCode::kInternal, Problem{.message = std::move(message), .source = name});
}

}  // namespace

// A shard that is being filled. One tensor alone goes straight to its file; a shard of several is kept in
// memory until all of them are complete, since its number is known only when it is closed.
struct TensorCacheWriter::ShardFile {
  int number = -1;  // set when closed, or at once for a tensor alone
  std::vector<size_t> tensors;
  std::vector<std::byte> buffer;     // empty for a tensor alone
  std::unique_ptr<AtomicFile> file;  // of a tensor alone
  Hasher sha256{Hasher::Kind::kSha256};
  Hasher md5{Hasher::Kind::kMd5};
  int64_t bytes = 0;
  size_t incomplete = 0;  // tensors that lack bytes
  FileHash hash;          // set when written

  std::string file_name() const { return "params_shard_" + std::to_string(number) + ".bin"; }
};

struct TensorCacheWriter::Tensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t written = 0;
  ShardFile* shard = nullptr;
};

TensorCacheWriter::TensorCacheWriter(std::filesystem::path dir) : dir_(std::move(dir)) {}
TensorCacheWriter::~TensorCacheWriter() = default;

size_t TensorCacheWriter::begin(const std::string& name, std::span<const int64_t> shape, DType dtype) {
  const std::optional<int64_t> elements = element_count(shape);
  const std::optional<int64_t> bytes = elements ? try_mul(*elements, dtype_bytes(dtype)) : std::nullopt;
  if (!bytes || *bytes == 0) bug(name, "bad shape of a tensor: " + tensor_type_text(dtype, shape));
  Tensor tensor{.name = name, .shape = {shape.begin(), shape.end()}, .dtype = dtype, .bytes = *bytes};
  const size_t id = tensors_.size();
  const auto aligned = [](int64_t size) {
    return (size + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  };

  int64_t offset = pending_ ? aligned(pending_->bytes) : 0;
  if (offset + *bytes >= kShardBytes) {
    if (*bytes >= kShardBytes / 2) {
      ShardFile& shard = *shards_.emplace_back(std::make_unique<ShardFile>());
      shard.number = static_cast<int>(shards_.size()) - 1;
      shard.file = std::make_unique<AtomicFile>(dir_ / shard.file_name());
      shard.bytes = *bytes;
      shard.tensors = {id};
      shard.incomplete = 1;
      tensor.shard = &shard;
      tensors_.push_back(std::move(tensor));
      parameter_bytes_ += *bytes;
      return id;
    }
    close_pending();
    offset = 0;
  }
  if (!pending_) {
    pending_ = std::make_unique<ShardFile>();
    // At once, so that growing does not leave copies behind; pages that are never touched cost nothing.
    pending_->buffer.reserve(static_cast<size_t>(kShardBytes));
  }
  tensor.offset = offset;
  tensor.shard = pending_.get();
  pending_->bytes = offset + *bytes;
  pending_->buffer.resize(static_cast<size_t>(pending_->bytes));
  pending_->tensors.push_back(id);
  ++pending_->incomplete;
  tensors_.push_back(std::move(tensor));
  parameter_bytes_ += *bytes;
  return id;
}

void TensorCacheWriter::write(size_t id, std::span<const std::byte> data) {
  Tensor& tensor = tensors_.at(id);
  const int64_t size = static_cast<int64_t>(data.size());
  if (size > tensor.bytes - tensor.written) bug(tensor.name, "more bytes than the tensor has");
  ShardFile& shard = *tensor.shard;
  if (shard.file) {
    shard.file->write(data);
    shard.sha256.update(data);
    shard.md5.update(data);
  } else {
    std::copy(data.begin(), data.end(), shard.buffer.begin() + tensor.offset + tensor.written);
  }
  tensor.written += size;
  if (tensor.written == tensor.bytes && size > 0 && --shard.incomplete == 0 && shard.number >= 0)
    complete(shard);
}

void TensorCacheWriter::close_pending() {
  if (!pending_) return;
  pending_->number = static_cast<int>(shards_.size());
  ShardFile& shard = *shards_.emplace_back(std::move(pending_));
  if (shard.incomplete == 0) complete(shard);
}

void TensorCacheWriter::complete(ShardFile& shard) {
  if (!shard.file) {
    shard.file = std::make_unique<AtomicFile>(dir_ / shard.file_name());
    shard.file->write(shard.buffer);
    shard.sha256.update(shard.buffer);
    shard.md5.update(shard.buffer);
    shard.buffer = std::vector<std::byte>();  // gives the memory back, which clear() would not
  }
  shard.file->commit();
  shard.hash = {
      .file = shard.file_name(), .bytes = shard.bytes, .sha256 = shard.sha256.hex(), .md5 = shard.md5.hex()};
}

void TensorCacheWriter::finish(int64_t source_elements) {
  close_pending();
  Json records = Json::array();
  for (const std::unique_ptr<ShardFile>& shard : shards_) {
    Json tensors = Json::array();
    for (const size_t id : shard->tensors) {
      const Tensor& tensor = tensors_[id];
      if (tensor.written != tensor.bytes) bug(tensor.name, "tensor is incomplete");
      // MLC writes "f32-to-bf16" at every tensor, where it has a meaning for float32 only.
      tensors.push_back({{"name", tensor.name},
                         {"shape", tensor.shape},
                         {"dtype", dtype_name(tensor.dtype)},
                         {"format", tensor.dtype == DType::kFloat32 ? "raw" : "f32-to-bf16"},
                         {"nbytes", tensor.bytes},
                         {"byteOffset", tensor.offset}});
    }
    records.push_back({{"dataPath", shard->file_name()},
                       {"format", "raw-shard"},
                       {"nbytes", shard->bytes},
                       {"records", std::move(tensors)},
                       {"md5sum", shard->hash.md5}});
    files_.push_back(shard->hash);
  }
  const double bytes = static_cast<double>(parameter_bytes_);
  const double elements = static_cast<double>(std::max<int64_t>(source_elements, 1));
  const Json document = {
      {"metadata",
       {{"ParamSize", tensors_.size()}, {"ParamBytes", bytes}, {"BitsPerParam", bytes * 8 / elements}}},
      {"records", std::move(records)}};
  write_file_atomic(dir_ / kTensorCacheFile, document.dump(4));
  files_.push_back(hash_file(dir_, std::string(kTensorCacheFile)));
}

}  // namespace dovetail::package
