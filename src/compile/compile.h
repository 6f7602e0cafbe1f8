// A package's model → a shared library for this machine's kind of CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/plan.h"
#include "ops/types.h"

namespace dovetail::compile {

// "x86-64-v3,x86-64-v4" → levels, lowest first. Throws Error kUsage for unknown names or an empty list.
std::vector<ops::Level> parse_levels(const std::string& text);

// The plan of a package: its configuration and quantization, checked against its manifest. Of a package
// without one: text alone, from MLC's form of the configuration, and the library has no artifact. Throws
// Error kMismatch when this version would compute other identifiers than the manifest holds.
models::ModelPlan plan_package(const std::filesystem::path& package);

struct CompileResult {
  std::filesystem::path library;
  int64_t bytes = 0;
  double seconds = 0;
  std::string compiler_version;
};

// Writes `output` at once or not at all. Throws Error kNotFound (tool chain), kIo, kInternal (the compiler
// refused the file: its command and last lines are shown), kCancelled soon after `*cancel` became true.
CompileResult compile_library(const models::ModelPlan& plan, const std::vector<ops::Level>& levels,
                              const std::filesystem::path& output, const std::atomic<bool>* cancel = nullptr);

// Where a package's library goes by default: <package>/lib/<model type>-<quantization>-x86_64.so.
std::filesystem::path default_library_path(const std::filesystem::path& package,
                                           const models::ModelPlan& plan);

}  // namespace dovetail::compile
