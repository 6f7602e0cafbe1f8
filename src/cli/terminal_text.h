// Text from a model on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace dovetail::cli {

// Control characters other than line feed and tab as \xNN, so that a reply can't move the cursor, change the
// window's title or hide text. `text` is UTF-8.
std::string terminal_text(std::string_view text);

}  // namespace dovetail::cli
