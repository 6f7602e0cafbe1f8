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

// What the package's list of hashes names; nothing when there is none. A list that can't be read is a matter
// of verification.
std::vector<FileHash> listed_files(const fs::path& dir) {
  const std::string list(kHashesFile);
  std::error_code ec;
  if (!fs::exists(dir / list, ec) || bad_package_file(dir, list)) return {};
  try {
    return parse_content_hashes(read_file(dir / list, kMaxHashesBytes));
  } catch (const Error&) {
    return {};
  }
}

bool lost_manifest(const fs::path& dir) {
  const std::vector<FileHash> files = listed_files(dir);
  return std::any_of(files.begin(), files.end(),
                     [](const FileHash& file) { return file.file == contract::kManifestFile; });
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
  throw Error(ErrorCode::kNotFound,
              Problem{.message = "file is missing: " + std::string(kHashesFile) +
                                 " lists it, so the package was made with a manifest",
                      .source = manifest,
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

void check_output(const fs::path& output, const fs::path& dir, const std::vector<fs::path>& inputs) {
  std::error_code ec;
  const auto canonical = [&](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path, ec), ec);
  };
  const fs::path target = canonical(output);
  if (target.empty()) return;  // a link in a circle or too long a name: no file can be written there
  const auto keep = [&](const fs::path& file, const std::string& what) {
    if (canonical(file) != target) return;
    throw Error(ErrorCode::kUsage,
                Problem{.message = "the output would take the place of " + what + ", " + file.string(),
                        .source = output.string(),
                        .hint = "give the output another name"});
  };
  for (const fs::path& input : inputs) keep(input, "an input");
  keep(dir / kChatConfigFile, "the package's configuration");
  keep(dir / contract::kManifestFile, "the package's manifest");
  keep(dir / kHashesFile, "the package's list of hashes");
  keep(dir / kTensorCacheFile, "the package's list of tensors");
  keep(dir / kOldTensorCacheFile, "the package's list of tensors");
  ProblemList ignored;  // whoever reads the package reports them
  const PackageParts parts = read_package_parts(dir, ignored);
  if (parts.chat_config) {
    for (const std::string& file : parts.chat_config->tokenizer_files)
      keep(dir / file, "the package's tokenizer");
  }
  if (parts.tensors) {
    for (const Shard& shard : parts.tensors->shards()) keep(dir / shard.file, "the package's weights");
  }
  for (const FileHash& file : listed_files(dir)) keep(dir / file.file, "a file of the package");
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
