// dovetail inspect: checkpoints, and what they could become.
#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/inspect.h"
#include "convert/checkpoint_folder.h"
#include "convert/safetensors.h"
#include "convert/source.h"
#include "models/plan.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;

std::string text_with_hint(const Problem& problem) {
  return problem.text() + (problem.hint.empty() ? "" : "; " + problem.hint);
}

void show_problems(Inspection& out, const Error& error) {
  for (const Problem& problem : error.problems()) {
    out.row("can't be converted", text_with_hint(problem));
    out.json["problems"].push_back(text_with_hint(problem));
  }
}

void show_plan(Inspection& out, const models::ModelPlan& plan) {
  std::vector<std::string> inputs;
  for (const auto& [name, input] : plan.tasks.front().second.inputs) inputs.push_back(name);
  out.row("context window", std::to_string(plan.context_window_size) + " tokens");
  out.row("inputs", joined(inputs));
  out.json["model_type"] = plan.model_type;
  out.json["context_window_size"] = plan.context_window_size;
  out.json["inputs"] = inputs;
}

// `package_bytes`: 0 when it is not known.
void show_conversion(Inspection& out, const models::ModelPlan& plan, int64_t package_bytes) {
  int64_t bytes = 0;
  for (const models::Parameter& parameter : plan.parameters) bytes += parameter.bytes();
  const auto tensors = static_cast<int64_t>(plan.parameters.size());
  const std::string weights = format_bytes(bytes) + (package_bytes > 0 ? " of weights" : "") + " in " +
                              counted(tensors, "tensor") + ", " + format_bytes(plan.decode_bytes) +
                              " read per token";
  out.row(plan.quantization->name,
          package_bytes > 0 ? format_bytes(package_bytes) + ": " + weights : weights);
  Json one = {{"quantization", plan.quantization->name}, {"weight_bytes", bytes}};
  if (package_bytes > 0) one["package_bytes"] = package_bytes;
  one["tensors"] = tensors;
  one["bytes_per_token"] = plan.decode_bytes;
  out.json["conversions"].push_back(std::move(one));
}

std::string template_origin(const convert::Source& source, const models::ModelPlan& plan) {
  if (!source.chat_template) return "that of the model's family: the checkpoint has no chat template";
  std::vector<std::string> notes;
  package::ProblemList problems;
  package::ConvTemplate conv =
      package::read_conv_template(plan.conv_template, source.config_name, "conv_template", problems);
  const std::string reason =
      convert::derive_conv_template(*source.chat_template, source.tokenizer.tokenizer, conv, notes);
  if (reason.empty()) return "derived from the chat template of " + source.chat_template->source;
  return "that of the model's family: the chat template of " + source.chat_template->source +
         " can't be taken apart (" + reason + ")";
}

void show_source(Inspection& out, const convert::Source& source) {
  const models::ModelPlan plan = source.plan(models::quantizations().front());
  show_plan(out, plan);
  const int64_t tokens = source.tokenizer.tokenizer.vocab_size();
  out.row("vocabulary", std::to_string(plan.vocab_size) + " rows, " + std::to_string(tokens) + " tokens");
  out.json["vocabulary"] = {{"rows", plan.vocab_size}, {"tokens", tokens}};
  std::vector<std::string> files;
  for (const convert::TokenizerFile& file : source.tokenizer.files)
    files.push_back(file.name + (file.copied_from.empty() ? " (made)" : ""));
  out.row("tokenizer", joined(files));
  out.json["tokenizer_files"] = files;
  std::optional<convert::PackageOutline> outline;
  try {
    outline = convert::outline_package(plan, source, false, true);
  } catch (const Error& error) {
    for (const std::string& note : source.notes) out.row("note", note);
    out.json["notes"] = source.notes;
    show_problems(out, error);
    return;
  }
  for (const convert::SkippedTensors& part : outline->mapping.skipped) {
    out.json["not_used"].push_back(
        {{"name", part.name}, {"tensors", part.tensors}, {"bytes", part.bytes}, {"reason", part.reason}});
  }
  for (const std::string& note : outline->mapping.notes) out.row("note", note);
  out.json["notes"] = outline->mapping.notes;
  out.heading("as a package");
  for (const models::Quantization& quantization : models::quantizations()) {
    const models::ModelPlan one = source.plan(quantization);
    show_conversion(out, one, convert::expected_package_bytes(one, source, *outline));
  }
  show_conversation(out, outline->chat_config, template_origin(source, plan));
}

// The rest of what a checkpoint is told of; nothing of it stops what is known already.
void show_checkpoint(Inspection& out, const fs::path& path, const fs::path& mmproj) {
  try {
    show_source(out, convert::open_source(path, mmproj));
  } catch (const Error& error) {
    show_problems(out, error);
  }
}

void show_weights(Inspection& out, const WeightSums& sums, int64_t files) {
  out.row("weights", count_text(sums.values()) + " in " + counted(sums.tensors(), "tensor") + ", " +
                         format_bytes(sums.bytes()) + " in " + counted(files, "file"));
  sums.show(out);
  out.json["weights"]["files"] = files;
}

void show_architectures(Inspection& out, const char* label, const Json& config) {
  std::vector<std::string> architectures;
  if (config.is_object() && config.contains("architectures") && config["architectures"].is_array()) {
    for (const Json& name : config["architectures"])
      architectures.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  }
  out.row(label, architectures.empty() ? "config.json names no architecture" : joined(architectures));
  out.json["architectures"] = architectures;
}

std::string text_of(const convert::Gguf& gguf, std::string_view key) {
  const convert::GgufValue* value = gguf.find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
  return text == nullptr ? "" : printable(*text, 100);
}

void add_tensors(WeightSums& sums, const convert::Gguf& gguf) {
  for (const convert::GgufTensor& tensor : gguf.tensors())
    sums.add(tensor.name, tensor.type_name(), tensor.bytes, tensor.elements());
}

}  // namespace

void inspect_folder(Inspection& out, const fs::path& path) {
  std::vector<std::string> notes;
  const fs::path folder = convert::checkpoint_folder(path, notes);
  std::error_code ec;
  if (!fs::exists(folder / "config.json", ec)) convert::check_folder(folder);  // says what it is instead
  out.json["kind"] = "checkpoint";
  show_architectures(out, "checkpoint", read_json(folder / "config.json"));
  const convert::Checkpoint checkpoint = convert::open_checkpoint(folder);
  WeightSums sums;
  for (const convert::CheckpointTensor& tensor : checkpoint.tensors)
    sums.add(tensor.name, tensor.dtype_text, tensor.bytes, tensor.elements());
  show_weights(out, sums, static_cast<int64_t>(checkpoint.files.size()));
  show_checkpoint(out, path, {});
  out.parts(sums.sized());
}

void inspect_gguf(Inspection& out, const fs::path& path, const fs::path& mmproj) {
  WeightSums sums;
  const std::shared_ptr<const MappedFile> file = MappedFile::open(path);
  const convert::Gguf gguf = convert::Gguf::parse(file->bytes(), path.filename().string());
  const std::string architecture = text_of(gguf, "general.architecture"),
                    name = text_of(gguf, "general.name");
  out.json["kind"] = "gguf";
  out.json["version"] = gguf.version();
  out.json["architecture"] = architecture;
  out.json["name"] = name;
  out.row("GGUF file", (architecture.empty() ? "no architecture" : architecture) +
                           (name.empty() ? "" : ", \"" + name + "\"") + ", version " +
                           std::to_string(gguf.version()));
  add_tensors(sums, gguf);
  if (!mmproj.empty()) {
    const std::shared_ptr<const MappedFile> encoder = MappedFile::open(mmproj);
    const convert::Gguf parsed = convert::Gguf::parse(encoder->bytes(), mmproj.filename().string());
    out.row("encoder", mmproj.filename().string() + ", " + text_of(parsed, "general.architecture"));
    out.json["encoder"] = mmproj.filename().string();
    add_tensors(sums, parsed);
  }
  show_weights(out, sums, mmproj.empty() ? 1 : 2);
  show_checkpoint(out, path, mmproj);
  out.parts(sums.sized());
}

void inspect_safetensors(Inspection& out, const fs::path& path) {
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(path);
  WeightSums sums;
  for (const convert::SafeTensor& tensor :
       convert::parse_safetensors(mapped->bytes(), path.filename().string()))
    sums.add(tensor.name, tensor.dtype_text, tensor.bytes, tensor.elements());
  out.json["kind"] = "safetensors";
  out.row("safetensors", counted(sums.tensors(), "tensor") + ", " +
                             format_bytes(static_cast<int64_t>(mapped->bytes().size())));
  sums.show(out);
  out.parts(sums.sized());
}

void inspect_config(Inspection& out, const Json& config, const std::string& name) {
  out.json["kind"] = "config";
  show_architectures(out, "model configuration", config);
  try {
    for (const models::Quantization& quantization : models::quantizations()) {
      const models::ModelPlan plan = models::plan_model(config, quantization, name);
      if (&quantization == &models::quantizations().front()) {
        show_plan(out, plan);
        out.row("vocabulary", std::to_string(plan.vocab_size) + " rows");
        out.json["vocabulary"] = {{"rows", plan.vocab_size}};
        out.heading("weights of a package");
      }
      show_conversion(out, plan, 0);
    }
  } catch (const Error& error) {
    show_problems(out, error);
  }
}

}  // namespace dovetail::cli
