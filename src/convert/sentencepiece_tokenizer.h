// tokenizer.json for a SentencePiece model, so that a text has the same ids.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "convert/sentencepiece.h"

namespace dovetail::convert {

// `tokenizer_config` and `added_tokens` are the documents of these names beside the model (objects; empty
// when there are none): they add tokens, say which are special, and whether a text begins with one. Appends
// to `notes` in what the ids may differ. Throws Error kUnsupported for word and character models, kMalformed
// or kMismatch with all problems. `source` names the model's file.
std::string sentencepiece_tokenizer_json(const SentencePieceModel& model, const std::string& source,
                                         const Json& tokenizer_config, const Json& added_tokens,
                                         std::vector<std::string>& notes);

}  // namespace dovetail::convert
