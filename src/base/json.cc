#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

namespace dovetail {
namespace {

// Whether the exact value of a JSON number is an integer: no digit but 0 stays behind the decimal point.
bool is_integer_literal(std::string_view literal) {
  const size_t exponent_at = std::min(literal.find_first_of("eE"), literal.size());
  std::string_view digits = literal.substr(0, exponent_at);
  const size_t point = std::min(digits.find('.'), digits.size());
  const auto decimals = static_cast<int64_t>(digits.size() - std::min(point + 1, digits.size()));
  // The place of the last digit that is not 0, counted from the decimal point: 1.20 -> -1, 1200 -> 2.
  const size_t last = digits.find_last_of("123456789");
  if (last == std::string_view::npos) return true;
  int64_t place = -decimals;
  for (size_t i = digits.size() - 1; i > last; --i) place += digits[i] != '.';
  if (exponent_at == literal.size()) return place >= 0;
  std::string_view exponent = literal.substr(exponent_at + 1);
  const bool negative = exponent.starts_with('-');
  if (negative || exponent.starts_with('+')) exponent.remove_prefix(1);
  int64_t shift = 0;
  // Far more than any double and any literal in memory; the rest of the digits can't change the answer.
  constexpr int64_t kEnough = int64_t{1} << 50;
  for (const char c : exponent) shift = std::min(shift * 10 + (c - '0'), kEnough);
  return place + (negative ? -shift : shift) >= 0;
}

// Builds the value and refuses what nlohmann's own parser lets through.
class StrictReader : public nlohmann::json_sax<Json> {
 public:
  StrictReader(std::string_view text, std::string_view source, int max_depth)
      : text_(text), source_(source), max_depth_(max_depth) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& literal) override {
    if (std::trunc(value) == value && !is_integer_literal(literal)) {
      fail("the number " + printable(literal, 40) + " can't be represented: its fraction would be lost");
    }
    return put(value);
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second) fail("duplicate member \"" + printable(name) + "\"");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // nlohmann counts the bytes it has read; a bad character may be noticed behind its first byte.
    position -= std::min<size_t>(position, 1);
    if (const size_t bad = find_invalid_utf8(text_); bad <= position) {
      fail("not valid JSON at byte " + std::to_string(bad) +
           ": the text is not UTF-8: " + printable(text_.substr(bad, 1)));
    }
    std::string message = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": keep from "line" on, or drop the
    // tag.
    const size_t line = message.find("line ");
    const size_t tag = message.find("] ");
    if (line != std::string::npos) {
      message = message.substr(line);
    } else if (tag != std::string::npos) {
      message = message.substr(tag + 2);
    }
    fail("not valid JSON at byte " + std::to_string(position) + ": " + printable(message, 300));
  }

  Json take() { return std::move(root_); }

 private:
  [[noreturn]] void fail(std::string message) const {
    throw Error(ErrorCode::kMalformed,
                Problem{.message = std::move(message), .source = std::string(source_)});
  }
  Json* add(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // Not operator[], which searches linearly: names_ has already ruled duplicates out.
    auto& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }
  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (static_cast<int>(stack_.size()) >= max_depth_) {
      fail("nested deeper than " + std::to_string(max_depth_) + " levels");
    }
    // The parent container may grow later, but only while this child is closed, so the pointer stays valid.
    Json* const child = add(std::move(value));
    stack_.push_back(child);
    names_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    names_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view source_;
  int max_depth_;
  Json root_;
  std::string key_;
  std::vector<Json*> stack_;
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  StrictReader reader(text, source, max_depth);
  // nlohmann skips a byte order mark; JSON text exchanged between systems must not have one (RFC 8259, 8.1).
  if (text.starts_with("\xef\xbb\xbf")) {
    throw Error(ErrorCode::kMalformed,
                Problem{.message = "starts with a byte order mark", .source = std::string(source)});
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw Error(ErrorCode::kMalformed,
                Problem{.message = "is empty; JSON is expected", .source = std::string(source)});
  }
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

Json read_json(const std::filesystem::path& path, int max_depth) {
  return parse_json(read_file(path), path.string(), max_depth);
}

}  // namespace dovetail
