// dovetail inspect: what a Hugging Face folder, a package, a library or a document holds, in readable form.
// Runs no code of a library.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "contract/artifact.h"
#include "contract/manifest.h"
#include "convert/checkpoint.h"
#include "library/library.h"
#include "library/model.h"
#include "models/plan.h"
#include "package/package.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kMaxDocumentBytes = int64_t{64} << 20;

std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ") {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : std::string(separator)) + item;
  return out;
}

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

struct Sum {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

void print_types(const std::map<std::string, Sum>& types) {
  for (const auto& [type, sum] : types)
    print_row("  " + type, counted(sum.tensors, "tensor") + ", " + format_bytes(sum.bytes));
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

void print_manifest(const contract::PackageManifest& manifest) {
  print_heading("contract");
  for (const auto& [task_name, task] : manifest.tasks) {
    print_row("task", task_name + ": executor " + task.executor + ", output " + task.output);
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
      print_row("  " + name, text);
    }
  }
  print_row("interface_id", manifest.interface_id);
  print_row("parameter_schema_id", manifest.parameter_schema_id);
}

void print_template(const package::ChatConfig& config) {
  const package::ConvTemplate& conv = config.conv_template;
  print_heading("conversation");
  print_row("template", conv.name);
  const std::string turn = conv.role("user") + conv.role_content_sep +
                           replaced(conv.role_template("user"), "{user_message}", "…") + conv.seps.front() +
                           conv.role("assistant") + conv.role_empty_sep;
  print_row("one turn", one_line(turn));
  print_row("system message", one_line(replaced(conv.system_template, "{system_message}", "…")));
  print_row("begins with", conv.system_prefix_token_ids.empty()
                               ? "nothing"
                               : "token " + ids_text(conv.system_prefix_token_ids));
  std::vector<std::string> stops;
  for (const int64_t id : conv.stop_token_ids) stops.push_back("token " + std::to_string(id));
  for (const std::string& text : conv.stop_str) stops.push_back("\"" + one_line(text) + "\"");
  print_row("stops at", stops.empty() ? "nothing" : joined(stops));
  print_row("sampling",
            "temperature " + decimal(config.temperature, 2) + ", top_p " + decimal(config.top_p, 2));
}

std::string libraries_text(const fs::path& dir) {
  std::vector<std::string> out;
  for (const fs::path& path : library::package_libraries(dir))
    out.push_back(path.lexically_relative(dir).string());
  return out.empty() ? "none; make one with 'dovetail compile'" : joined(out);
}

void inspect_package(const fs::path& dir) {
  const package::Package package = package::Package::open(dir);
  const package::ChatConfig& config = package.chat_config;
  print_row("package", config.model_type + ", " + config.quantization);
  print_row("context window", std::to_string(config.context_window_size) +
                                  " tokens, prefilled in chunks of " +
                                  std::to_string(config.prefill_chunk_size));
  print_row("vocabulary", std::to_string(config.vocab_size) + " rows, " +
                              std::to_string(config.active_vocab_size) + " tokens");
  print_row("tokenizer", joined(config.tokenizer_files));
  print_row("libraries", libraries_text(dir));
  std::map<std::string, Sum> types;
  std::vector<SizedTensor> tensors;
  for (const package::StoredTensor& tensor : package.tensors.tensors()) {
    Sum& sum = types[std::string(dtype_name(tensor.dtype)) + (tensor.stored_as_bf16 ? " as bf16" : "")];
    ++sum.tensors;
    sum.bytes += tensor.bytes;
    tensors.push_back({tensor.name, tensor.bytes});
  }
  print_row("weights", counted(static_cast<int64_t>(tensors.size()), "tensor") + ", " +
                           format_bytes(package.tensors.stored_bytes()) + " in " +
                           counted(static_cast<int64_t>(package.tensors.shards().size()), "shard"));
  print_types(types);
  print_template(config);
  if (package.manifest) {
    print_manifest(*package.manifest);
  } else {
    print_row("contract",
              "none: the package has no " + std::string(contract::kManifestFile) + " and takes text only");
  }
  print_parts(tensors);
}

void inspect_checkpoint(const fs::path& dir) {
  const Json config = read_json(dir / "config.json");
  const convert::Checkpoint checkpoint = convert::open_checkpoint(dir);
  std::vector<std::string> architectures;
  if (config.is_object() && config.contains("architectures") && config["architectures"].is_array()) {
    for (const Json& name : config["architectures"])
      architectures.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  }
  print_row("checkpoint",
            architectures.empty() ? "config.json names no architecture" : joined(architectures));
  std::map<std::string, Sum> types;
  std::vector<SizedTensor> tensors;
  int64_t total = 0;
  int64_t elements = 0;
  for (const convert::CheckpointTensor& tensor : checkpoint.tensors) {
    Sum& sum = types[tensor.dtype_text];
    ++sum.tensors;
    sum.bytes += tensor.bytes;
    total += tensor.bytes;
    elements += tensor.elements();
    tensors.push_back({tensor.name, tensor.bytes});
  }
  print_row("weights", count_text(elements) + " in " +
                           counted(static_cast<int64_t>(tensors.size()), "tensor") + ", " +
                           format_bytes(total) + " in " +
                           counted(static_cast<int64_t>(checkpoint.files.size()), "file"));
  print_types(types);
  bool supported = true;
  for (const models::Quantization& quantization : models::quantizations()) {
    try {
      const models::ModelPlan plan = models::plan_model(config, quantization, "config.json");
      if (&quantization == &models::quantizations().front()) {
        print_row("context window", std::to_string(plan.context_window_size) + " tokens");
        print_row("vocabulary", std::to_string(plan.vocab_size) + " rows");
        std::vector<std::string> inputs;
        for (const auto& [name, input] : plan.tasks.front().second.inputs) inputs.push_back(name);
        print_row("inputs", joined(inputs));
        print_heading("as a package");
      }
      int64_t bytes = 0;
      for (const models::Parameter& parameter : plan.parameters) bytes += parameter.bytes();
      print_row(std::string(quantization.name),
                format_bytes(bytes) + " in " +
                    counted(static_cast<int64_t>(plan.parameters.size()), "tensor") + ", " +
                    format_bytes(plan.decode_bytes) + " read per token");
    } catch (const Error& error) {
      for (const Problem& problem : error.problems()) {
        print_row("can't be converted", problem.text() + (problem.hint.empty() ? "" : "; " + problem.hint));
      }
      supported = false;
    }
    if (!supported) break;
  }
  print_parts(tensors);
}

void print_metadata(const contract::LibraryMetadata& metadata) {
  if (!metadata.model_type.empty()) print_row("model", metadata.model_type + ", " + metadata.quantization);
  const auto row = [](const char* label, const std::optional<int64_t>& value) {
    if (value && *value >= 0) print_row(label, std::to_string(*value));
  };
  row("context window", metadata.context_window_size);
  row("prefill chunk", metadata.prefill_chunk_size);
  row("sliding window", metadata.sliding_window_size);
  row("batch", metadata.max_batch_size);
  print_row("state", std::string(contract::kv_state_kind_name(metadata.kv_state_kind)));
  if (metadata.params)
    print_row("parameters", counted(static_cast<int64_t>(metadata.params->size()), "tensor"));
  for (const Problem& problem : metadata.artifact_problems) print_row("bad contract", problem.text());
  if (!metadata.artifact) {
    if (metadata.artifact_problems.empty())
      print_row("contract", "none: for packages without " + std::string(contract::kManifestFile));
    return;
  }
  const contract::CompiledProgram& artifact = *metadata.artifact;
  print_heading("contract");
  for (const auto& [name, program] : artifact.programs) {
    print_row("program", name + ": " + program.kind);
    for (const auto& [role, function] : program.exports) print_row("  " + role, function);
    for (const auto& [adapter, function] : program.adapters) {
      const std::string* dtype = contract::find_named(program.adapter_dtypes, adapter);
      print_row("  adapter " + adapter, function + (dtype == nullptr ? "" : " (" + *dtype + ")"));
    }
  }
  print_row("interface_id", artifact.interface_id);
  print_row("parameter_schema_id", artifact.parameter_schema_id);
  print_row("largest tensor", format_bytes(artifact.resources.max_storage_buffer_binding_size));
  print_row("all parameters", format_bytes(artifact.resources.estimated_device_memory_bytes));
  const std::vector<std::string>& features = artifact.resources.required_features;
  print_row("device features", features.empty() ? "none" : joined(features));
}

void inspect_library(const fs::path& path) {
  const library::LibraryFile file = library::inspect_library(path);
  print_row("library",
            path.filename().string() + ", " + format_bytes(static_cast<int64_t>(fs::file_size(path))));
  print_row("built for",
            file.arch + (file.target && !file.target->cpu.empty() ? ": " + joined(file.target->cpu) : ""));
  const std::optional<Problem> unfit = file.unfit_machine();
  print_row("this machine", unfit ? "can't run it: " + unfit->text() : "can run it");
  print_row("functions", joined(file.functions));
  if (file.metadata) {
    print_metadata(*file.metadata);
  } else {
    print_row("metadata", "none that can be read without running the library");
  }
}

void inspect_safetensors(const fs::path& path) {
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(path);
  std::map<std::string, Sum> types;
  std::vector<SizedTensor> tensors;
  for (const convert::SafeTensor& tensor :
       convert::parse_safetensors(mapped->bytes(), path.filename().string())) {
    Sum& sum = types[tensor.dtype_text];
    ++sum.tensors;
    sum.bytes += tensor.bytes;
    tensors.push_back({tensor.name, tensor.bytes});
  }
  print_row("safetensors", counted(static_cast<int64_t>(tensors.size()), "tensor") + ", " +
                               format_bytes(static_cast<int64_t>(mapped->bytes().size())));
  print_types(types);
  print_parts(tensors);
}

void inspect_document(const fs::path& path) {
  const std::string text = read_file(path, kMaxDocumentBytes);
  const std::string name = path.filename().string();
  const Json document = parse_json(text, name);
  const auto has = [&](const char* member) { return document.is_object() && document.contains(member); };
  if (has("tasks")) {
    print_row("package manifest", name);
    print_manifest(contract::parse_package_manifest(text, name));
  } else if (has("conv_template")) {
    const package::ChatConfig config = package::parse_chat_config(text, name);
    print_row("chat config", config.model_type + ", " + config.quantization);
    print_template(config);
  } else if (has("records")) {
    const package::TensorCache cache = package::TensorCache::parse(text, name);
    print_row("tensor cache", counted(static_cast<int64_t>(cache.tensors().size()), "tensor") + ", " +
                                  format_bytes(cache.stored_bytes()));
    std::vector<SizedTensor> tensors;
    for (const package::StoredTensor& tensor : cache.tensors())
      tensors.push_back({tensor.name, tensor.bytes});
    print_parts(tensors);
  } else if (has("programs")) {
    contract::LibraryMetadata metadata;
    metadata.artifact = contract::parse_artifact(document, name, "");
    print_row("compiled program", name);
    print_metadata(metadata);
  } else if (has("params") || has("artifact")) {
    print_row("library metadata", name);
    print_metadata(contract::parse_metadata(text, name));
  } else {
    throw Error(
        ErrorCode::kUnsupported,
        Problem{.message = "is JSON, but none of the documents that are known here",
                .source = path.string(),
                .expected = "a package manifest, chat config, tensor cache, artifact or library metadata"});
  }
}

// The bytes of a file decide what it is, not its name.
void inspect_file(const fs::path& path) {
  std::array<char, 16> head{};
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(path);
  std::transform(
      mapped->bytes().begin(),
      mapped->bytes().begin() + static_cast<std::ptrdiff_t>(std::min(head.size(), mapped->bytes().size())),
      head.begin(), [](std::byte byte) { return static_cast<char>(byte); });
  const std::string_view bytes(head.data(), head.size());
  if (bytes.starts_with("\x7f"
                        "ELF"))
    return inspect_library(path);
  if (bytes[8] == '{' && bytes[0] != '{') return inspect_safetensors(path);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') return inspect_document(path);
  throw Error(ErrorCode::kUnsupported,
              Problem{.message = "is no file that is known here",
                      .source = path.string(),
                      .expected = "a library, a safetensors file or a JSON document"});
}

void run_inspect(const fs::path& path) {
  std::error_code ec;
  if (!fs::exists(path, ec))
    throw Error(ErrorCode::kNotFound,
                Problem{.message = "there is no such file or folder", .source = path.string()});
  if (!fs::is_directory(path, ec)) return inspect_file(path);
  for (const std::string_view name : {package::kTensorCacheFile, package::kOldTensorCacheFile,
                                      package::kChatConfigFile, contract::kManifestFile}) {
    if (fs::exists(path / name, ec)) return inspect_package(path);
  }
  if (fs::exists(path / "config.json", ec)) return inspect_checkpoint(path);
  throw Error(ErrorCode::kNotFound,
              Problem{.message = "is neither a package nor a checkpoint",
                      .source = path.string(),
                      .expected = "mlc-chat-config.json, or config.json and safetensors files"});
}

}  // namespace

void add_inspect_command(CLI::App& app, int&) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a checkpoint, a package, a library or a document holds");
  command
      ->add_option(
          "path", *path,
          "A Hugging Face folder, a package, a library, a safetensors file, or a document of a package")
      ->required();
  command->callback([path] { run_inspect(*path); });
}

}  // namespace dovetail::cli
