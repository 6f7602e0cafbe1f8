// dovetail verify: whether a package is whole, and whether its libraries fit it. Runs no code of either.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "library/compatibility.h"
#include "library/model.h"
#include "package/verify.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;

struct VerifyArguments {
  std::string package;
  std::string library;
  bool deep = false;
};

std::string level_text(const library::LibraryFile& file) {
  std::string out = file.arch;
  if (file.target) {
    for (const std::string& level : file.target->cpu) out += ", " + level;
  }
  return out;
}

// A library that was asked for must run here; one that merely lies in the package may be for another machine.
void check_library(const library::PackageDocuments& documents, const fs::path& path, bool asked,
                   std::vector<Problem>& problems) {
  const std::string name = path.filename().string();
  try {
    const library::LibraryFile file = library::inspect_library(path);
    if (std::optional<Problem> no_model = file.no_model()) {
      print_row("library", name + ": is no compiled model");
      problems.push_back(std::move(*no_model));
      return;
    }
    const std::optional<Problem> unfit = file.unfit_machine();
    std::vector<Problem> found = library::mismatches(documents, file);
    if (unfit && !asked && !found.empty()) found.erase(found.begin());
    if (!file.metadata) {
      print_row("library", name + ": says nothing about itself without being run; not checked");
    } else {
      print_row("library", name + " (" + level_text(file) +
                               "): " + (found.empty() ? "fits" : "does not fit") +
                               (unfit ? "; this machine can't run it" : ""));
    }
    problems.insert(problems.end(), found.begin(), found.end());
  } catch (const Error& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

void run_verify(const VerifyArguments& arguments) {
  const InterruptFlag interrupt;
  const fs::path dir = arguments.package;
  const package::VerifyReport report = package::verify_package(dir, arguments.deep, interrupt.flag());
  std::vector<Problem> problems = report.problems;
  print_row("package", arguments.package);
  print_row("files", std::to_string(report.files) + ", " + format_bytes(report.bytes));
  if (report.tensors > 0) print_row("weights", counted(report.tensors, "tensor"));
  print_row("content",
            !arguments.deep ? std::string("sizes compared; --deep reads every byte")
            : report.listed
                ? format_bytes(report.hashed_bytes) + " read and compared with the hashes"
                : format_bytes(report.hashed_bytes) + " read; there are no hashes but the shards'");
  if (problems.empty()) {
    const std::vector<fs::path> libraries = arguments.library.empty()
                                                ? library::package_libraries(dir)
                                                : std::vector<fs::path>{arguments.library};
    if (!libraries.empty()) {
      const library::PackageDocuments documents = library::read_package_documents(dir);
      for (const fs::path& path : libraries)
        check_library(documents, path, !arguments.library.empty(), problems);
    }
  } else if (!arguments.library.empty()) {
    print_row("library", "not compared: the package itself has problems");
  }
  for (const std::string& note : report.notes) print_row("note", note);
  std::fflush(stdout);
  if (!problems.empty()) throw Error(ErrorCode::kMismatch, std::move(problems));
  const bool colour = terminal_colors(1);
  std::printf("%s%s%s\n", colour ? "\x1b[32m" : "", "The package is whole.", colour ? "\x1b[0m" : "");
}

}  // namespace

void add_verify_command(CLI::App& app, int&) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify", "Check that a package is whole and that a library fits it, without running anything of them");
  command->add_option("package", arguments->package, "The folder that `dovetail convert` wrote")->required();
  command->add_option("--library", arguments->library,
                      "The library to compare; default: every one in the package");
  command->add_flag("--deep", arguments->deep,
                    "Read every byte: hashes of all files, and values that are not finite");
  command->callback([arguments] { run_verify(*arguments); });
}

}  // namespace dovetail::cli
