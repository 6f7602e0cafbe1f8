// dovetail convert: a Hugging Face folder becomes a package.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "convert/convert.h"

namespace dovetail::cli {
namespace {

struct ConvertArguments {
  std::string checkpoint;
  std::string output;
  std::string quantization;
  int threads = 0;
};

void print_summary(const ConvertArguments& arguments, const convert::ConvertSummary& summary) {
  const double seconds = std::max(summary.seconds, 1e-3);
  const double bits = static_cast<double>(summary.parameter_bytes) * 8 / static_cast<double>(summary.weights);
  print_row("model", summary.model_type + ", " + arguments.quantization);
  print_row("weights", count_text(summary.weights) + ", " + decimal(bits, 2) + " bits each");
  print_row("read", format_bytes(summary.source_bytes) + " of the checkpoint");
  print_row("written", format_bytes(summary.package_bytes) + ": " + counted(summary.parameters, "tensor") + " in " +
                           counted(summary.shards, "shard"));
  print_row("time", format_seconds(summary.seconds) + ", " +
                        format_bytes(static_cast<int64_t>(static_cast<double>(summary.source_bytes) / seconds)) + "/s");
  for (const convert::SkippedTensors& part : summary.skipped) {
    print_row("not used", part.name + (part.name.ends_with('.') ? "*" : "") + " (" + counted(part.tensors, "tensor") + ", " +
                              format_bytes(part.bytes) + "): " + part.reason);
  }
  for (const std::string& note : summary.notes) print_row("note", note);
  print_row("package", arguments.output);
}

}  // namespace

void add_convert_command(CLI::App& app, int&) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand("convert", "Convert a Hugging Face folder into a package");
  command->add_option("checkpoint", arguments->checkpoint, "folder with config.json, tokenizer.json and safetensors files")
      ->required();
  command->add_option("-o,--output", arguments->output, "folder to create")->required();
  std::string known;
  for (const models::Quantization& quantization : models::quantizations()) {
    known += (known.empty() ? "" : ", ") + std::string(quantization.name);
  }
  command->add_option("--quantization", arguments->quantization, "one of " + known)->required();
  command->add_option("--threads", arguments->threads, "number of threads; default: one per CPU")->check(CLI::Range(1, 1024));
  command->callback([arguments] {
    const InterruptFlag interrupt;
    const convert::ConvertSummary summary = convert::convert({.checkpoint = arguments->checkpoint,
                                                              .output = arguments->output,
                                                              .quantization = &models::find_quantization(arguments->quantization),
                                                              .threads = arguments->threads,
                                                              .cancel = interrupt.flag()});
    print_summary(*arguments, summary);
  });
}

}  // namespace dovetail::cli
