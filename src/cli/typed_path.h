// Paths in the lines of a conversation.
#pragma once

#include <string>

namespace dovetail::cli {

// A path as people type, paste or drop it: `text` itself where there is such a file (without the blanks
// behind it, where there is none with them); else `text` as a shell reads it, with quotes and backslashes,
// but that blanks need neither. "~/" is the home folder. Empty when `text` is blank.
std::string typed_path(const std::string& text);

}  // namespace dovetail::cli
