// Gemma 4 as the registry sees it.
#pragma once

#include "models/gemma4_config.h"
#include "models/plan.h"

namespace dovetail::models {

// Reads Hugging Face's config.json of Gemma4ForConditionalGeneration, in the layouts of transformers 5.x and
// before. Throws Error kMalformed or kUnsupported with everything that is wrong.
Gemma4Config parse_gemma4_config(const Json& config, const std::string& source);

// A configuration known at run time (tests, plans); compiled libraries hold a constant instead.
struct Gemma4RuntimeConfig {
  Gemma4Config value;
  const Gemma4Config& get() const { return value; }
};

ModelPlan plan_gemma4(const Json& config, const Quantization& quantization, const std::string& source,
                      Inputs inputs);

}  // namespace dovetail::models
