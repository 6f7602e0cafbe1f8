// The tokenizer of a Hugging Face folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "package/tokenizer.h"

namespace dovetail::convert {

// A file of the package's tokenizer: copied byte for byte, or written.
struct TokenizerFile {
  std::string name;
  std::filesystem::path copied_from;
  std::string text;
};

struct TokenizerFiles {
  std::string source;  // the file that `tokenizer` comes from
  std::vector<TokenizerFile> files;
  package::Tokenizer tokenizer;
};

// What the folder has. tokenizer.json counts; where it is missing, one is made from tokenizer.model and what
// `config` (read_tokenizer_config) and added_tokens.json add to it. A note says what was made, or in what the
// two disagree. Throws Error kNotFound, kMalformed, kUnsupported.
TokenizerFiles read_tokenizer(const std::filesystem::path& checkpoint, const Json& config,
                              std::vector<std::string>& notes);

}  // namespace dovetail::convert
