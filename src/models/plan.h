// What a model is, before any weight is read: everything that conversion, compilation and `plan` derive from
// a configuration and a quantization.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "contract/artifact.h"
#include "contract/manifest.h"
#include "models/parameters.h"

namespace dovetail::models {

enum class Target { kCpu, kWebGpu };

// Which of a model's inputs a plan has. A package without a manifest has text alone: nothing in it says how
// other inputs are prepared.
enum class Inputs { kAll, kText };

// A part of a checkpoint that this version does not use.
struct SkippedPart {
  std::string prefix;  // of canonical tensor names, for example "vision_tower."
  std::string reason;  // "the vision tower is not used: this version takes text and audio"
};

// How the original implementation turns a picture into numbers: what the manifest's processor and the adapter
// compute. A checkpoint that asks for something else is refused.
struct PicturePreparation {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
  int64_t resample = 0;  // Pillow's number of the filter: 2 bilinear, 3 bicubic
};

struct ModelPlan {
  std::string model_type;  // MLC's, for example "gemma4"
  const Quantization* quantization = nullptr;
  bool has_manifest = true;  // false: of a package without one; its library has no artifact
  Json model_config;         // what mlc-chat-config.json carries; plan_model reads it back
  Json mlc_config;           // the same in MLC's form, for packages without a manifest
  int64_t vocab_size = 0;
  int64_t context_window_size = 0;
  int64_t sliding_window_size = -1;
  int64_t mlc_sliding_window_size = -1;  // what a package without a manifest says
  int64_t prefill_chunk_size = 0;
  int64_t max_batch_size = 128;       // MLC's default
  std::vector<Weight> weights;        // model order
  std::vector<Parameter> parameters;  // model order, the order of _metadata.params
  int64_t decode_bytes = 0;           // of parameters that one decode step reads
  int64_t kv_bytes_per_token = 0;     // of layers without a window, on the CPU
  int64_t kv_bytes_at_full_context = 0;
  std::vector<SkippedPart> skipped;
  // The family's output head is the embedding table, whatever a configuration says of it.
  bool always_tied = false;
  // The canonical name of a checkpoint's tensor ("model.language_model.norm.weight" and
  // "language_model.model.norm.weight" are both "language_model.norm.weight").
  std::function<std::string(const std::string&)> canonical_name;
  contract::Tasks tasks;
  std::optional<PicturePreparation> picture;  // of a model that sees
  contract::Named<contract::Program> programs;
  Json conv_template;  // MLC's conversation template, complete
  Json kv_cache;       // _metadata.kv_cache
  Json memory_usage;   // _metadata.memory_usage: bytes of activations, by function
  // C++ for the compiled library: the header to include and the expression of the configuration constant.
  std::string header;          // "models/gemma4.h"
  std::string model_template;  // "dovetail::models::Gemma4"
  std::string config_type;     // "dovetail::models::Gemma4Config"
  std::string config_literal;  // "{.text = {.hidden_size = 1536, …}}"
  // _metadata.dovetail.config: "text" and the name of each adapter → what its computation takes besides
  // parameters, in the form of config_literal. Without the context window, which no computation reads.
  Json constants = Json::object();

  std::vector<contract::ParameterRecord> records() const;
  contract::PackageManifest manifest() const;
  contract::CompiledProgram artifact(Target target) const;
};

// A parameter's shape as documents write it: the named dimension as a string.
Json shape_json(const Parameter& parameter);

// `config` is a checkpoint's config.json, or the model_config of a package. `source` names it in errors.
// Throws Error kUnsupported (unknown architecture, with the list of known ones) or kMalformed (all problems).
ModelPlan plan_model(const Json& config, const Quantization& quantization, const std::string& source,
                     Inputs inputs = Inputs::kAll);

// The plan of a package without a manifest: text alone, no artifact. `model_config` is in MLC's form, or that
// of config.json. Throws as plan_model does.
ModelPlan plan_without_manifest(const std::string& model_type, const Json& model_config,
                                const Quantization& quantization, const std::string& source);

}  // namespace dovetail::models
