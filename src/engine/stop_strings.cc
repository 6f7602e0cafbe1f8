#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace dovetail::engine {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return "";
  held_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    found_ = true;
    std::string text = held_.substr(0, first);
    held_.clear();
    return text;
  }
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > hold; --length) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) hold = length;
    }
  }
  std::string text = held_.substr(0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return text;
}

std::string StopStrings::finish() { return std::exchange(held_, ""); }

}  // namespace dovetail::engine
