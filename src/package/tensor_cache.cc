#include "package/tensor_cache.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/checked.h"
#include "base/json.h"
#include "base/similar.h"
#include "contract/manifest.h"
#include "package/fields.h"
#include "package/paths.h"

namespace dovetail::package {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxDocumentBytes = int64_t{256} << 20;
constexpr size_t kMaxDimensions = 8;
// Of one shard and of the whole package: far beyond any model, and sums of them can't overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 50;

std::string index_path(std::string_view path, size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

bool is_md5(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Reads one tensor record; nothing when it has problems.
std::optional<StoredTensor> read_record(const Json& value, const std::string& source, const std::string& path,
                                        int64_t shard_bytes, ProblemList& problems) {
  Fields fields(value, source, path, problems);
  const std::optional<std::string> name = fields.string("name");
  if (name && (name->empty() || name->size() > 1024)) {
    fields.problem("name", "bad length", "1 to 1024 bytes", std::to_string(name->size()));
    return std::nullopt;
  }
  const auto shape = fields.integers("shape", 1, int64_t{1} << 48);
  const auto dtype_text = fields.string("dtype");
  const auto format = fields.string("format");
  const auto nbytes = fields.integer("nbytes", 0);
  const auto offset = fields.integer("byteOffset", 0);
  if (!name || !shape || !dtype_text || !format || !nbytes || !offset) return std::nullopt;

  const std::string label = "\"" + printable(*name) + "\"";
  const std::optional<DType> dtype = dtype_from_name(*dtype_text);
  if (!dtype) {
    fields.problem("dtype", "unknown dtype of " + label,
                   "float32, float16, bfloat16, uint32, int32, uint8, int8 or int64",
                   "\"" + printable(*dtype_text) + "\"");
    return std::nullopt;
  }
  if (*format != "raw" && *format != "f32-to-bf16") {
    fields.problem("format", "unknown format of " + label, "\"raw\" or \"f32-to-bf16\"",
                   "\"" + printable(*format) + "\"");
    return std::nullopt;
  }
  if (shape->size() > kMaxDimensions) {
    fields.problem("shape", "too many dimensions of " + label, "at most 8", std::to_string(shape->size()));
    return std::nullopt;
  }
  StoredTensor tensor{.name = *name, .shape = *shape, .dtype = *dtype, .offset = *offset, .bytes = *nbytes};
  tensor.stored_as_bf16 = *dtype == DType::kFloat32 && *format == "f32-to-bf16";
  const std::optional<int64_t> elements = element_count(*shape);
  const std::optional<int64_t> expected =
      elements ? try_mul(*elements, dtype_bytes(tensor.stored_dtype())) : std::nullopt;
  if (!expected) {
    fields.problem("shape", "size of " + label + " overflows 64 bits");
    return std::nullopt;
  }
  if (*expected != *nbytes) {
    fields.problem(
        "nbytes",
        "size of " + label + " does not follow from " + tensor_type_text(tensor.stored_dtype(), *shape),
        std::to_string(*expected), std::to_string(*nbytes));
    return std::nullopt;
  }
  const std::optional<int64_t> end = try_add(*offset, *nbytes);
  if (!end || *end > shard_bytes) {
    fields.problem("byteOffset", label + " ends after its shard",
                   "at most " + std::to_string(shard_bytes) + " bytes",
                   end ? std::to_string(*end) : std::to_string(*offset) + " + " + std::to_string(*nbytes));
    return std::nullopt;
  }
  return tensor;
}

void check_overlaps(const Shard& shard, std::span<const StoredTensor> tensors, const std::string& source,
                    const std::string& path, ProblemList& problems) {
  std::vector<size_t> order = shard.tensors;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].offset < tensors[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const StoredTensor& before = tensors[order[i - 1]];
    const StoredTensor& after = tensors[order[i]];
    if (before.offset + before.bytes <= after.offset) continue;
    problems.add({.message = "\"" + printable(after.name) + "\" overlaps \"" + printable(before.name) + "\"",
                  .source = source,
                  .field = path,
                  .expected = "offset at least " + std::to_string(before.offset + before.bytes),
                  .actual = std::to_string(after.offset)});
  }
}

}  // namespace

int64_t StoredTensor::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string tensor_type_text(DType dtype, std::span<const int64_t> shape) {
  std::string out = std::string(dtype_name(dtype)) + " [";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

std::string_view tensor_cache_file(const fs::path& dir) {
  const auto exists = [&](std::string_view name) {
    std::error_code ec;
    return fs::exists(fs::symlink_status(dir / name, ec));
  };
  const bool old =
      !exists(kTensorCacheFile) && exists(kOldTensorCacheFile) && !exists(contract::kManifestFile);
  return old ? kOldTensorCacheFile : kTensorCacheFile;
}

TensorCache TensorCache::parse(std::string_view json, const std::string& source) {
  const Json document = parse_json(json, source);
  TensorCache cache;
  ProblemList problems;
  Fields root(document, source, "", problems);
  std::unordered_set<std::string> files;
  int64_t total = 0;
  if (const Json* shards = root.array("records")) {
    for (size_t s = 0; s < shards->size(); ++s) {
      const std::string path = index_path("records", s);
      Fields fields((*shards)[s], source, path, problems);
      const auto file = fields.string("dataPath");
      const auto format = fields.string("format");
      const auto nbytes = fields.integer("nbytes", 0, kMaxBytes);
      const auto md5 = fields.string("md5sum", Presence::kOptional);
      const Json* records = fields.array("records");
      if (file) {
        if (const auto why = bad_relative_path(*file)) {
          fields.problem("dataPath", "file name " + *why, {}, "\"" + printable(*file) + "\"");
        } else if (!files.insert(*file).second) {
          fields.problem("dataPath", "is named twice", {}, "\"" + *file + "\"");
        }
      }
      if (format && *format != "raw-shard") {
        fields.problem("format", "unknown shard format", "\"raw-shard\"", "\"" + printable(*format) + "\"");
      }
      if (md5 && !is_md5(*md5)) {
        fields.problem("md5sum", "is no MD5", "32 lower-case hexadecimal digits",
                       "\"" + printable(*md5) + "\"");
      }
      if (!file || !nbytes || records == nullptr) continue;
      total += *nbytes;
      if (total > kMaxBytes) {
        fields.problem("nbytes", "the package is too large", "at most 1 PiB in all shards");
        break;
      }
      Shard shard{.file = *file, .bytes = *nbytes, .md5 = md5.value_or("")};
      for (size_t r = 0; r < records->size(); ++r) {
        const std::string record_path = index_path(path + ".records", r);
        std::optional<StoredTensor> tensor =
            read_record((*records)[r], source, record_path, *nbytes, problems);
        if (!tensor) continue;
        tensor->shard = s;
        if (!cache.by_name_.emplace(tensor->name, cache.tensors_.size()).second) {
          problems.add({.message = "tensor \"" + printable(tensor->name) + "\" appears twice",
                        .source = source,
                        .field = record_path + ".name"});
          continue;
        }
        shard.tensors.push_back(cache.tensors_.size());
        cache.tensors_.push_back(std::move(*tensor));
      }
      check_overlaps(shard, cache.tensors_, source, path, problems);
      cache.shards_.push_back(std::move(shard));
    }
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  return cache;
}

TensorCache TensorCache::open(const fs::path& dir) {
  const std::string name(tensor_cache_file(dir));
  if (std::optional<Problem> bad = bad_package_file(dir, name)) {
    throw Error(ErrorCode::kNotFound, std::move(*bad));
  }
  TensorCache cache = parse(read_file(dir / name, kMaxDocumentBytes), name);
  ProblemList problems;
  for (Shard& shard : cache.shards_) {
    if (std::optional<Problem> bad = bad_package_file(dir, shard.file)) {
      problems.add(std::move(*bad));
      continue;
    }
    try {
      shard.mapping = MappedFile::open(dir / shard.file);
    } catch (const Error& error) {
      problems.add(error.problems());
      continue;
    }
    const int64_t size = static_cast<int64_t>(shard.mapping->bytes().size());
    if (size == shard.bytes) continue;
    problems.add({.message = size < shard.bytes ? "file is truncated" : "file is longer than it should be",
                  .source = shard.file,
                  .expected = std::to_string(shard.bytes) + " bytes",
                  .actual = std::to_string(size),
                  .hint = "fetch this file again, or convert the checkpoint again"});
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  return cache;
}

const StoredTensor* TensorCache::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const StoredTensor& TensorCache::get(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors_) names.push_back(tensor.name);
  Problem problem{.message = "the package has no tensor \"" + printable(name) + "\"",
                  .source = std::string(kTensorCacheFile)};
  if (const std::string* nearest = most_similar(name, names))
    problem.hint = "the nearest name is \"" + *nearest + "\"";
  throw Error(ErrorCode::kNotFound, std::move(problem));
}

std::span<const std::byte> TensorCache::bytes(const StoredTensor& tensor) const {
  const std::shared_ptr<const MappedFile>& mapping = shards_[tensor.shard].mapping;
  if (mapping == nullptr) throw Error(ErrorCode::kInternal, "the tensor cache was parsed, not opened");
  return mapping->bytes().subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
}

std::vector<float> TensorCache::materialize(const StoredTensor& tensor) const {
  if (tensor.dtype != DType::kFloat32) {
    throw Error(ErrorCode::kInternal, "materialize() of " + tensor_type_text(tensor.dtype, tensor.shape));
  }
  const std::span<const std::byte> source = bytes(tensor);
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  if (!tensor.stored_as_bf16) {
    std::memcpy(out.data(), source.data(), source.size());
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, source.data() + 2 * i, 2);
    out[i] = bf16_to_f32(bits);
  }
  return out;
}

void TensorCache::release_pages() const {
  for (const Shard& shard : shards_) {
    if (shard.mapping) shard.mapping->release(0, shard.mapping->bytes().size());
  }
}

void TensorCache::release_pages(const StoredTensor& tensor) const {
  const Shard& shard = shards_[tensor.shard];
  const std::span<const std::byte> stored = bytes(tensor);
  if (shard.mapping)
    shard.mapping->release(static_cast<size_t>(stored.data() - shard.mapping->bytes().data()), stored.size());
}

int64_t TensorCache::parameter_bytes() const {
  int64_t sum = 0;
  for (const StoredTensor& tensor : tensors_) sum += tensor.elements() * dtype_bytes(tensor.dtype);
  return sum;
}

int64_t TensorCache::stored_bytes() const {
  int64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.bytes;
  return sum;
}

}  // namespace dovetail::package
