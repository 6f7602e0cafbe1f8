#include "models/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "contract/canonical.h"
#include "models/config_reader.h"
#include "models/gemma3_plan.h"
#include "models/gemma4_plan.h"
#include "models/llama_plan.h"
#include "models/mlc_config.h"

namespace dovetail::models {
namespace {

struct Architecture {
  const char* name;  // in config.json's "architectures"
  ModelPlan (*plan)(const Json&, const Quantization&, const std::string&, Inputs);
};

constexpr std::array kArchitectures{
    Architecture{"Gemma3ForCausalLM", plan_gemma3},
    Architecture{"Gemma3ForConditionalGeneration", plan_gemma3},
    Architecture{"Gemma4ForConditionalGeneration", plan_gemma4},
    Architecture{"LlamaForCausalLM", plan_llama},
    Architecture{"LlavaForConditionalGeneration", plan_llava},
};

// Families that are often asked for and can't work, with the reason; better than "unknown".
constexpr const char* kVaryingPictures =
    "how many positions a picture fills depends on its size, with separators between its parts, and a "
    "package's "
    "manifest declares one fixed number (num_embeddings) without separators";
constexpr std::array kRefusals{
    std::pair{"LlavaNextForConditionalGeneration", kVaryingPictures},
    std::pair{"Phi3VForCausalLM", kVaryingPictures},
};

}  // namespace

std::vector<contract::ParameterRecord> ModelPlan::records() const {
  std::vector<contract::ParameterRecord> out;
  for (const Parameter& parameter : parameters) {
    contract::ParameterRecord record{parameter.name,
                                     {parameter.shape.begin(), parameter.shape.end()},
                                     std::string(dtype_name(parameter.dtype))};
    if (parameter.vocab_dim >= 0) record.shape[static_cast<size_t>(parameter.vocab_dim)] = "vocab_size";
    out.push_back(std::move(record));
  }
  return out;
}

Json shape_json(const Parameter& parameter) {
  Json out = parameter.shape;
  if (parameter.vocab_dim >= 0) out[static_cast<size_t>(parameter.vocab_dim)] = "vocab_size";
  return out;
}

contract::PackageManifest ModelPlan::manifest() const {
  contract::PackageManifest out;
  out.interface_id = contract::interface_id(tasks);
  out.parameter_schema_id = contract::parameter_schema_id(records());
  out.tasks = tasks;
  return out;
}

contract::CompiledProgram ModelPlan::artifact(Target target) const {
  contract::CompiledProgram out;
  out.interface_id = contract::interface_id(tasks);
  out.parameter_schema_id = contract::parameter_schema_id(records());
  out.programs = programs;
  if (target == Target::kWebGpu) {
    // WebGPU has no 8-bit storage type.
    for (auto& [name, program] : out.programs) {
      for (const auto& [input_name, input] : tasks.front().second.inputs) {
        if (std::holds_alternative<contract::ImageDecode>(input.processor))
          program.adapter_dtypes = {{*input.adapter, "uint32"}};
      }
    }
  }
  std::vector<std::string> features;
  if (target == Target::kWebGpu && quantization->model_dtype == DType::kFloat16)
    features.push_back("shader-f16");
  out.resources = contract::compute_resources(records(), {{"vocab_size", vocab_size}}, std::move(features));
  return out;
}

ModelPlan plan_model(const Json& config, const Quantization& quantization, const std::string& source,
                     Inputs inputs) {
  if (!config.is_object())
    throw Error(ErrorCode::kMalformed, Problem{.message = "not an object", .source = source});
  std::vector<Problem> problems;
  const std::vector<std::string> names = ConfigReader(config, source, "", problems).texts("architectures");
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    for (const std::string& name : names) {
      if (name == architecture.name) return architecture.plan(config, quantization, source, inputs);
    }
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  for (const auto& [refused, reason] : kRefusals) {
    if (std::ranges::find(names, refused) == names.end()) continue;
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = std::string(refused) + " is not supported: " + reason,
                        .source = source,
                        .field = "architectures",
                        .hint = "known architectures: " + known});
  }
  std::string actual;
  for (const std::string& name : names) actual += (actual.empty() ? "" : ", ") + printable(name, 80);
  throw Error(ErrorCode::kUnsupported,
              Problem{.message = names.empty() ? "names no architecture" : "unknown architecture " + actual,
                      .source = source,
                      .field = "architectures",
                      .hint = "known architectures: " + known});
}

ModelPlan plan_without_manifest(const std::string& model_type, const Json& model_config,
                                const Quantization& quantization, const std::string& source) {
  if (!model_config.is_object())
    throw Error(ErrorCode::kMalformed, Problem{.message = "not an object", .source = source});
  const bool original = model_config.contains("architectures");
  ModelPlan plan = plan_model(original ? model_config : config_from_mlc(model_type, model_config, source),
                              quantization, source, Inputs::kText);
  plan.has_manifest = false;
  plan.prefill_chunk_size = std::min(plan.prefill_chunk_size, mlc_prefill_chunk(model_config, source));
  return plan;
}

}  // namespace dovetail::models
