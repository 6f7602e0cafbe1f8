// Compiled libraries: what a file says about itself, read without running its code, and the loaded library.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/artifact.h"
#include "library/functions.h"

namespace dovetail::library {

inline constexpr std::string_view kMetadataSection = ".dovetail.metadata";

// The machine that a library was built for, `_metadata.dovetail.target`. Libraries of other compilers have
// none.
struct Target {
  std::string arch;              // "x86_64"
  std::vector<std::string> cpu;  // levels with kernels of their own, lowest first: "x86-64-v3", "x86-64-v4"
};

// What is known of a library before it is loaded.
struct LibraryFile {
  std::filesystem::path path;
  std::string arch;                    // of the ELF header
  std::vector<std::string> functions;  // exported under the TVM-FFI convention, sorted
  std::string metadata_text;           // empty when the library has no metadata section
  std::optional<contract::LibraryMetadata> metadata;
  std::optional<Target> target;
  // `_metadata.dovetail.config`: "text" and the name of each adapter → the constants that its computation was
  // compiled with. Empty: not known.
  std::map<std::string, std::string> config;

  bool has_function(std::string_view name) const;

  // Any shared object can be inspected; one without the function _metadata is no model.
  std::optional<Problem> no_model() const;

  // Why this machine can't run it: another architecture, or a lowest level that the processor lacks.
  std::optional<Problem> unfit_machine() const;
};

// Reads the file's tables and metadata section; runs nothing. Throws Error kNotFound, kIo, kMalformed, or
// kUnsupported (no ELF shared object; a TVM Relax VM library).
LibraryFile inspect_library(const std::filesystem::path& path);

class Library {
 public:
  // Loads a library that fits this machine, whatever its file is called. A library without a metadata section
  // is asked for its metadata through the function `_metadata`. Throws Error kMismatch (machine, or no
  // model), kMalformed (metadata that differ from the section's), kUnsupported (the loader refuses the file).
  static Library load(LibraryFile file);

  const std::filesystem::path& path() const { return file_.path; }
  const LibraryFile& file() const { return file_; }
  const contract::LibraryMetadata& metadata() const { return *file_.metadata; }

  std::optional<LibraryFunction> find(std::string_view name) const;

 private:
  Library(LibraryFile file, tvm::ffi::Module module) : file_(std::move(file)), module_(std::move(module)) {}

  LibraryFile file_;
  tvm::ffi::Module module_;
};

}  // namespace dovetail::library
