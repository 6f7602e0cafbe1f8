#include "package/content_hashes.h"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "package/fields.h"
#include "package/paths.h"

namespace dovetail::package {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBlock = size_t{4} << 20;

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

void write_content_hashes(const fs::path& dir, std::vector<FileHash> files) {
  std::sort(files.begin(), files.end(), [](const FileHash& a, const FileHash& b) { return a.file < b.file; });
  Json list = Json::array();
  for (const FileHash& file : files) {
    list.push_back({{"path", file.file}, {"nbytes", file.bytes}, {"sha256", file.sha256}});
  }
  const Json document = {
      {"schema", "dovetail.content-hashes"}, {"schema_version", 1}, {"files", std::move(list)}};
  write_file_atomic(dir / kHashesFile, document.dump(2) + "\n");
}

std::vector<FileHash> parse_content_hashes(std::string_view json, const std::string& source) {
  const Json document = parse_json(json, source);
  ProblemList problems;
  Fields root(document, source, "", problems);
  if (const auto schema = root.string("schema"); schema && *schema != "dovetail.content-hashes") {
    root.problem("schema", "is another document", "\"dovetail.content-hashes\"",
                 "\"" + printable(*schema) + "\"");
  }
  root.integer("schema_version", 1, 1);
  std::vector<FileHash> files;
  std::unordered_set<std::string> names;
  const Json* list = root.array("files");
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    Fields fields((*list)[i], source, "files[" + std::to_string(i) + "]", problems);
    const auto path = fields.string("path");
    const auto bytes = fields.integer("nbytes", 0);
    const auto sha256 = fields.string("sha256");
    if (path) {
      if (const auto why = bad_relative_path(*path)) {
        fields.problem("path", "file name " + *why, {}, "\"" + printable(*path) + "\"");
      } else if (!names.insert(*path).second) {
        fields.problem("path", "is named twice", {}, "\"" + *path + "\"");
      }
    }
    if (sha256 && !is_sha256(*sha256)) {
      fields.problem("sha256", "is no SHA-256", "64 lower-case hexadecimal digits",
                     "\"" + printable(*sha256) + "\"");
    }
    if (path && bytes && sha256) files.push_back({.file = *path, .bytes = *bytes, .sha256 = *sha256});
  }
  problems.throw_if_any(ErrorCode::kMalformed);
  return files;
}

void hash_mapped(const MappedFile& file, std::initializer_list<Hasher*> hashers) {
  const std::span<const std::byte> bytes = file.bytes();
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::span<const std::byte> block = bytes.subspan(at, std::min(kBlock, bytes.size() - at));
    for (Hasher* hasher : hashers) hasher->update(block);
    file.release(at, block.size());
  }
}

FileHash hash_file(const fs::path& dir, const std::string& file, bool with_md5) {
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(dir / file);
  Hasher sha256(Hasher::Kind::kSha256);
  Hasher md5(Hasher::Kind::kMd5);
  if (with_md5) {
    hash_mapped(*mapped, {&sha256, &md5});
  } else {
    hash_mapped(*mapped, {&sha256});
  }
  return {.file = file,
          .bytes = static_cast<int64_t>(mapped->bytes().size()),
          .sha256 = sha256.hex(),
          .md5 = with_md5 ? md5.hex() : std::string()};
}

}  // namespace dovetail::package
