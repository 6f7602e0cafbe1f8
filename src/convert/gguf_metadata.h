// Reads a GGUF file's metadata: every missing, mistyped or absurd value is collected by name, not only the
// first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/gguf.h"

namespace dovetail::convert {

// Keys are given without `prefix` ("llama.").
class GgufMetadata {
 public:
  GgufMetadata(const Gguf& gguf, std::string prefix, std::vector<Problem>& problems)
      : gguf_(&gguf), prefix_(std::move(prefix)), problems_(&problems) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Without a fallback, a missing value is a problem; so is one of another type or out of range.
  int64_t integer(std::string_view key, int64_t low, int64_t high,
                  std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, double low, double high, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;
  // One integer for each of `count` layers: an array of them, or one for all.
  std::vector<int64_t> integers(std::string_view key, int64_t count, int64_t low, int64_t high) const;
  // Null when the key is absent; a problem when the value is no array of `type`.
  const GgufArray* array(std::string_view key, GgufType type) const;
  void problem(std::string_view key, std::string message, std::string expected = {},
               std::string actual = {}) const;

 private:
  const GgufValue* find(std::string_view key) const { return gguf_->find(prefix_ + std::string(key)); }
  void missing(std::string_view key, std::string expected) const;

  const Gguf* gguf_;
  std::string prefix_;
  std::vector<Problem>* problems_;
};

}  // namespace dovetail::convert
