// Base64 text and data URLs, as APIs carry media.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::media {

// `text` is base64 (the standard alphabet; white space is skipped, padding may be missing) or a data URL
// "data:<kind>/<subtype>;base64,<base64>" without further parameters. Throws Error kMalformed.
std::vector<std::byte> decode_base64_or_data_url(std::string_view text, std::string_view kind,
                                                 std::string_view name);

// The standard alphabet, with padding.
std::string encode_base64(std::span<const std::byte> bytes);

}  // namespace dovetail::media
