// A package on disk: its documents and its weights.
#pragma once

#include <filesystem>
#include <optional>

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

}  // namespace dovetail::package
