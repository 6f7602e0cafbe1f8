// Finds stop strings in a reply that arrives piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dovetail::engine {

class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that can be shown now. What could be the beginning of a stop string is held back. After a stop
  // string was found nothing more comes: it and everything behind it is dropped.
  std::string push(std::string_view piece);
  // The text still held back, at the end of a reply.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace dovetail::engine
