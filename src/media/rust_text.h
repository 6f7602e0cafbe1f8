// Text that the Rust crates hand over.
#pragma once

#include <string>

#include "dovetail_rust.h"

namespace dovetail::media {

// Copies the text and gives it back.
inline std::string take(DovetailRustText text) {
  std::string result(text.data, text.size);
  dovetail_rust_free_text(text);
  return result;
}

}  // namespace dovetail::media
