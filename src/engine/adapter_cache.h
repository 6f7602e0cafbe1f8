// Adapter outputs kept for media that come again.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "library/functions.h"

namespace dovetail::engine {

class AdapterCache {
 public:
  // 0 keeps nothing.
  explicit AdapterCache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  std::optional<library::Rows> find(const std::string& key);
  // The least recently used entries make room; an entry larger than the capacity is not kept.
  void insert(const std::string& key, library::Rows rows);
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string key;
    library::Rows rows;
    int64_t bytes;
  };
  int64_t capacity_;
  int64_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace dovetail::engine
