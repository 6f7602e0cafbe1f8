// Numbers in messages.
#pragma once

#include <cstdio>
#include <string>

namespace dovetail {

// With at most six digits.
inline std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace dovetail
