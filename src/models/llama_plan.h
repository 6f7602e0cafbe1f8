// Llama and LLaVA 1.5 as the registry sees them.
#pragma once

#include "models/llava.h"
#include "models/plan.h"

namespace dovetail::models {

// Configurations known at run time (tests, plans); compiled libraries hold constants instead.
struct LlamaRuntimeConfig {
  LlamaTextConfig value;
  const LlamaTextConfig& get() const { return value; }
};
struct LlavaRuntimeConfig {
  LlavaConfig value;
  const LlavaConfig& get() const { return value; }
};

// Read Hugging Face's config.json, in the layouts of transformers 5.x and before. Throw Error kMalformed or
// kUnsupported with everything that is wrong.
LlamaTextConfig parse_llama_config(const Json& config, const std::string& source);
LlavaConfig parse_llava_config(const Json& config, const std::string& source);

ModelPlan plan_llama(const Json& config, const Quantization& quantization, const std::string& source,
                     Inputs inputs);
ModelPlan plan_llava(const Json& config, const Quantization& quantization, const std::string& source,
                     Inputs inputs);

}  // namespace dovetail::models
