// A package on disk: its documents and its weights.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "package/chat_config.h"
#include "package/fields.h"
#include "package/tensor_cache.h"

namespace dovetail::package {

// The manifest of a package; nullopt when it has none and never had one. Throws Error: kMalformed for a
// manifest that is there and wrong, kNotFound for one that the package's list of hashes names and that is
// gone.
std::optional<contract::PackageManifest> read_manifest(const std::filesystem::path& dir);

struct Package {
  std::filesystem::path dir;
  ChatConfig chat_config;
  std::optional<contract::PackageManifest> manifest;  // packages made by others need not have one
  TensorCache tensors;

  // Throws Error with everything that is missing or wrong: kNotFound when there is no such folder, else
  // kMalformed.
  static Package open(const std::filesystem::path& dir);
};

// The parts of a package that could be read; the problems of the others are added to `problems`.
struct PackageParts {
  std::optional<ChatConfig> chat_config;
  std::optional<contract::PackageManifest> manifest;
  std::optional<TensorCache> tensors;
};

PackageParts read_package_parts(const std::filesystem::path& dir, ProblemList& problems);

// Throws Error kUsage when a file written to `output`, all links followed, would take the place of one of
// `inputs` or of one that belongs to the package: a document (also one that the package could have and has
// not), the weights, the tokenizer. Throws kNotFound when there is no such package folder.
void check_output(const std::filesystem::path& output, const std::filesystem::path& dir,
                  const std::vector<std::filesystem::path>& inputs = {});

}  // namespace dovetail::package
