// dovetail compile: a package's model → a shared library.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "compile/compile.h"
#include "ops/ops.h"
#include "package/package.h"

namespace dovetail::cli {
namespace {

struct CompileOptions {
  std::string package;
  std::string levels = "x86-64-v3,x86-64-v4";
  std::string output;
};

void run_compile(const CompileOptions& options) {
  const InterruptFlag interrupt;
  const std::vector<ops::Level> levels = compile::parse_levels(options.levels);
  const models::ModelPlan plan = compile::plan_package(options.package);
  const std::filesystem::path output = options.output.empty()
                                           ? compile::default_library_path(options.package, plan)
                                           : std::filesystem::path(options.output);
  package::check_output(output, options.package);
  std::string names;
  for (const ops::Level level : levels)
    names += (names.empty() ? "" : ",") + std::string(ops::level_name(level));
  std::fprintf(stderr, "compiling %s %s for %s …\n", plan.model_type.c_str(),
               std::string(plan.quantization->name).c_str(), names.c_str());
  const compile::CompileResult result = compile::compile_library(plan, levels, output, interrupt.flag());
  const std::string written = result.library.string();
  std::fprintf(stderr, "wrote %s (%s) in %s with %s\n", printable(written, written.size()).c_str(),
               format_bytes(result.bytes).c_str(), format_seconds(result.seconds).c_str(),
               result.compiler_version.c_str());
}

}  // namespace

void add_compile_command(CLI::App& app, int&) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* command =
      app.add_subcommand("compile", "Compile the model of a package into a library for this kind of machine");
  command->add_option("package", options->package, "The folder that `dovetail convert` wrote")->required();
  command
      ->add_option("--cpu", options->levels,
                   "CPU levels to build in; the best one is chosen when the library is loaded")
      ->capture_default_str();
  command->add_option("-o,--output", options->output,
                      "The library; default: <package>/lib/<model>-<quantization>-x86_64.so");
  command->callback([options] { run_compile(*options); });
}

}  // namespace dovetail::cli
