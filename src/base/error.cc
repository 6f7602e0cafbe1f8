#include "base/error.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace dovetail {
namespace {

// Bytes of the character that `text` starts with; 0 when it is none or a control character.
size_t printable_bytes(std::string_view text) {
  const size_t size = utf8_character_bytes(text);
  const auto lead = static_cast<unsigned char>(text[0]);
  const bool control = size == 1   ? lead < 0x20 || lead == 0x7f
                       : size == 2 ? lead == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0
                                   : false;
  return control ? 0 : size;
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kMalformed:
      return "malformed";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kLimit:
      return "limit";
    case ErrorCode::kNumeric:
      return "numeric";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

std::string Problem::text() const {
  std::string out;
  if (!source.empty()) out += source + ": ";
  if (!field.empty()) out += field + ": ";
  out += message;
  if (!expected.empty() && !actual.empty()) {
    out += " (expected " + expected + ", got " + actual + ")";
  } else if (!expected.empty()) {
    out += " (expected " + expected + ")";
  } else if (!actual.empty()) {
    out += " (got " + actual + ")";
  }
  return out;
}

Error::Error(ErrorCode code, std::string message) : Error(code, Problem{.message = std::move(message)}) {}

Error::Error(ErrorCode code, Problem problem) : Error(code, std::vector<Problem>{std::move(problem)}) {}

Error::Error(ErrorCode code, std::vector<Problem> problems) : code_(code), problems_(std::move(problems)) {
  std::vector<std::string> hints;
  for (const Problem& problem : problems_) {
    if (!text_.empty()) text_ += '\n';
    text_ += problem.text();
    if (!problem.hint.empty() && std::find(hints.begin(), hints.end(), problem.hint) == hints.end()) {
      hints.push_back(problem.hint);
    }
  }
  for (const std::string& hint : hints) text_ += "\n  hint: " + hint;
}

std::string printable(std::string_view text, size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  size_t i = 0;
  while (i < text.size() && i < limit) {
    const size_t length = printable_bytes(text.substr(i));
    if (length > 0 && i + length > limit) break;
    if (length > 0) {
      out += text.substr(i, length);
    } else {
      const auto c = static_cast<unsigned char>(text[i]);
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    }
    i += std::max<size_t>(length, 1);
  }
  if (i < text.size()) out += "…";
  return out;
}

}  // namespace dovetail
