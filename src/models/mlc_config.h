// MLC's form of a model configuration, as mlc-chat-config.json of packages without a manifest has it: other
// names than config.json ("position_embedding_base"), what MLC does not know under "kwargs", and no
// "architectures". docs/packages.md lists the differences.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "models/rotary.h"

namespace dovetail::models {

// The same configuration in the form of config.json. Throws Error kUnsupported for a model type that is not
// known (with the list of those that are) and kMalformed with everything that is wrong.
Json config_from_mlc(const std::string& model_type, const Json& model_config, const std::string& source);

// "prefill_chunk_size"; the largest number when the configuration gives none.
int64_t mlc_prefill_chunk(const Json& model_config, const std::string& source);

// Pieces of configurations to be written. `none` is what MLC writes when there is no scaling.
Json mlc_rope_scaling(const RotaryConfig& rotary, Json none);
// Members of `object` that `known` does not name.
Json mlc_kwargs(const Json& object, std::span<const std::string_view> known);
// The shortest decimal number that is this float.
double shortest(float value);

}  // namespace dovetail::models
