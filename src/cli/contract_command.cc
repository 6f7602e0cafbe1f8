// dovetail contract check: whether a package and a library fit, from their documents alone.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "contract/match.h"

namespace dovetail::cli {
namespace {

using contract::MatchContext;

struct CheckOptions {
  std::string manifest;
  bool no_manifest = false;
  std::string metadata;
  std::string chat_config;
  std::string device;
  std::string functions;
};

constexpr int64_t kMaxDocumentBytes = int64_t{64} << 20;

// Runs read(bytes) on the file and keeps the problems of a malformed document, so that all documents are
// looked at.
template <class Read>
void collect(const std::string& path, std::vector<Problem>& problems, const Read& read) {
  std::string bytes;
  try {
    bytes = read_file(path, kMaxDocumentBytes);
  } catch (const Error& error) {
    // Not being able to look is not a verdict about the contract.
    if (error.code() != ErrorCode::kLimit) throw Error(ErrorCode::kUsage, error.problems());
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    return;
  }
  try {
    read(bytes);
  } catch (const Error& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

void check(const CheckOptions& options) {
  std::vector<Problem> problems;
  std::optional<contract::PackageManifest> manifest;
  std::optional<contract::LibraryMetadata> library;
  MatchContext context;
  context.manifest_source = options.manifest;
  context.metadata_source = options.metadata;
  if (!options.no_manifest) {
    collect(options.manifest, problems, [&](const std::string& bytes) {
      manifest = contract::parse_package_manifest(bytes, options.manifest);
    });
  }
  collect(options.metadata, problems,
          [&](const std::string& bytes) { library = contract::parse_metadata(bytes, options.metadata); });
  if (!options.chat_config.empty()) {
    collect(options.chat_config, problems, [&](const std::string& bytes) {
      contract::add_chat_config(context, bytes, options.chat_config);
    });
  }
  if (!options.device.empty()) {
    collect(options.device, problems,
            [&](const std::string& bytes) { contract::add_device(context, bytes, options.device); });
  }
  if (!options.functions.empty()) {
    collect(options.functions, problems,
            [&](const std::string& bytes) { contract::add_functions(context, bytes, options.functions); });
  }
  if (library && manifest) {
    for (Problem& problem : contract::match(*manifest, *library, context))
      problems.push_back(std::move(problem));
  } else if (library && !options.no_manifest) {
    problems.insert(problems.end(), library->artifact_problems.begin(), library->artifact_problems.end());
  } else if (library && !library->params) {
    problems.push_back({.message = "is not what _metadata returns: the parameters are missing",
                        .source = options.metadata,
                        .field = "params",
                        .expected = "a list of parameters"});
  }
  if (!problems.empty()) throw Error(ErrorCode::kMismatch, std::move(problems));
  // Without a manifest the artifact means nothing, not even that it is odd.
  for (const Problem& note :
       options.no_manifest ? std::vector<Problem>() : contract::review(*library, context)) {
    std::fprintf(stderr, "note: %s\n", printable(note.text(), 2000).c_str());
  }
  if (options.no_manifest) {
    std::printf("without a manifest there is no contract: the library loads as before\n");
    return;
  }
  std::printf("package and library fit\n  interface_id        %s\n  parameter_schema_id %s\n",
              manifest->interface_id.c_str(), manifest->parameter_schema_id.c_str());
}

}  // namespace

void add_contract_command(CLI::App& app, int&) {
  CLI::App* const contract = app.add_subcommand("contract", "The contract between a package and a library");
  contract->require_subcommand(1);
  CLI::App* const check_command = contract->add_subcommand(
      "check",
      "Whether a package and a library fit: exit code 0 yes, 1 no (every reason is printed), 2 usage");
  auto options = std::make_shared<CheckOptions>();
  const auto add = [&](const char* name, std::string& value, const char* help) {
    return check_command->add_option(name, value, help)->check(CLI::ExistingFile)->type_name("FILE");
  };
  CLI::Option_group* const package = check_command->add_option_group("package");
  package->add_option("--manifest", options->manifest, "mlc-model-manifest.json of the package")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  package->add_flag("--no-manifest", options->no_manifest,
                    "The package has none: the library's artifact is not consulted");
  package->require_option(1);
  add("--metadata", options->metadata, "the JSON text that the library's _metadata function returns")
      ->required();
  add("--chat-config", options->chat_config,
      "mlc-chat-config.json: token IDs are checked against its vocab_size");
  add("--device", options->device, R"({"features": [names], "maxStorageBufferBindingSize": bytes})");
  add("--functions", options->functions, "[names] of all functions the library exports");
  check_command->callback([options] { check(*options); });
}

}  // namespace dovetail::cli
