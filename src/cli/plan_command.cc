// dovetail plan: what a model becomes under a quantization, from its configuration alone.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/quantization_argument.h"
#include "cli/report.h"
#include "contract/artifact.h"
#include "contract/manifest.h"
#include "convert/checkpoint_folder.h"
#include "convert/gguf_model.h"
#include "models/plan.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;

struct PlanOptions {
  std::string model;
  std::string quantization;
  std::string target = "cpu";
  bool json = false;
};

Json plan_json(const models::ModelPlan& plan, models::Target target) {
  Json parameters = Json::array();
  for (const models::Parameter& parameter : plan.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"shape", models::shape_json(parameter)},
                          {"dtype", dtype_name(parameter.dtype)}});
  }
  Json out = Json::object();
  out["model_type"] = plan.model_type;
  out["quantization"] = plan.quantization->name;
  out["target"] = target == models::Target::kCpu ? "cpu" : "webgpu";
  out["context_window_size"] = plan.context_window_size;
  out["prefill_chunk_size"] = plan.prefill_chunk_size;
  out["decode_bytes"] = plan.decode_bytes;
  out["kv_bytes_per_token"] = plan.kv_bytes_per_token;
  out["kv_bytes_at_full_context"] = plan.kv_bytes_at_full_context;
  out["parameter_count"] = plan.parameters.size();
  out["manifest"] = contract::to_json(plan.manifest());
  out["artifact"] = contract::to_json(plan.artifact(target));
  out["parameters"] = std::move(parameters);
  return out;
}

void print_plan(const models::ModelPlan& plan, models::Target target) {
  const contract::CompiledProgram artifact = plan.artifact(target);
  print_row("model", plan.model_type + ", " + std::string(plan.quantization->name));
  print_row("parameters", std::to_string(plan.parameters.size()) + " tensors, " +
                              format_bytes(artifact.resources.estimated_device_memory_bytes) + " (" +
                              std::to_string(artifact.resources.estimated_device_memory_bytes) + " bytes)");
  print_row("largest tensor", format_bytes(artifact.resources.max_storage_buffer_binding_size) + " (" +
                                  std::to_string(artifact.resources.max_storage_buffer_binding_size) +
                                  " bytes)");
  print_row("read per token", format_bytes(plan.decode_bytes));
  print_row("context window", std::to_string(plan.context_window_size) + " tokens, prefilled in chunks of " +
                                  std::to_string(plan.prefill_chunk_size));
  print_row("KV cache (CPU)", format_bytes(plan.kv_bytes_per_token) + " per token, " +
                                  format_bytes(plan.kv_bytes_at_full_context) + " at the full context");
  std::string inputs;
  for (const auto& [name, input] : plan.tasks.front().second.inputs)
    inputs += (inputs.empty() ? "" : ", ") + name;
  print_row("inputs", inputs);
  std::string features;
  for (const std::string& feature : artifact.resources.required_features)
    features += (features.empty() ? "" : ", ") + feature;
  print_row("device features", features.empty() ? "none" : features);
  print_row("interface_id", artifact.interface_id);
  print_row("parameter_schema_id", artifact.parameter_schema_id);

  std::vector<SizedTensor> tensors;
  for (const models::Parameter& parameter : plan.parameters)
    tensors.push_back({parameter.name, parameter.bytes()});
  print_parts(tensors);
}

void run_plan(const PlanOptions& options) {
  const models::Quantization& quantization = quantization_argument(options.quantization);
  fs::path path = options.model;
  std::error_code ec;
  if (fs::is_directory(path, ec)) {
    std::vector<std::string> notes;
    path = convert::checkpoint_folder(path, notes) / "config.json";
    for (const std::string& note : notes) std::fprintf(stderr, "note: %s\n", printable(note, 200).c_str());
  }
  if (convert::is_gguf(path))
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = "a GGUF file has no config.json",
                        .source = path.string(),
                        .hint = "'dovetail inspect' shows what becomes of it under every quantization"});
  if (!fs::exists(path, ec))
    throw Error(
        ErrorCode::kNotFound,
        Problem{.message = "file is missing",
                .source = path.string(),
                .hint = "give a checkpoint's config.json or its folder; 'dovetail inspect' shows what a "
                        "package holds"});
  const models::ModelPlan plan = models::plan_model(read_json(path), quantization, path.string());
  const models::Target target = options.target == "webgpu" ? models::Target::kWebGpu : models::Target::kCpu;
  if (options.json) {
    print_document(plan_json(plan, target));
  } else {
    print_plan(plan, target);
  }
}

}  // namespace

void add_plan_command(CLI::App& app, int&) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "Show what a model becomes, from its configuration alone: contract, parameters, sizes");
  command->add_option("model", options->model, "config.json, or the folder of a Hugging Face checkpoint")
      ->required();
  command->add_option("--quantization", options->quantization, "one of " + models::quantization_names())
      ->required();
  command->add_option("--target", options->target, "What the library is for")
      ->check(CLI::IsMember({"cpu", "webgpu"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print everything, with every parameter, as JSON");
  command->callback([options] { run_plan(*options); });
}

}  // namespace dovetail::cli
