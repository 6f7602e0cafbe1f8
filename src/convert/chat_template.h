// A checkpoint's chat template (Jinja) as MLC's conversation template, found by rendering conversations and
// taking the results apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dovetail::convert {

struct ChatTemplate {
  std::string text;
  std::string bos_token;  // as text; empty: none
  std::string eos_token;
  std::optional<int64_t> bos_id;
  std::vector<std::string> special_tokens;
};

// MLC's conversation template for it: rendered by MLC's rules it gives the same text for conversations with
// and without a system message, of one turn and more. Throws Error kUnsupported when no such template exists;
// `source` names the file. Appends to `notes` what differs all the same.
Json conversation_template(const ChatTemplate& chat, const std::string& source,
                           std::vector<std::string>& notes);

}  // namespace dovetail::convert
