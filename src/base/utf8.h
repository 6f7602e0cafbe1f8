// UTF-8, checked byte by byte.
#pragma once

#include <cstddef>
#include <string_view>

namespace dovetail {

// Bytes of the character that `text` begins with; 0 when it is none.
size_t utf8_character_bytes(std::string_view text);

// The offset of the first byte that begins no character; npos: all of `text` is UTF-8.
size_t find_invalid_utf8(std::string_view text);

}  // namespace dovetail
