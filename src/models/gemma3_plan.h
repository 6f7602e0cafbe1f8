// Gemma 3 as the registry sees it.
#pragma once

#include "models/gemma3.h"
#include "models/plan.h"

namespace dovetail::models {

// A configuration known at run time (tests, plans); compiled libraries hold a constant instead.
struct Gemma3RuntimeConfig {
  Gemma3Config value;
  const Gemma3Config& get() const { return value; }
};

// Reads Hugging Face's config.json of Gemma3ForCausalLM and Gemma3ForConditionalGeneration, in the layouts of
// transformers 5.x and before. Throws Error kMalformed or kUnsupported with everything that is wrong.
Gemma3Config parse_gemma3_config(const Json& config, const std::string& source);

ModelPlan plan_gemma3(const Json& config, const Quantization& quantization, const std::string& source,
                      Inputs inputs);

}  // namespace dovetail::models
