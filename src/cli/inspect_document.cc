// dovetail inspect: the documents of packages and libraries.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/inspect.h"
#include "package/content_hashes.h"
#include "package/tokenizer.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kMaxDocumentBytes = int64_t{256} << 20;

std::string ids_text(const std::vector<int64_t>& ids) {
  std::vector<std::string> out;
  for (const int64_t id : ids) out.push_back(std::to_string(id));
  return joined(out, " ");
}

// Text of a template with its line ends visible.
std::string one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string replaced(std::string text, std::string_view placeholder, std::string_view value) {
  if (const size_t at = text.find(placeholder); at != std::string::npos)
    text.replace(at, placeholder.size(), value);
  return text;
}

std::string seconds_of(int64_t samples, int64_t rate) {
  return decimal(static_cast<double>(samples) / static_cast<double>(rate), 2) + " s";
}

std::string processor_text(const contract::Processor& processor) {
  if (const auto* audio = std::get_if<contract::AudioDecode>(&processor)) {
    return "mono float32 at " + std::to_string(audio->sample_rate_hz) + " Hz, " +
           std::to_string(audio->min_samples) + " to " + std::to_string(audio->max_samples) + " samples (" +
           seconds_of(audio->min_samples, audio->sample_rate_hz) + " to " +
           seconds_of(audio->max_samples, audio->sample_rate_hz) + ")";
  }
  if (const auto* image = std::get_if<contract::ImageDecode>(&processor)) {
    return "RGB, " + std::to_string(image->resize.width) + " × " + std::to_string(image->resize.height) +
           " (" + std::string(contract::resize_mode_name(image->resize.mode)) + "), " +
           std::to_string(image->num_embeddings) + " positions";
  }
  return std::get<std::string>(processor);
}

}  // namespace

void show_manifest(Inspection& out, const contract::PackageManifest& manifest) {
  out.json["manifest"] = contract::to_json(manifest);
  out.heading("contract");
  for (const auto& [task_name, task] : manifest.tasks) {
    out.row("task", task_name + ": executor " + task.executor + ", output " + task.output);
    for (const auto& [name, input] : task.inputs) {
      std::string text = processor_text(input.processor);
      if (input.adapter) text += "; adapter " + *input.adapter;
      if (input.prompt) {
        std::vector<std::string> span;
        if (!input.prompt->prefix_token_ids.empty()) span.push_back(ids_text(input.prompt->prefix_token_ids));
        span.push_back(std::to_string(input.prompt->placeholder_token_id) + " × positions");
        if (!input.prompt->suffix_token_ids.empty()) span.push_back(ids_text(input.prompt->suffix_token_ids));
        text += "; tokens " + joined(span);
      }
      out.row("  " + name, text);
    }
  }
  out.row("interface_id", manifest.interface_id);
  out.row("parameter_schema_id", manifest.parameter_schema_id);
}

void show_conversation(Inspection& out, const package::ChatConfig& config, const std::string& origin) {
  const package::ConvTemplate& conv = config.conv_template;
  out.json["conv_template"] = parse_json(package::chat_config_text(config), "chat config")["conv_template"];
  if (!origin.empty()) out.json["conv_template_origin"] = origin;
  out.heading("conversation");
  out.row("template", origin.empty() ? conv.name : conv.name + ", " + origin);
  const std::string turn = conv.role("user") + conv.role_content_sep +
                           replaced(conv.role_template("user"), "{user_message}", "…") + conv.seps.front() +
                           conv.role("assistant") + conv.role_empty_sep;
  out.row("one turn", one_line(turn));
  out.row("system message", one_line(replaced(conv.system_template, "{system_message}", "…")));
  out.row("begins with", conv.system_prefix_token_ids.empty()
                             ? "nothing"
                             : "token " + ids_text(conv.system_prefix_token_ids));
  std::vector<std::string> stops;
  for (const int64_t id : conv.stop_token_ids) stops.push_back("token " + std::to_string(id));
  for (const std::string& text : conv.stop_str) stops.push_back("\"" + one_line(text) + "\"");
  out.row("stops at", stops.empty() ? "nothing" : joined(stops));
  out.row("sampling",
          "temperature " + decimal(config.temperature, 2) + ", top_p " + decimal(config.top_p, 2));
}

void show_metadata(Inspection& out, const contract::LibraryMetadata& metadata) {
  if (!metadata.model_type.empty()) out.row("model", metadata.model_type + ", " + metadata.quantization);
  out.json["model_type"] = metadata.model_type;
  out.json["quantization"] = metadata.quantization;
  const auto row = [&](const char* label, const char* member, const std::optional<int64_t>& value) {
    if (!value || *value < 0) return;
    out.row(label, std::to_string(*value));
    out.json[member] = *value;
  };
  row("context window", "context_window_size", metadata.context_window_size);
  row("prefill chunk", "prefill_chunk_size", metadata.prefill_chunk_size);
  row("sliding window", "sliding_window_size", metadata.sliding_window_size);
  row("batch", "max_batch_size", metadata.max_batch_size);
  out.json["kv_state_kind"] = contract::kv_state_kind_name(metadata.kv_state_kind);
  out.row("state", std::string(contract::kv_state_kind_name(metadata.kv_state_kind)));
  if (metadata.params) out.json["parameters"] = metadata.params->size();
  if (metadata.params)
    out.row("parameters", counted(static_cast<int64_t>(metadata.params->size()), "tensor"));
  for (const Problem& problem : metadata.artifact_problems) {
    out.row("bad contract", problem.text());
    out.json["problems"].push_back(problem.text());
  }
  if (!metadata.artifact) {
    if (metadata.artifact_problems.empty())
      out.row("contract", "none: for packages without " + std::string(contract::kManifestFile));
    return;
  }
  const contract::CompiledProgram& artifact = *metadata.artifact;
  out.json["artifact"] = contract::to_json(artifact);
  out.heading("contract");
  for (const auto& [name, program] : artifact.programs) {
    out.row("program", name + ": " + program.kind);
    for (const auto& [role, function] : program.exports) out.row("  " + role, function);
    for (const auto& [adapter, function] : program.adapters) {
      const std::string* dtype = contract::find_named(program.adapter_dtypes, adapter);
      out.row("  adapter " + adapter, function + (dtype == nullptr ? "" : " (" + *dtype + ")"));
    }
  }
  out.row("interface_id", artifact.interface_id);
  out.row("parameter_schema_id", artifact.parameter_schema_id);
  out.row("largest tensor", format_bytes(artifact.resources.max_storage_buffer_binding_size));
  out.row("all parameters", format_bytes(artifact.resources.estimated_device_memory_bytes));
  const std::vector<std::string>& features = artifact.resources.required_features;
  out.row("device features", features.empty() ? "none" : joined(features));
}

void show_stored_tensors(Inspection& out, WeightSums& sums, const package::TensorCache& cache) {
  for (const package::StoredTensor& tensor : cache.tensors()) {
    sums.add(tensor.name, std::string(dtype_name(tensor.dtype)) + (tensor.stored_as_bf16 ? " as bf16" : ""),
             tensor.bytes);
  }
  sums.show(out);
}

namespace {

void show_hashes(Inspection& out, const std::string& text, const std::string& name) {
  const std::vector<package::FileHash> files = package::parse_content_hashes(text, name);
  int64_t bytes = 0;
  for (const package::FileHash& file : files) {
    const std::optional<int64_t> sum = try_add(bytes, file.bytes);
    if (!sum) {
      throw Error(ErrorCode::kMalformed,
                  Problem{.message = "the sizes of the files add up to more than 63 bits hold",
                          .source = name,
                          .field = "files"});
    }
    bytes = *sum;
  }
  out.json["files"] = Json::array();
  out.json["bytes"] = bytes;
  out.row("content hashes", counted(static_cast<int64_t>(files.size()), "file") + ", " + format_bytes(bytes));
  out.row("what for", "'dovetail verify --deep' on the package finds every byte that has changed since");
  out.heading("files");
  for (const package::FileHash& file : files) {
    out.json["files"].push_back({{"path", file.file}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    out.row(printable(file.file, 40), format_bytes(file.bytes) + ", SHA-256 " + file.sha256);
  }
}

}  // namespace

void inspect_document(Inspection& out, const fs::path& path) {
  const std::string text = read_file(path, kMaxDocumentBytes);
  const std::string name = path.filename().string();
  const Json document = parse_json(text, name, 256);
  const auto has = [&](const char* member) { return document.is_object() && document.contains(member); };
  const auto kind = [&](const char* value) { out.json["kind"] = value; };
  if (has("tasks")) {
    kind("manifest");
    out.row("package manifest", name);
    show_manifest(out, contract::parse_package_manifest(text, name));
  } else if (has("conv_template")) {
    kind("chat_config");
    const package::ChatConfig config = package::parse_chat_config(text, name);
    out.row("chat config", config.model_type + ", " + config.quantization);
    out.json["model_type"] = config.model_type;
    out.json["quantization"] = config.quantization;
    out.json["context_window_size"] = config.context_window_size;
    out.json["vocabulary"] = {{"rows", config.vocab_size}, {"tokens", config.active_vocab_size}};
    show_conversation(out, config, "");
  } else if (has("records")) {
    kind("tensor_cache");
    const package::TensorCache cache = package::TensorCache::parse(text, name);
    out.row("tensor cache", counted(static_cast<int64_t>(cache.tensors().size()), "tensor") + ", " +
                                format_bytes(cache.stored_bytes()));
    WeightSums sums;
    show_stored_tensors(out, sums, cache);
    out.parts(sums.sized());
  } else if (has("schema") && has("files")) {
    kind("content_hashes");
    show_hashes(out, text, name);
  } else if (has("programs")) {
    kind("artifact");
    contract::LibraryMetadata metadata;
    metadata.artifact = contract::parse_artifact(document, name, "");
    out.row("compiled program", name);
    show_metadata(out, metadata);
  } else if (has("params") || has("artifact")) {
    kind("library_metadata");
    out.row("library metadata", name);
    show_metadata(out, contract::parse_metadata(text, name));
  } else if (has("architectures")) {
    inspect_config(out, document, name);
  } else if (has("model") && has("added_tokens")) {
    kind("tokenizer");
    const package::Tokenizer tokenizer = package::Tokenizer::from_json(text, name);
    out.row("tokenizer", std::to_string(tokenizer.vocab_size()) + " tokens");
    out.json["vocabulary"] = {{"tokens", tokenizer.vocab_size()}};
  } else {
    std::vector<std::string> members;
    if (document.is_object()) {
      for (const auto& [key, value] : document.items())
        if (members.size() < 8) members.push_back(printable(key, 40));
    }
    throw Error(
        ErrorCode::kUnsupported,
        Problem{.message = "is JSON, but none of the documents that are known here",
                .source = path.string(),
                .expected = "a package manifest, chat config, tensor cache, list of hashes, artifact, "
                            "library metadata, config.json or tokenizer.json",
                .actual = !document.is_object() ? std::string(document.type_name())
                          : members.empty()     ? "an empty object"
                                                : "an object with " + joined(members)});
  }
}

}  // namespace dovetail::cli
