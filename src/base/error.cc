#include "base/error.h"

#include <algorithm>
#include <utility>

namespace dovetail {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage: return "usage";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kMalformed: return "malformed";
    case ErrorCode::kMismatch: return "mismatch";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kLimit: return "limit";
    case ErrorCode::kNumeric: return "numeric";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
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
  for (unsigned char c : text.substr(0, limit)) {
    if (c < 0x20 || c == 0x7f) {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += static_cast<char>(c);
    }
  }
  if (text.size() > limit) out += "…";
  return out;
}

}  // namespace dovetail
