// Whether a package is whole: every file, every size, the weights against the manifest; with `deep`, every
// byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace dovetail::package {

struct VerifyReport {
  std::vector<Problem> problems;   // empty: the package is whole
  std::vector<std::string> notes;  // what could not be checked, and why
  int64_t files = 0;
  int64_t bytes = 0;  // of these files
  int64_t tensors = 0;
  int64_t hashed_bytes = 0;  // 0 unless deep
  bool listed = false;       // there is a list of hashes that can be read
};

// Runs nothing of the package. `deep` reads every file: SHA-256 of all, MD5 of the shards, and every float
// value (NaN nowhere; infinity only where a tensor has no dimensions, a limit that does not limit). Throws
// Error kNotFound when there is no such folder, and kCancelled.
VerifyReport verify_package(const std::filesystem::path& dir, bool deep,
                            const std::atomic<bool>* cancel = nullptr);

}  // namespace dovetail::package
