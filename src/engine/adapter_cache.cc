#include "engine/adapter_cache.h"

namespace dovetail::engine {

std::optional<library::Rows> AdapterCache::find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->rows;
}

void AdapterCache::insert(const std::string& key, library::Rows rows) {
  const int64_t size = rows.rows * rows.width * static_cast<int64_t>(sizeof(float));
  if (size > capacity_ || by_key_.contains(key)) return;
  while (bytes_ + size > capacity_) {
    bytes_ -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front({key, std::move(rows), size});
  by_key_[key] = entries_.begin();
  bytes_ += size;
}

}  // namespace dovetail::engine
