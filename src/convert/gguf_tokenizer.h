// tokenizer.json, rebuilt from the metadata of a GGUF file so that a text has the same ids.
#pragma once

#include <string>
#include <vector>

#include "convert/gguf.h"

namespace dovetail::convert {

// Kinds of vocabularies ("tokenizer.ggml.model"): "llama" (SentencePiece with byte fallback), "gpt2"
// (byte-level BPE, with the way of cutting texts that "tokenizer.ggml.pre" names) and "gemma4" (BPE with byte
// fallback). Appends to `notes` what the user should know. Throws Error kMalformed with all problems,
// kUnsupported with the known kinds or names.
std::string gguf_tokenizer_json(const Gguf& gguf, std::vector<std::string>& notes);

}  // namespace dovetail::convert
