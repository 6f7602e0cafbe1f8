// A package and a library that fit each other, opened together.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "library/library.h"
#include "library/program.h"
#include "package/chat_config.h"
#include "package/tensor_cache.h"
#include "package/tokenizer.h"

namespace dovetail::library {

// Members are destroyed in reverse order: nothing that points into the library outlives it.
struct Model {
  std::filesystem::path package;
  std::optional<contract::PackageManifest> manifest;  // none: text alone
  contract::Task task;                                // chat.completions
  package::ChatConfig chat_config;
  package::Tokenizer tokenizer;
  package::TensorCache weights;
  Library library;
  Program program;

  const contract::LibraryMetadata& metadata() const { return library.metadata(); }
};

// The libraries of a package: <package>/lib/*.so, else <package>/*.so, sorted by name.
// Throws Error kIo when such a folder can't be read.
std::vector<std::filesystem::path> package_libraries(const std::filesystem::path& package);

// Opens a package with the given library, or with the best of its own that this machine can run. In order:
// the package's documents, the library's metadata (without running it), whether both fit each other and this
// machine, the library itself, the weights (every byte, against the recorded hashes). Throws Error; kMismatch
// carries everything that does not fit and the command that makes the wrong half anew.
Model open_model(const std::filesystem::path& package,
                 const std::optional<std::filesystem::path>& library = {});

}  // namespace dovetail::library
