#include "cli/report.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/progress.h"

namespace dovetail::cli {
namespace {

constexpr size_t kLabelWidth = 22;
constexpr size_t kPartWidth = 56;

// Columns that UTF-8 text takes, one per code point.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

// "model.layers.3.mlp.down_proj.q_weight" becomes "model.layers.*.mlp".
std::string part_of(const std::string& name) {
  std::vector<std::string> words;
  size_t at = 0;
  while (at <= name.size()) {
    const size_t end = std::min(name.find('.', at), name.size());
    words.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  if (words.size() > 1) words.pop_back();
  std::string out;
  size_t after_index = 0;
  for (size_t i = 0; i < words.size() && after_index < 2 && i < 5; ++i) {
    const bool number = words[i].find_first_not_of("0123456789") == std::string::npos;
    out += (out.empty() ? "" : ".") + (number ? std::string("*") : words[i]);
    if (number || after_index > 0) ++after_index;
  }
  return out;
}

struct Part {
  std::string name;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

}  // namespace

size_t terminal_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string wrapped(std::string_view text, size_t indent, size_t columns) {
  if (columns < indent + 20) return std::string(text);
  std::string out;
  size_t used = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t width = width_of(word);
    if (used > indent && used + 1 + width > columns) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++used;
    }
    out += word;
    used += width;
  }
  return out;
}

void print_row(std::string_view label, std::string_view value) {
  const bool bold = terminal_colors(STDOUT_FILENO);
  const std::string name = printable(label, label.size());
  const std::string text = wrapped(printable(value, value.size()), kLabelWidth + 1, terminal_columns());
  std::printf("%s%-*s%s %s\n", bold ? "\x1b[1m" : "", static_cast<int>(kLabelWidth), name.c_str(),
              bold ? "\x1b[0m" : "", text.c_str());
}

void print_heading(std::string_view text) {
  const bool colour = terminal_colors(STDOUT_FILENO);
  std::printf("\n%s%.*s%s\n", colour ? "\x1b[1;36m" : "", static_cast<int>(text.size()), text.data(),
              colour ? "\x1b[0m" : "");
}

std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string count_text(int64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e9) return decimal(value / 1e9, 2) + " billion";
  if (value >= 1e6) return decimal(value / 1e6, 2) + " million";
  return std::to_string(count);
}

void print_parts(const std::vector<SizedTensor>& tensors) {
  std::vector<Part> parts;
  int64_t total = 0;
  for (const SizedTensor& tensor : tensors) {
    const std::string name = part_of(tensor.name);
    auto found =
        std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.name == name; });
    if (found == parts.end()) found = parts.insert(parts.end(), {.name = name});
    ++found->tensors;
    found->bytes += tensor.bytes;
    total += tensor.bytes;
  }
  // Small parts would bury those that matter.
  Part rest{.name = "everything else"};
  std::erase_if(parts, [&](const Part& part) {
    if (part.bytes >= total / 1000) return false;
    rest.tensors += part.tensors;
    rest.bytes += part.bytes;
    return true;
  });
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  if (rest.tensors > 0) parts.push_back(rest);
  const bool bold = terminal_colors(STDOUT_FILENO);
  std::printf("\n%s%-*s %8s %10s %7s%s\n", bold ? "\x1b[1m" : "", static_cast<int>(kPartWidth), "part",
              "tensors", "size", "share", bold ? "\x1b[0m" : "");
  for (const Part& part : parts) {
    std::string name = printable(part.name, kPartWidth - 1);
    name.append(kPartWidth - std::min(kPartWidth, width_of(name)), ' ');
    std::printf("%s %8ld %10s %6.1f%%\n", name.c_str(), static_cast<long>(part.tensors),
                format_bytes(part.bytes).c_str(),
                100.0 * static_cast<double>(part.bytes) / static_cast<double>(std::max<int64_t>(total, 1)));
  }
}

void print_document(const Json& document) {
  std::printf("%s\n", document.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace dovetail::cli
