// An ordered map from names to values: the objects of the two documents keep their file order.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::contract {

template <class T>
using Named = std::vector<std::pair<std::string, T>>;

// nullptr when there is no such name. Linear: these maps have a handful of entries.
template <class T>
const T* find_named(const Named<T>& entries, std::string_view name) {
  for (const auto& [key, value] : entries) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace dovetail::contract
