// Whether a package and a library fit each other, before either is used.
#pragma once

#include <filesystem>
#include <optional>
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
  std::optional<contract::PackageManifest> manifest;  // none: the package loads from its chat config alone
  package::ChatConfig chat_config;
  contract::NamedDimensions dimensions;  // of the chat config
  package::TensorCache tensors;
};

// Maps the shards, reads no weights. Throws Error with all problems of all documents, and all files that are
// missing.
PackageDocuments read_package_documents(const std::filesystem::path& dir);

// The program that a library has by the names of its functions, as MLC's engines take it where there is no
// contract: embed, prefill, decode and create_tir_paged_kv_cache, or the functions that take token IDs. Text
// alone.
contract::Program program_by_names(const LibraryFile& library);

// Everything that keeps `library` from running the package: the machine, the contract, the parameters one by
// one, and, when all of these fit, the constants that were compiled in. Without a manifest the library's
// artifact means nothing; the functions that program_by_names() needs must be there. Hints name the half to
// make anew and the command for it. Empty: they fit.
std::vector<Problem> mismatches(const PackageDocuments& package, const LibraryFile& library);

}  // namespace dovetail::library
