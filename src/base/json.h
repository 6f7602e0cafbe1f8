// Strict JSON from outside: duplicate members, invalid UTF-8, trailing data, deep nesting and numbers that do
// not fit are errors with a position. The value type is nlohmann's, with members in file order.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace dovetail {

using Json = nlohmann::ordered_json;

// `source` names the document in errors. `max_depth` counts nested arrays and objects.
// Throws Error kMalformed.
Json parse_json(std::string_view text, std::string_view source, int max_depth = 64);

// read_file + parse_json. Throws kNotFound, kIo, kLimit, kMalformed.
Json read_json(const std::filesystem::path& path, int max_depth = 64);

}  // namespace dovetail
