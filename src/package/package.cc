#include "package/package.h"

#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "package/paths.h"

namespace dovetail::package {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{16} << 20;

template <class Read>
void collect(ProblemList& problems, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    problems.add(error.problems());
  }
}

}  // namespace

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
  const std::string manifest(contract::kManifestFile);
  if (fs::exists(fs::symlink_status(dir / manifest, ec))) {
    collect(problems, [&] {
      if (std::optional<Problem> bad = bad_package_file(dir, manifest))
        throw Error(ErrorCode::kMalformed, std::move(*bad));
      parts.manifest = contract::parse_package_manifest(read_file(dir / manifest, kMaxManifestBytes));
    });
  }
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
