// dovetail convert: a Hugging Face folder, or a GGUF file, becomes a package.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/quantization_argument.h"
#include "cli/report.h"
#include "convert/convert.h"

namespace dovetail::cli {
namespace {

struct ConvertArguments {
  std::string checkpoint;
  std::string mmproj;
  std::string output;
  std::string quantization;
  std::string rounding = "search";
  std::string chat_template = "file";
  bool no_manifest = false;
  int threads = 0;
};

// One row per reason: many small parts may share one.
void print_skipped(const std::vector<convert::SkippedTensors>& skipped) {
  for (size_t i = 0; i < skipped.size(); ++i) {
    const std::string& reason = skipped[i].reason;
    const auto same = [&](const convert::SkippedTensors& part) { return part.reason == reason; };
    if (std::any_of(skipped.begin(), skipped.begin() + static_cast<std::ptrdiff_t>(i), same)) continue;
    std::string names;
    int64_t parts = 0, tensors = 0, bytes = 0;
    for (const convert::SkippedTensors& part : skipped) {
      if (!same(part)) continue;
      if (++parts <= 2) names += (parts > 1 ? ", " : "") + part.name + (part.name.ends_with('.') ? "*" : "");
      tensors += part.tensors;
      bytes += part.bytes;
    }
    if (parts > 2) names += " and " + std::to_string(parts - 2) + " more";
    print_row("not used",
              names + " (" + counted(tensors, "tensor") + ", " + format_bytes(bytes) + "): " + reason);
  }
}

void print_summary(const ConvertArguments& arguments, const convert::ConvertSummary& summary) {
  const double seconds = std::max(summary.seconds, 1e-3);
  const double bits = static_cast<double>(summary.parameter_bytes) * 8 / static_cast<double>(summary.weights);
  print_row("model", summary.model_type + ", " + summary.quantization);
  print_row("weights", count_text(summary.weights) + ", " + decimal(bits, 2) + " bits each");
  print_row("read", format_bytes(summary.source_bytes) + " of the checkpoint");
  print_row("written", format_bytes(summary.package_bytes) + ": " + counted(summary.parameters, "tensor") +
                           " in " + counted(summary.shards, "shard"));
  print_row("time",
            format_seconds(summary.seconds) + ", " +
                format_bytes(static_cast<int64_t>(static_cast<double>(summary.source_bytes) / seconds)) +
                "/s");
  print_skipped(summary.skipped);
  for (const std::string& note : summary.notes) print_row("note", note);
  print_row("package", arguments.output);
}

}  // namespace

void add_convert_command(CLI::App& app, int&) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command =
      app.add_subcommand("convert", "Convert a Hugging Face folder or a GGUF file into a package");
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "folder with config.json, tokenizer.json or tokenizer.model, and safetensors files, "
                   "or a GGUF file")
      ->required();
  command->add_option(
      "--mmproj", arguments->mmproj,
      "a GGUF file with the encoder of pictures or recordings, beside the GGUF file of the text");
  command->add_option("-o,--output", arguments->output, "folder to create")->required();
  command->add_option("--quantization", arguments->quantization,
                      "one of " + models::quantization_names() +
                          "; default, for a GGUF file only: q8f16_1 or q4f16_1, by its bits");
  command
      ->add_option("--rounding", arguments->rounding,
                   "how a group's scale is chosen: search, for the smallest squared error, or mlc, by the "
                   "largest value as MLC's tools do, for the same bytes as theirs")
      ->check(CLI::IsMember({"search", "mlc"}))
      ->capture_default_str();
  command
      ->add_option("--chat-template", arguments->chat_template,
                   "the checkpoint's own, or that of the model's family (file, family)")
      ->check(CLI::IsMember({"file", "family"}))
      ->capture_default_str();
  command->add_flag("--no-manifest", arguments->no_manifest,
                    "write no mlc-model-manifest.json, and the model configuration in MLC's older form");
  command->add_option("--threads", arguments->threads, "number of threads; default: one per CPU")
      ->check(CLI::Range(1, 1024));
  command->callback([arguments] {
    const InterruptFlag interrupt;
    const convert::ConvertSummary summary = convert::convert(
        {.checkpoint = arguments->checkpoint,
         .mmproj = arguments->mmproj,
         .output = arguments->output,
         .quantization =
             arguments->quantization.empty() ? nullptr : &quantization_argument(arguments->quantization),
         .rounding = arguments->rounding == "mlc" ? convert::Rounding::kMlc : convert::Rounding::kSearch,
         .family_chat_template = arguments->chat_template == "family",
         .manifest = !arguments->no_manifest,
         .threads = arguments->threads,
         .cancel = interrupt.flag()});
    print_summary(*arguments, summary);
  });
}

}  // namespace dovetail::cli
