// tokenizer_config.json of a Hugging Face folder, with what special_tokens_map.json adds: older tools wrote
// the special tokens there alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace dovetail::convert {

// The document (an empty object when there is none), in which "bos_token", "eos_token", "unk_token" and
// "pad_token" are texts and "additional_special_tokens" is a list of them, where given. A note says where
// both files name different ones: tokenizer_config.json counts. Throws Error kMalformed with all problems,
// among them a text that "added_tokens_decoder" has under two ids.
Json read_tokenizer_config(const std::filesystem::path& checkpoint, std::vector<std::string>& notes);

// The same of the two documents, tokenizer_config.json and special_tokens_map.json; both are objects.
Json merge_tokenizer_config(Json config, const Json& map, std::vector<std::string>& notes);

}  // namespace dovetail::convert
