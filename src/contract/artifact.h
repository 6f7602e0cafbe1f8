// What a compiled library says about itself: its `_metadata` text and the contract in it,
// `_metadata.artifact` (schema "mlc.compiled-program" version 1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "contract/canonical.h"
#include "contract/named.h"

namespace dovetail::contract {

inline constexpr std::string_view kMetadata = "_metadata";
inline constexpr std::string_view kTokenGeneration = "token_generation";

// The roles of a token_generation program.
namespace role {
inline constexpr std::string_view kEmbedTokens = "embed_tokens";
inline constexpr std::string_view kCreateKvCache = "create_kv_cache";
inline constexpr std::string_view kPrefillTokens = "prefill_tokens";
inline constexpr std::string_view kDecodeTokens = "decode_tokens";
inline constexpr std::string_view kPrefillEmbeds = "prefill_embeds";
inline constexpr std::string_view kDecodeEmbeds = "decode_embeds";
// Of models with a recurrent state beside the KV cache. The specification's table does not list it; WebLLM
// has it.
inline constexpr std::string_view kCreateRnnState = "create_rnn_state";
}  // namespace role

struct Program {
  std::string kind;
  Named<std::string> exports;         // role -> function
  Named<std::string> adapters;        // adapter -> function
  Named<std::string> adapter_dtypes;  // adapter -> dtype, where it is not the natural one
  bool operator==(const Program&) const = default;
};

struct CompiledProgram {
  std::string interface_id;
  std::string parameter_schema_id;
  Named<Program> programs;
  Resources resources;
  bool operator==(const CompiledProgram&) const = default;
};

enum class KvStateKind { kKvCache, kRnnState, kHybrid, kNone };

std::string_view kv_state_kind_name(KvStateKind kind);

struct LibraryMetadata {
  std::string model_type;    // empty when the library does not say
  std::string quantization;  // the same
  // Absent when the library does not say. -1 means "none" for windows and sinks.
  std::optional<int64_t> context_window_size;
  std::optional<int64_t> sliding_window_size;
  std::optional<int64_t> attention_sink_size;
  std::optional<int64_t> prefill_chunk_size;
  std::optional<int64_t> max_batch_size;
  std::optional<int64_t> tensor_parallel_shards;
  std::optional<int64_t> pipeline_parallel_stages;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> active_vocab_size;
  KvStateKind kv_state_kind = KvStateKind::kKvCache;
  // In the order the library takes them. Absent when the library does not list them.
  std::optional<std::vector<ParameterRecord>> params;
  // A library without a contract has neither; one with a malformed contract has only problems, which concern
  // nobody who loads the model without a manifest.
  std::optional<CompiledProgram> artifact;
  std::vector<Problem> artifact_problems;
  // The member "dovetail" (target, CPU levels) as it is; null when absent.
  Json dovetail;
};

// Throws Error kMalformed, with everything that is wrong, when something outside `artifact` is. Members of
// `_metadata` that are not known are ignored.
LibraryMetadata parse_metadata(std::string_view bytes, std::string_view source = kMetadata);

// Throws Error kMalformed with everything that is wrong. `path` is where `artifact` stands in `source`.
CompiledProgram parse_artifact(const Json& artifact, std::string_view source = kMetadata,
                               std::string_view path = "artifact");

// Fields in the specification's order; empty adapters and adapter_dtypes are left out.
Json to_json(const CompiledProgram& artifact);

}  // namespace dovetail::contract
