// Reads documents field by field and collects everything that is wrong instead of stopping at the first
// field. Internal to the contract folder.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace dovetail::contract {

// Integers beyond 2^53 - 1 are not exact in every reader of these documents.
inline constexpr int64_t kMaxInteger = (int64_t{1} << 53) - 1;

// Problems of one document. After a hundred it only counts, so that a hostile document can't flood the
// terminal.
class ProblemList {
 public:
  explicit ProblemList(std::string source) : source_(std::move(source)) {}
  // `problem.source` is filled in when it is empty.
  void add(Problem problem);
  bool empty() const { return problems_.empty(); }
  std::vector<Problem> take();

 private:
  std::string source_;
  std::vector<Problem> problems_;
  size_t left_out_ = 0;
};

// "tasks" + "chat.completions" -> tasks["chat.completions"]; "a" + "b" -> a.b
std::string member_path(std::string_view parent, std::string_view name);
std::string element_path(std::string_view parent, size_t index);

std::string in_quotes(std::string_view text);
// A short rendering for "got …": the value of a scalar, the kind and size of a container.
std::string describe(const Json& value);
// `"a", "b" or "c"`
std::string any_of(const std::vector<std::string_view>& names);

// The readers report and return nullopt when the value is not what is asked for.
std::optional<std::string> read_text(const Json& value, const std::string& path, ProblemList& problems);
std::optional<std::string> read_id(const Json& value, const std::string& path, ProblemList& problems);
// Numbers such as 1.0 or 1e0 are the integer 1.
std::optional<int64_t> as_integer(const Json& value);
std::optional<int64_t> read_integer(const Json& value, const std::string& path, int64_t min,
                                    ProblemList& problems);

// One object of a document. Members that were never asked for are unknown fields.
class ObjectReader {
 public:
  // Reports when `value` is not an object; everything below is then silent.
  ObjectReader(const Json& value, std::string path, ProblemList& problems);

  explicit operator bool() const { return object_ != nullptr; }
  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return member_path(path_, name); }

  const Json* optional(std::string_view name);
  const Json* required(std::string_view name);
  std::string text(std::string_view name);
  std::string id(std::string_view name);
  // The value must be one of `accepted`.
  std::string choice(std::string_view name, const std::vector<std::string_view>& accepted);
  // nullopt after a report. An absent member with a fallback is no problem.
  std::optional<int64_t> integer(std::string_view name, int64_t min,
                                 std::optional<int64_t> fallback = std::nullopt);
  // The number must be exactly `value`.
  void constant(std::string_view name, int64_t value);
  // Calls read(key, value, path) for each member of an object with non-empty names.
  using MemberReader = std::function<void(const std::string&, const Json&, const std::string&)>;
  void members(std::string_view name, bool is_required, size_t min_count, const MemberReader& read);

  // Reports every member that was not asked for.
  void refuse_unknown();

 private:
  const Json* object_ = nullptr;
  std::string path_;
  ProblemList& problems_;
  std::vector<std::string_view> known_;
};

}  // namespace dovetail::contract
