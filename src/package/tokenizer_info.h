// The member tokenizer_info of mlc-chat-config.json.
#pragma once

#include <string>

namespace dovetail::package {

// How MLC hosts turn tokens into text; derived from tokenizer.json by MLC's rules.
struct TokenizerInfo {
  std::string token_postproc_method = "byte_fallback";  // or "byte_level"
  bool prepend_space_in_encode = false;
  bool strip_space_in_decode = false;

  bool operator==(const TokenizerInfo&) const = default;
};

}  // namespace dovetail::package
