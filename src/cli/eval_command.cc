// dovetail eval: how well a model predicts a text.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/open_engine.h"
#include "cli/report.h"
#include "cli/utf8_text.h"
#include "engine/evaluate.h"

namespace dovetail::cli {
namespace {

constexpr int64_t kDefaultContext = 512;
constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;

struct EvalArguments {
  EngineArguments engine;
  std::string text;
  std::string reference;
  std::string reference_library;
  int64_t context = 0;
  int64_t stride = 0;
  bool json = false;
};

engine::EvaluateOptions evaluate_options(const EvalArguments& arguments, const engine::Engine& engine) {
  engine::EvaluateOptions options;
  options.context =
      arguments.context > 0 ? arguments.context : std::min(kDefaultContext, engine.context_window());
  options.stride = arguments.stride > 0 ? arguments.stride : options.context / 2;
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](int64_t done, int64_t total) {
      std::fprintf(stderr, "\r\x1b[K%lld of %lld tokens (%lld %%)%s", static_cast<long long>(done),
                   static_cast<long long>(total), static_cast<long long>(100 * done / total),
                   done == total ? "\r\x1b[K" : "");
    };
  }
  return options;
}

std::vector<int32_t> read_text(const EvalArguments& arguments, const engine::Engine& engine) {
  const std::string text = read_file(arguments.text, kMaxTextBytes);
  check_utf8(text, arguments.text, ErrorCode::kMalformed);
  return engine.model().tokenizer.encode(text);
}

Json to_json(const engine::Perplexity& result) {
  return {{"perplexity", result.perplexity},
          {"standard_error", result.standard_error},
          {"mean_nll", result.mean_nll}};
}

Json settings_json(const EvalArguments& arguments, const engine::EvaluateOptions& options,
                   const engine::Perplexity& result) {
  return {{"text", arguments.text},    {"context", options.context}, {"stride", options.stride},
          {"windows", result.windows}, {"tokens", result.tokens},    {"exact", arguments.engine.exact}};
}

void print_settings(const engine::EvaluateOptions& options, const engine::Perplexity& result) {
  print_row("tokens", std::to_string(result.tokens) + " scored in " + counted(result.windows, "window") +
                          " of " + std::to_string(options.context) + ", stride " +
                          std::to_string(options.stride));
}

std::string perplexity_text(const engine::Perplexity& result) {
  return decimal(result.perplexity, 4) + " ± " + decimal(result.standard_error, 4) + " (" +
         decimal(result.mean_nll, 5) + " nats a token)";
}

void run_perplexity(const EvalArguments& arguments) {
  const std::unique_ptr<engine::Engine> engine = open_engine(arguments.engine);
  const engine::EvaluateOptions options = evaluate_options(arguments, *engine);
  const engine::Perplexity result = engine::perplexity(*engine, read_text(arguments, *engine), options);
  if (arguments.json) {
    Json document = settings_json(arguments, options, result);
    document.update(to_json(result));
    print_document(document);
    return;
  }
  print_settings(options, result);
  print_row("perplexity", perplexity_text(result));
}

void run_divergence(const EvalArguments& arguments) {
  const std::unique_ptr<engine::Engine> engine = open_engine(arguments.engine);
  EngineArguments reference_arguments = arguments.engine;
  reference_arguments.package = arguments.reference;
  reference_arguments.library = arguments.reference_library;
  reference_arguments.exact = true;
  const std::unique_ptr<engine::Engine> reference = open_engine(reference_arguments);
  const std::vector<int32_t> text = read_text(arguments, *engine);
  if (text != read_text(arguments, *reference)) {
    throw Error(ErrorCode::kMismatch, Problem{.message = "the two packages make different tokens of the text",
                                              .source = arguments.reference,
                                              .hint = "compare packages of the same checkpoint"});
  }
  const engine::EvaluateOptions options = evaluate_options(arguments, *engine);
  const engine::Divergence result = engine::divergence(*engine, *reference, text, options);
  if (arguments.json) {
    Json document = settings_json(arguments, options, result.model);
    document["kl"] = {{"mean", result.mean},
                      {"median", result.median},
                      {"percentile_99", result.percentile_99},
                      {"largest", result.largest}};
    document["same_top"] = result.same_top;
    document["model"] = to_json(result.model);
    document["reference"] = to_json(result.reference);
    print_document(document);
    return;
  }
  print_settings(options, result.model);
  print_row("KL divergence", decimal(result.mean, 6) + " nats a token; median " + decimal(result.median, 6) +
                                 ", 99 % below " + decimal(result.percentile_99, 6) + ", largest " +
                                 decimal(result.largest, 6));
  print_row("same top", decimal(100 * result.same_top, 2) + " % of the tokens");
  print_row("perplexity", perplexity_text(result.model));
  print_row("reference", perplexity_text(result.reference));
}

void add_options(CLI::App& command, const std::shared_ptr<EvalArguments>& arguments) {
  command.add_option("package", arguments->engine.package, "The folder that `dovetail convert` wrote")
      ->required();
  command.add_option("text", arguments->text, "The text, UTF-8")->required();
  command.add_option("--library", arguments->engine.library,
                     "The compiled library; default: the package's own");
  command
      .add_option("--context", arguments->context,
                  "Tokens of a window; default: 512, or the context window when that is smaller")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command
      .add_option("--stride", arguments->stride,
                  "Tokens between the beginnings of two windows; default: half the context")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command.add_option("--threads", arguments->engine.threads, "Default: all processors of this process")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--exact", arguments->engine.exact, "Compute with float32 activations");
  command.add_flag("--json", arguments->json, "Print one JSON object instead of the text");
}

}  // namespace

void add_eval_command(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("eval", "Measure how well a model predicts a text");
  command->require_subcommand(1);
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* perplexity = command->add_subcommand(
      "perplexity", "Perplexity: windows over the text, every token but the first scored once");
  add_options(*perplexity, arguments);
  perplexity->callback([arguments] { run_perplexity(*arguments); });
  CLI::App* divergence = command->add_subcommand(
      "kl",
      "KL divergence and agreement of the most likely token against another package of the same "
      "checkpoint, which is computed with float32 activations");
  add_options(*divergence, arguments);
  divergence->add_option("--reference", arguments->reference, "The package to compare with")->required();
  divergence->add_option("--reference-library", arguments->reference_library,
                         "Its compiled library; default: that package's own");
  divergence->callback([arguments] { run_divergence(*arguments); });
}

}  // namespace dovetail::cli
