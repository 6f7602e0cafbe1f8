#include "cli/utf8_text.h"

#include "base/utf8.h"

namespace dovetail::cli {

void check_utf8(std::string_view text, const std::string& source, ErrorCode code) {
  const size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw Error(
      code, Problem{.message =
                        "is not UTF-8 at byte " + std::to_string(bad) + ": " + printable(text.substr(bad, 1)),
                    .source = source,
                    .hint = "bytes are counted from 0; a terminal or an editor that is set to another "
                            "encoding writes such text"});
}

}  // namespace dovetail::cli
