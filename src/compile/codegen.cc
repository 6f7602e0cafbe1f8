#include "compile/codegen.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "contract/artifact.h"
#include "ops/ops.h"

namespace dovetail::compile {
namespace {

struct Export {
  std::string_view role;      // of a program, or of an adapter
  std::string_view function;  // of compiled::Exports
};

constexpr std::array kRoles{
    Export{contract::role::kEmbedTokens, "embed"},
    Export{contract::role::kPrefillTokens, "prefill_tokens"},
    Export{contract::role::kDecodeTokens, "decode_tokens"},
    Export{contract::role::kPrefillEmbeds, "prefill"},
    Export{contract::role::kDecodeEmbeds, "decode"},
    Export{contract::role::kCreateKvCache, "create_kv_cache"},
};

constexpr std::array kAdapters{
    Export{"audio", "audio_embed"},
    Export{"image", "image_embed"},
};

// What every library exports beside its roles: the KV cache protocol of MLC, the binding of parameters, two
// settings and a count.
constexpr std::array kAlways{
    Export{"kv_state_clear", "kv_clear"},
    Export{"kv_state_add_sequence", "kv_add"},
    Export{"kv_state_remove_sequence", "kv_remove"},
    Export{"kv_state_fork_sequence", "kv_fork"},
    Export{"kv_state_popn", "kv_popn"},
    Export{"kv_state_begin_forward", "kv_begin"},
    Export{"kv_state_end_forward", "kv_end"},
    Export{"attention_kv_cache_get_num_available_pages", "kv_available_pages"},
    Export{"attention_kv_cache_get_total_sequence_length", "kv_total_length"},
    Export{"bind_parameters", "bind_parameters"},
    Export{"set_precision", "set_precision"},
    Export{"set_num_threads", "set_num_threads"},
    Export{"products_done", "products_done"},
};

template <size_t N>
std::string_view function_for(const std::array<Export, N>& table, std::string_view role) {
  for (const Export& entry : table) {
    if (entry.role == role) return entry.function;
  }
  throw Error(ErrorCode::kInternal, "no exported function fills the role " + std::string(role));
}

std::string export_line(std::string_view name, std::string_view function) {
  return "TVM_FFI_DLL_EXPORT_TYPED_FUNC(" + std::string(name) + ", Library::" + std::string(function) + ")\n";
}

// The text as C++ string literals, one per line: compilers limit the length of a single one.
std::string string_literals(std::string_view text) {
  constexpr size_t kPiece = 4096;
  std::string out;
  for (size_t at = 0; at < text.size(); at += kPiece) {
    out += "    R\"dovetail(" + std::string(text.substr(at, kPiece)) + ")dovetail\"\n";
  }
  return out;
}

std::string_view dtype_constant(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "dovetail::DType::kFloat16";
    case DType::kBFloat16:
      return "dovetail::DType::kBFloat16";
    default:
      return "dovetail::DType::kFloat32";
  }
}

}  // namespace

std::string library_metadata(const models::ModelPlan& plan, const std::vector<ops::Level>& levels) {
  Json out = Json::object();
  out["model_type"] = plan.model_type;
  out["quantization"] = plan.quantization->name;
  out["context_window_size"] = plan.context_window_size;
  out["sliding_window_size"] = plan.sliding_window_size;
  out["attention_sink_size"] = -1;
  out["prefill_chunk_size"] = plan.prefill_chunk_size;
  out["tensor_parallel_shards"] = 1;
  out["pipeline_parallel_stages"] = 1;
  out["disaggregation"] = false;
  out["kv_state_kind"] = "kv_cache";
  out["max_batch_size"] = plan.max_batch_size;
  out["vocab_size"] = plan.vocab_size;
  out["active_vocab_size"] = plan.vocab_size;
  out["model_task"] = "chat";
  Json& params = out["params"] = Json::array();
  for (const models::Parameter& parameter : plan.parameters) {
    params.push_back({{"name", parameter.name},
                      {"shape", models::shape_json(parameter)},
                      {"dtype", dtype_name(parameter.dtype)},
                      {"preprocs", Json::array()},
                      {"pipeline_stages", Json::array({0})}});
  }
  out["kv_cache"] = plan.kv_cache;
  out["memory_usage"] = plan.memory_usage;
  if (plan.has_manifest) out["artifact"] = contract::to_json(plan.artifact(models::Target::kCpu));
  Json cpu = Json::array();
  for (const ops::Level level : levels) cpu.push_back(ops::level_name(level));
  out["dovetail"] = {{"version", DOVETAIL_VERSION},
                     {"target", {{"arch", "x86_64"}, {"cpu", cpu}}},
                     {"decode_bytes", plan.decode_bytes},
                     {"config", plan.constants}};
  return out.dump(-1, ' ', true);
}

std::string library_source(const models::ModelPlan& plan, const std::string& metadata) {
  std::string out = "// Written by dovetail compile; not meant to be edited.\n";
  out += "#include \"compile/exports.h\"\n#include \"" + plan.header + "\"\n\nnamespace {\n\n";
  out += "constexpr dovetail::models::Quantization kQuantization{\"" + std::string(plan.quantization->name) +
         "\", " + std::string(dtype_constant(plan.quantization->model_dtype)) + ", " +
         std::to_string(plan.quantization->bits) + ", " + (plan.quantization->transposed ? "true" : "false") +
         ", " + (plan.quantization->ends ? "true" : "false") + "};\n\n";
  out += "constexpr " + plan.config_type + " kConfig" + plan.config_literal + ";\n\n";
  out += "struct Config {\n  static constexpr const " + plan.config_type + "& get() { return kConfig; }\n";
  out +=
      "  static constexpr const dovetail::models::Quantization& quantization() { return kQuantization; "
      "}\n};\n\n";
  out += "using Library = dovetail::compiled::Exports<" + plan.model_template +
         "<Config>, Config>;\n\n}  // namespace\n\n";
  // In a section of its own, so that it can be read without running code.
  out += "extern \"C\" [[gnu::used, gnu::visibility(\"default\"), gnu::section(\".dovetail.metadata\")]]\n";
  out += "const char dovetail_metadata[] =\n" + string_literals(metadata) + "    ;\n\n";
  out += "TVM_FFI_DLL_EXPORT_TYPED_FUNC(_metadata, [] { return tvm::ffi::String(dovetail_metadata); })\n";
  for (const auto& [name, program] : plan.programs) {
    for (const auto& [role, function] : program.exports) {
      const std::string_view implementation = function_for(kRoles, role);
      out += export_line(function, implementation);
      if (role == contract::role::kPrefillTokens || role == contract::role::kPrefillEmbeds)
        out += export_line(function + "_all", std::string(implementation) + "_all");
    }
    for (const auto& [adapter, function] : program.adapters) {
      const std::string_view implementation = function_for(kAdapters, adapter);
      out += export_line(function, implementation);
      // Pictures always become as many rows as the contract says.
      if (adapter == "audio")
        out += export_line(function + "_length", std::string(implementation) + "_length");
    }
  }
  for (const Export& entry : kAlways) out += export_line(entry.role, entry.function);
  return out;
}

}  // namespace dovetail::compile
