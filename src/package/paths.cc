#include "package/paths.h"

#include <algorithm>
#include <system_error>

namespace dovetail::package {
namespace fs = std::filesystem;

std::optional<std::string> bad_relative_path(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > 255) return "is longer than 255 bytes";
  for (unsigned char c : name) {
    if (c < 0x20 || c == 0x7f) return "contains a control byte";
    if (c == '\\' || c == ':') return std::string("contains \"") + static_cast<char>(c) + "\"";
  }
  if (name.front() == '/') return "is an absolute path";
  for (const fs::path& part : fs::path(name)) {
    if (part == ".." || part == "." || part.empty())
      return "leaves the package or is not in its shortest form";
  }
  return std::nullopt;
}

std::optional<Problem> bad_package_file(const fs::path& dir, const std::string& name) {
  if (std::optional<std::string> why = bad_relative_path(name)) {
    return Problem{.message = "file name " + *why, .source = printable(name)};
  }
  std::error_code ec;
  const fs::path root = fs::canonical(dir, ec);
  if (ec) return Problem{.message = "folder can't be opened: " + ec.message(), .source = dir.string()};
  if (!fs::is_directory(root, ec)) return Problem{.message = "is not a folder", .source = dir.string()};
  const fs::path target = fs::canonical(root / name, ec);
  if (ec == std::errc::no_such_file_or_directory || ec == std::errc::not_a_directory) {
    const bool link = fs::is_symlink(fs::symlink_status(root / name, ec));
    return Problem{.message = link ? "is a symbolic link to a file that does not exist" : "file is missing",
                   .source = name,
                   .hint = "fetch or convert the package again; it is not complete"};
  }
  if (ec) return Problem{.message = "file can't be opened: " + ec.message(), .source = name};
  if (std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first != root.end()) {
    return Problem{.message = "is a symbolic link that leaves the package",
                   .source = name,
                   .expected = "a file in " + root.string(),
                   .actual = target.string(),
                   .hint = "copy the package with its links followed: cp -rL <package> <copy>"};
  }
  if (!fs::is_regular_file(target, ec)) return Problem{.message = "is not a regular file", .source = name};
  return std::nullopt;
}

}  // namespace dovetail::package
