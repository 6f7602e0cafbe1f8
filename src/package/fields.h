// Reading members of a JSON object from outside: every missing member, wrong type and value out of range
// becomes a Problem with its path, and reading goes on, so that all of them are reported at once.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace dovetail::package {

// Problems in the order found. Keeps the first 100 and counts the rest, so that a hostile file can't fill
// memory.
class ProblemList {
 public:
  void add(Problem problem);
  void add(const std::vector<Problem>& problems);
  bool empty() const { return problems_.empty(); }
  const std::vector<Problem>& kept() const { return problems_; }
  int64_t count() const { return static_cast<int64_t>(problems_.size()) + dropped_; }
  // The problems kept, then one line that counts the others.
  std::vector<Problem> take();
  void throw_if_any(ErrorCode code);

 private:
  std::vector<Problem> problems_;
  int64_t dropped_ = 0;
};

std::string_view json_type_name(const Json& value);

enum class Presence { kRequired, kOptional };

// The members of one object. `source` is the document's name and `path` the object's path inside it ("" for
// the root). A value that is no object gives one problem, and every member then reads as absent.
class Fields {
 public:
  Fields(const Json& value, std::string_view source, std::string path, ProblemList& problems);

  // Each returns nothing when the member is absent, null and optional, or wrong (then a problem was added).
  std::optional<std::string> string(std::string_view name, Presence presence = Presence::kRequired);
  std::optional<bool> boolean(std::string_view name, Presence presence = Presence::kRequired);
  std::optional<int64_t> integer(std::string_view name, int64_t min,
                                 int64_t max = std::numeric_limits<int64_t>::max(),
                                 Presence presence = Presence::kRequired);
  std::optional<double> number(std::string_view name, double min, double max,
                               Presence presence = Presence::kRequired);
  const Json* array(std::string_view name, Presence presence = Presence::kRequired);
  const Json* object(std::string_view name, Presence presence = Presence::kRequired);
  std::optional<std::vector<std::string>> strings(std::string_view name,
                                                  Presence presence = Presence::kRequired);
  std::optional<std::vector<int64_t>> integers(std::string_view name, int64_t min, int64_t max,
                                               Presence presence = Presence::kRequired);
  // The value as it is; null pointer when absent.
  const Json* find(std::string_view name) const;

  std::string path_of(std::string_view name) const;
  void problem(std::string_view name, std::string message, std::string expected = {}, std::string actual = {},
               std::string hint = {});

 private:
  const Json* need(std::string_view name, Presence presence);
  void wrong_type(std::string_view name, std::string_view expected, const Json& value);

  const Json* object_;  // null when the value is not an object
  std::string_view source_;
  std::string path_;
  ProblemList& problems_;
};

}  // namespace dovetail::package
