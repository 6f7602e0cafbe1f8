#include "base/similar.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace dovetail {
namespace {

// Levenshtein distance, or `limit` + 1 as soon as it is certain to exceed `limit`.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > b.size() + limit || b.size() > a.size() + limit) return limit + 1;
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    size_t best = row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
      best = std::min(best, row[j + 1]);
    }
    if (best > limit) return limit + 1;
  }
  return row.back();
}

}  // namespace

const std::string* most_similar(std::string_view name, std::span<const std::string> candidates) {
  const std::string* nearest = nullptr;
  size_t limit = name.size() / 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate, limit);
    if (distance > limit) continue;
    nearest = &candidate;
    if (distance == 0) break;
    limit = distance - 1;
  }
  return nearest;
}

}  // namespace dovetail
