#include "media/base64.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace dovetail::media {
namespace {

// Value of a base64 digit, -1 when it is none.
int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f'; }

[[noreturn]] void fail(std::string_view name, std::string message, std::string actual) {
  throw Error(ErrorCode::kMalformed, Problem{.message = std::move(message),
                                             .source = std::string(name),
                                             .actual = std::move(actual),
                                             .hint = "encode it with: base64 -w0 FILE"});
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

std::vector<std::byte> decode_base64_or_data_url(std::string_view text, std::string_view kind,
                                                 std::string_view name) {
  if (lower(text.substr(0, 5)) == "data:") {
    const size_t comma = text.find(',');
    const std::string head = lower(text.substr(0, std::min(comma, size_t{200})));
    const bool plain = std::count(head.begin(), head.end(), ';') == 1 && head.ends_with(";base64");
    if (comma == std::string_view::npos || !plain || !head.starts_with("data:" + std::string(kind) + "/")) {
      fail(name, "data URLs must contain base64-encoded " + std::string(kind), printable(head, 80));
    }
    text.remove_prefix(comma + 1);
  }
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t buffer = 0;
  size_t digits = 0;
  size_t padding = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_space(text[i])) continue;
    if (text[i] == '=') {
      ++padding;
      continue;
    }
    const int value = digit(text[i]);
    if (value < 0 || padding > 0) {
      fail(name, std::string(kind) + " data is not valid base64",
           "\"" + printable(text.substr(i, 1)) + "\" at position " + std::to_string(i));
    }
    buffer = buffer << 6 | static_cast<uint32_t>(value);
    if (++digits % 4 != 1)
      bytes.push_back(static_cast<std::byte>(buffer >> (6 - 2 * ((digits - 1) % 4)) & 0xFF));
  }
  if (digits % 4 == 1 || (padding > 0 && (digits + padding) % 4 != 0) || padding > 2) {
    fail(name, std::string(kind) + " data is not valid base64",
         std::to_string(digits) + " digits, " + std::to_string(padding) + " padding characters");
  }
  return bytes;
}

std::string encode_base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](size_t i) {
      return at + i < bytes.size() ? std::to_integer<unsigned>(bytes[at + i]) : 0u;
    };
    const unsigned group = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t i = 0; i < 4; ++i) out += at + i > bytes.size() ? '=' : kAlphabet[group >> (18 - 6 * i) & 63];
  }
  return out;
}

}  // namespace dovetail::media
