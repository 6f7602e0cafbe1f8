// Whether a package and a library fit each other, before either is used.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "contract/artifact.h"
#include "contract/manifest.h"
#include "library/library.h"
#include "package/chat_config.h"
#include "package/tensor_cache.h"

namespace dovetail::library {

// The package's documents; `tensors` has no shards mapped.
struct PackageDocuments {
  std::filesystem::path dir;
  contract::PackageManifest manifest;
  package::ChatConfig chat_config;
  contract::NamedDimensions dimensions;  // of the chat config
  package::TensorCache tensors;
};

// Throws Error with all problems of all documents.
PackageDocuments read_package_documents(const std::filesystem::path& dir);

// Everything that keeps `library` from running the package: the machine, the contract, the parameters one by
// one. Hints name the half to make anew and the command for it. Empty: they fit.
std::vector<Problem> mismatches(const PackageDocuments& package, const LibraryFile& library);

}  // namespace dovetail::library
