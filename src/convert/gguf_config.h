// config.json of a Hugging Face checkpoint, rebuilt from the metadata and tensor shapes of GGUF files.
#pragma once

#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "convert/gguf.h"
#include "convert/gguf_names.h"

namespace dovetail::convert {

// Appends to `problems`. `encoder` may be null; it fits the architecture.
Json gguf_config(GgufArchitecture architecture, const Gguf& gguf, const Gguf* encoder,
                 std::vector<Problem>& problems);

// "eos_token_id" with every token that ends a reply, "bos_token_id", "pad_token_id"; those that the file
// names.
Json gguf_generation_config(const Gguf& gguf, std::vector<Problem>& problems);

}  // namespace dovetail::convert
