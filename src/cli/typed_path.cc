#include "cli/typed_path.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace dovetail::cli {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string without_trailing_blanks(const std::string& text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Where a quote is left open, the text was not written for a shell.
std::string unquoted(const std::string& text) {
  std::string out;
  size_t end = 0;  // of what stays: blanks behind it are no part of the path, unless quoted
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view next = std::string_view(text).substr(i + 1, 1);
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && !next.empty() &&
               (quote == 0 || (quote == '"' && next.find_first_of("\"\\$`") == 0))) {
      out += next;
      ++i;
    } else {
      out += c;
      if (quote == 0 && kBlanks.find(c) != std::string_view::npos) continue;
    }
    end = out.size();
  }
  return quote == 0 ? out.substr(0, end) : without_trailing_blanks(text);
}

std::string with_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  const bool known = home != nullptr && *home != '\0';
  return known && path.starts_with("~/") ? home + path.substr(1) : path;
}

}  // namespace

std::string typed_path(const std::string& text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  const std::string typed = text.substr(begin);
  for (const std::string& literal : {typed, without_trailing_blanks(typed)}) {
    const std::string path = with_home(literal);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return with_home(unquoted(typed));
}

}  // namespace dovetail::cli
