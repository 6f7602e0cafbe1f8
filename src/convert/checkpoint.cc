#include "convert/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "package/fields.h"
#include "package/paths.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

using package::ProblemList;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;

// Names of weight files of other formats that the folder holds, for the message that there are none of ours.
std::string other_weights(const fs::path& dir) {
  std::string out;
  std::error_code ec;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    const std::string extension = entry.path().extension().string();
    for (const char* known : {".bin", ".pt", ".pth", ".gguf", ".safetensors", ".h5", ".msgpack"}) {
      if (extension == known) names.insert(entry.path().filename().string());
    }
  }
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + printable(name);
  return out;
}

// tensor -> file
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json document = parse_json(read_file(path, kMaxIndexBytes), kIndex);
  ProblemList problems;
  package::Fields root(document, kIndex, "", problems);
  std::map<std::string, std::string> out;
  if (const Json* map = root.object("weight_map")) {
    for (const auto& [name, file] : map->items()) {
      const std::string field = "weight_map[\"" + printable(name) + "\"]";
      if (!file.is_string()) {
        root.problem(field, "wrong type", "a file name", std::string(package::json_type_name(file)));
      } else if (const auto why = package::bad_relative_path(file.get<std::string>())) {
        root.problem(field, "file name " + *why, {}, "\"" + printable(file.get<std::string>()) + "\"");
      } else {
        out[name] = file.get<std::string>();
      }
    }
    if (map->empty()) root.problem("weight_map", "is empty");
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  return out;
}

// Values [first, first + count), of which only the whole blocks around them can be decoded.
void read_values(GgmlType type, const std::byte* data, int64_t first, int64_t count, float* out) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const int64_t size = info.block_values;
  const int64_t skipped = first % size;
  data += first / size * info.block_bytes;
  if (skipped == 0 && count % size == 0) {
    dequantize(type, data, {out, static_cast<size_t>(count)});
    return;
  }
  std::vector<float> blocks(static_cast<size_t>((skipped + count + size - 1) / size * size));
  dequantize(type, data, blocks);
  std::copy_n(blocks.begin() + skipped, count, out);
}

}  // namespace

void Checkpoint::read(const CheckpointTensor& tensor, int64_t stride, int64_t begin, int64_t end,
                      int64_t column, int64_t cols, float* out) const {
  const TensorCoding& coding = *tensor.coding;
  const std::byte* data = bytes(tensor).data();
  if (cols == stride && coding.interleaved_heads == 0) {
    read_values(coding.type, data, begin * stride, (end - begin) * stride, out);
  } else {
    const int64_t head = coding.interleaved_heads == 0 ? 0 : tensor.shape.front() / coding.interleaved_heads;
    for (int64_t row = begin; row < end; ++row) {
      int64_t from = row;
      if (head != 0) {
        const int64_t i = row % head, half = head / 2;
        from = row - i + 2 * (i % half) + i / half;
      }
      read_values(coding.type, data, from * stride + column, cols, out + (row - begin) * cols);
    }
  }
  if (coding.restore) coding.restore({out, static_cast<size_t>((end - begin) * cols)});
}

Checkpoint open_checkpoint(const fs::path& dir) {
  std::error_code ec;
  std::map<std::string, std::string> index;
  std::set<std::string> names;
  // A link to nothing is there too, and said to be that.
  const auto is_there = [&](const char* name) { return fs::exists(fs::symlink_status(dir / name, ec)); };
  if (fs::exists(dir / kIndex, ec) || (is_there(kIndex) && !is_there(kSingle))) {
    index = read_index(dir / kIndex);
    for (const auto& [tensor, file] : index) names.insert(file);
  } else if (is_there(kSingle)) {
    names.insert(kSingle);
  } else {
    const std::string others = other_weights(dir);
    throw Error(ErrorCode::kNotFound,
                Problem{.message = "the folder has no weights that can be read",
                        .source = dir.string(),
                        .expected = std::string(kSingle) + ", or " + kIndex + " and the files it names",
                        .actual = others.empty() ? "neither" : others,
                        .hint = "download the checkpoint in safetensors format"});
  }

  Checkpoint out;
  ProblemList problems;
  std::unordered_map<std::string, std::string> where;
  for (const std::string& name : names) {
    if (!fs::exists(dir / name, ec) && !ec) {
      const bool link = fs::is_symlink(dir / name, ec);
      problems.add({.message = link ? "is a link to a file that is missing: " +
                                          fs::read_symlink(dir / name, ec).string()
                                    : "file is missing, though " + std::string(kIndex) + " names it",
                    .source = name,
                    .hint = "the download is incomplete: fetch this file again"});
      continue;
    }
    try {
      std::shared_ptr<const MappedFile> mapping = MappedFile::open(dir / name);
      for (SafeTensor& tensor : parse_safetensors(mapping->bytes(), name)) {
        const auto [it, fresh] = where.emplace(tensor.name, name);
        if (!fresh) {
          problems.add({.message = "tensor \"" + printable(tensor.name) + "\" is also in " + it->second,
                        .source = name});
        }
        CheckpointTensor& added = out.tensors.emplace_back();
        static_cast<SafeTensor&>(added) = std::move(tensor);
        added.file = out.files.size();
      }
      out.files.push_back({.name = name, .mapping = std::move(mapping)});
    } catch (const Error& error) {
      problems.add(error.problems());
    }
  }
  // Files that could not be read would only repeat themselves as missing tensors.
  problems.throw_if_any(ErrorCode::kMalformed);
  for (const auto& [tensor, file] : index) {
    const auto it = where.find(tensor);
    if (it == where.end()) {
      problems.add(
          {.message = "the file lacks tensor \"" + printable(tensor) + "\" that " + kIndex + " places there",
           .source = file});
    } else if (it->second != file) {
      problems.add({.message = "tensor \"" + printable(tensor) + "\" is in another file than the index says",
                    .source = kIndex,
                    .expected = file,
                    .actual = it->second});
    }
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  return out;
}

}  // namespace dovetail::convert
