// A package and a library that fit, for tests that then break one thing.
#pragma once

#include <string>

#include "base/json.h"
#include "contract/match.h"

namespace dovetail::contract {

inline Json audio_tasks() {
  return Json::parse(R"({"chat.completions":{"executor":"generation","inputs":{
    "text":{"processor":"tokenizer"},
    "audio":{"processor":{"kind":"audio_decode","format":"pcm_f32","sample_rate_hz":16000,"channels":1,
                          "min_samples":161,"max_samples":480000},
             "adapter":"audio",
             "prompt":{"prefix_token_ids":[256000],"placeholder_token_id":258881,"suffix_token_ids":[258883]}}},
    "output":"text"}})");
}

inline std::vector<ParameterRecord> example_params() {
  return {{"embed.q_weight", {std::string("vocab_size"), int64_t{4}}, "uint32"},
          {"norm.weight", {int64_t{32}}, "float16"}};
}

inline PackageManifest example_manifest() {
  PackageManifest manifest;
  manifest.tasks = parse_tasks(audio_tasks());
  manifest.interface_id = interface_id(manifest.tasks);
  manifest.parameter_schema_id = parameter_schema_id(example_params());
  return manifest;
}

inline LibraryMetadata example_library() {
  const PackageManifest manifest = example_manifest();
  CompiledProgram artifact;
  artifact.interface_id = manifest.interface_id;
  artifact.parameter_schema_id = manifest.parameter_schema_id;
  artifact.programs = {{"generation", Program{.kind = "token_generation",
                                              .exports = {{"embed_tokens", "embed"},
                                                          {"prefill_tokens", "prefill_tokens"},
                                                          {"decode_tokens", "decode_tokens"},
                                                          {"create_kv_cache", "create_tir_paged_kv_cache"}},
                                              .adapters = {{"audio", "audio_embed"}}}}};
  artifact.resources = {{"shader-f16"}, 262144 * 16, 262144 * 16 + 64};
  LibraryMetadata library;
  library.model_type = "gemma4";
  library.quantization = "q4f16_1";
  library.params = example_params();
  library.artifact = artifact;
  return library;
}

inline MatchContext example_context() {
  MatchContext context;
  context.vocab_size = 262144;
  context.named_dimensions = {{"vocab_size", 262144}};
  context.device = Device{std::set<std::string>{"shader-f16", "subgroups"}, int64_t{1} << 30};
  context.functions = {"embed", "prefill_tokens", "decode_tokens", "create_tir_paged_kv_cache",
                       "audio_embed"};
  return context;
}

}  // namespace dovetail::contract
