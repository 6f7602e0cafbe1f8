// The nearest of a set of names, for hints about misspelt or renamed ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dovetail {

// The candidate with the smallest edit distance to `name`; null when there is none within a third of its
// length.
const std::string* most_similar(std::string_view name, std::span<const std::string> candidates);

}  // namespace dovetail
