// Texts that people and files give a model.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dovetail::cli {

// `source` says whose text it is: an option, a file, "the message". Throws Error `code` with the first byte,
// counted from 0, that begins no character.
void check_utf8(std::string_view text, const std::string& source, ErrorCode code = ErrorCode::kUsage);

}  // namespace dovetail::cli
