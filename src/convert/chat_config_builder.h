// mlc-chat-config.json of a converted checkpoint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/chat_template.h"
#include "convert/tokenizer_files.h"
#include "models/plan.h"
#include "package/chat_config.h"

namespace dovetail::convert {

// Sampling values and token ids come from generation_config.json, then config.json, then MLC's defaults; all
// eos ids of generation_config.json become stop tokens. Appends to `notes` what the user should know.
// The conversation template is that of the model's family, with what `chat_template` says instead. Throws
// Error kMalformed with all problems of generation_config.json, kMismatch when the tokenizer has ordinary
// tokens beyond the model's vocabulary, and kUnsupported for a required chat template that MLC's form can't
// express.
package::ChatConfig build_chat_config(const models::ModelPlan& plan, const Json& config,
                                      const Json& generation_config, const TokenizerFiles& tokenizer,
                                      const std::optional<ChatTemplate>& chat_template,
                                      std::vector<std::string>& notes);

}  // namespace dovetail::convert
