// File names written inside a package's documents. They may only lead to files of the package.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dovetail::package {

// Why `name` can't be a file of a package: empty, absolute, with a drive letter, a backslash, "..", or
// control bytes. Nothing when it can.
std::optional<std::string> bad_relative_path(std::string_view name);

// Checks that `dir`/`name` is a regular file that lies inside `dir` after all symbolic links are followed.
// Nothing when it is. The problem's source is `name`.
std::optional<Problem> bad_package_file(const std::filesystem::path& dir, const std::string& name);

}  // namespace dovetail::package
