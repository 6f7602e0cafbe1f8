#include "package/package.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "package/content_hashes.h"
#include "package/paths.h"

namespace dovetail::package {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{16} << 20;
constexpr int64_t kMaxHashesBytes = int64_t{64} << 20;

template <class Read>
void collect(ProblemList& problems, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    problems.add(error.problems());
  }
}

// True when the package's list of hashes names a manifest. A list that can't be read is a matter of
// verification.
bool lost_manifest(const fs::path& dir) {
  const std::string list(kHashesFile);
  std::error_code ec;
  if (!fs::exists(dir / list, ec) || bad_package_file(dir, list)) return false;
  try {
    const std::vector<FileHash> hashes = parse_content_hashes(read_file(dir / list, kMaxHashesBytes));
    return std::any_of(hashes.begin(), hashes.end(),
                       [](const FileHash& hash) { return hash.file == contract::kManifestFile; });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<contract::PackageManifest> read_manifest(const fs::path& dir) {
  const std::string manifest(contract::kManifestFile);
  std::error_code ec;
  if (fs::exists(fs::symlink_status(dir / manifest, ec))) {
    if (std::optional<Problem> bad = bad_package_file(dir, manifest))
      throw Error(ErrorCode::kMalformed, std::move(*bad));
    return contract::parse_package_manifest(read_file(dir / manifest, kMaxManifestBytes));
  }
  if (!lost_manifest(dir)) return std::nullopt;
  throw Error(
      ErrorCode::kNotFound,
      Problem{.message = "file is missing",
              .source = manifest,
              .expected = std::string(kHashesFile) + " lists it: the package was made with a manifest",
              .hint = "fetch this file again, or convert the checkpoint again"});
}

PackageParts read_package_parts(const fs::path& dir, ProblemList& problems) {
  std::error_code ec;
  if (!fs::is_directory(dir, ec)) {
    throw Error(
        ErrorCode::kNotFound,
        Problem{.message = fs::exists(dir, ec) ? "is not a folder" : "there is no such package folder",
                .source = dir.string(),
                .hint = "make a package with 'dovetail convert'"});
  }
  PackageParts parts;
  collect(problems, [&] { parts.chat_config = read_chat_config(dir); });
  collect(problems, [&] { parts.manifest = read_manifest(dir); });
  collect(problems, [&] { parts.tensors = TensorCache::open(dir); });
  if (parts.chat_config) {
    for (const std::string& file : parts.chat_config->tokenizer_files) {
      if (std::optional<Problem> bad = bad_package_file(dir, file)) problems.add(std::move(*bad));
    }
  }
  return parts;
}

Package Package::open(const fs::path& dir) {
  ProblemList problems;
  PackageParts parts = read_package_parts(dir, problems);
  problems.throw_if_any(ErrorCode::kMalformed);
  return {.dir = dir,
          .chat_config = std::move(*parts.chat_config),
          .manifest = std::move(parts.manifest),
          .tensors = std::move(*parts.tensors)};
}

}  // namespace dovetail::package
