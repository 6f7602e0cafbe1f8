// Reads a model's configuration: every missing, mistyped or absurd value is collected by name, not only the
// first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace dovetail::models {

class ConfigReader {
 public:
  // `object` must be an object and outlive the reader. `path` is its place in the document, for messages.
  ConfigReader(const Json& object, std::string source, std::string path, std::vector<Problem>& problems)
      : object_(&object), source_(std::move(source)), path_(std::move(path)), problems_(&problems) {}

  // A value is absent when its key is missing or null.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  int64_t integer(std::string_view key, int64_t low, int64_t high,
                  std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, double low, double high, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;
  std::vector<std::string> texts(std::string_view key) const;  // empty when absent
  // The object under `key`; nullopt (and a problem when `required`) when absent or not an object.
  std::optional<ConfigReader> object(std::string_view key, bool required) const;
  const Json& json() const { return *object_; }
  void problem(std::string_view key, std::string message, std::string expected = {},
               std::string actual = {}) const;

 private:
  const Json* find(std::string_view key) const;

  const Json* object_;
  std::string source_;
  std::string path_;
  std::vector<Problem>* problems_;
};

}  // namespace dovetail::models
