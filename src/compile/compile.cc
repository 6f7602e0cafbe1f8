#include "compile/compile.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "compile/codegen.h"
#include "compile/toolchain.h"
#include "contract/manifest.h"
#include "models/mlc_config.h"
#include "ops/ops.h"
#include "package/chat_config.h"
#include "package/package.h"

namespace dovetail::compile {
namespace fs = std::filesystem;
namespace {

// A folder for the source and the unfinished library, beside the output so that the last step is a rename.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& beside) {
    std::error_code ec;
    made_parent_ = fs::create_directories(beside, ec);
    path_ = beside / (".dovetail-compile-" + std::to_string(::getpid()));
    fs::create_directories(path_, ec);
    if (ec) {
      throw Error(ErrorCode::kIo, Problem{.message = "creating the folder failed: " + ec.message(),
                                          .source = path_.string(),
                                          .hint = "choose another place for the library with -o"});
    }
  }
  ~WorkFolder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
    // Only succeeds when nothing was written.
    if (made_parent_) fs::remove(path_.parent_path(), ec);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool made_parent_ = false;
};

std::string last_lines(const std::string& text, size_t count) {
  size_t at = text.size();
  while (count > 0 && at > 0) {
    at = text.rfind('\n', at - 1);
    if (at == std::string::npos) return text;
    --count;
  }
  return text.substr(at);
}

}  // namespace

std::vector<ops::Level> parse_levels(const std::string& text) {
  std::vector<ops::Level> out;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string name = text.substr(at, end - at);
    const std::vector<ops::Level> known{ops::Level::kAvx2, ops::Level::kAvx512};
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](ops::Level level) { return ops::level_name(level) == name; });
    if (found == known.end()) {
      throw Error(ErrorCode::kUsage,
                  Problem{.message = "unknown CPU level \"" + printable(name) + "\"",
                          .expected = "x86-64-v3, x86-64-v4 or both",
                          .hint = "x86-64-v3 runs wherever AVX2 does; x86-64-v4 needs AVX-512 with VNNI"});
    }
    if (std::find(out.begin(), out.end(), *found) == out.end()) out.push_back(*found);
    at = end + 1;
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

const models::Quantization& quantization_of(const package::ChatConfig& config, const fs::path& path) try {
  return models::find_quantization(config.quantization);
} catch (const Error& error) {
  Problem problem = error.problems().front();
  problem.source = path.string();
  problem.field = "quantization";
  throw Error(ErrorCode::kUnsupported, std::move(problem));
}

}  // namespace

models::ModelPlan plan_package(const fs::path& package) {
  const package::ChatConfig config = package::read_chat_config(package);
  const std::string source = (package / package::kChatConfigFile).string() + " model_config";
  const models::Quantization& quantization = quantization_of(config, package / package::kChatConfigFile);
  const std::optional<contract::PackageManifest> manifest = package::read_manifest(package);
  if (!manifest)
    return models::plan_without_manifest(config.model_type, config.model_config, quantization, source);
  const fs::path manifest_path = package / contract::kManifestFile;
  // MLC's own tools write a manifest too, beside the configuration in their form.
  const bool mlc_form = config.model_config.is_object() && !config.model_config.contains("architectures");
  models::ModelPlan plan =
      models::plan_model(mlc_form ? models::config_from_mlc(config.model_type, config.model_config, source)
                                  : config.model_config,
                         quantization, source);
  if (mlc_form)
    plan.prefill_chunk_size =
        std::min(plan.prefill_chunk_size, models::mlc_prefill_chunk(config.model_config, source));
  const contract::PackageManifest own = plan.manifest();
  std::vector<Problem> problems;
  const auto compare = [&](const char* field, const std::string& expected, const std::string& actual) {
    if (expected == actual) return;
    problems.push_back({.message = "the package was made for another version of the model",
                        .source = manifest_path.string(),
                        .field = field,
                        .expected = expected,
                        .actual = actual,
                        .hint = "convert the checkpoint again with this version, then compile"});
  };
  compare("interface_id", own.interface_id, manifest->interface_id);
  compare("weights.parameter_schema_id", own.parameter_schema_id, manifest->parameter_schema_id);
  if (!problems.empty()) throw Error(ErrorCode::kMismatch, std::move(problems));
  return plan;
}

fs::path default_library_path(const fs::path& package, const models::ModelPlan& plan) {
  return package / "lib" / (plan.model_type + "-" + std::string(plan.quantization->name) + "-x86_64.so");
}

CompileResult compile_library(const models::ModelPlan& plan, const std::vector<ops::Level>& levels,
                              const fs::path& output, const std::atomic<bool>* cancel) {
  const auto start = std::chrono::steady_clock::now();
  const Toolchain toolchain = find_toolchain(cancel);
  const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  std::error_code ec;
  const fs::path there = fs::absolute(folder, ec);
  if (ec)
    throw Error(ErrorCode::kIo,
                Problem{.message = "no absolute path: " + ec.message(), .source = folder.string()});
  const WorkFolder work(there);
  AtomicFile file(output);  // refuses what can't be written before the compiler has run
  const fs::path source = work.path() / "library.cc", built = work.path() / "library.so";
  write_file_atomic(source, library_source(plan, library_metadata(plan, levels)));
  const std::vector<std::string> command = compiler_command(toolchain, levels, source, built);
  const ProcessResult result = run_process(command, cancel);
  if (result.cancelled) throw Error(ErrorCode::kCancelled, "compilation stopped; nothing was left behind");
  if (result.exit_code != 0) {
    throw Error(
        ErrorCode::kInternal,
        Problem{.message = "the compiler ended with exit code " + std::to_string(result.exit_code) + ": " +
                           last_lines(result.output, 12) + "\ncommand: " + shell_command(command),
                .source = toolchain.compiler,
                .hint = "run `dovetail doctor`; a full disk or too little memory looks like this too"});
  }
  if (!fs::exists(built)) {
    throw Error(ErrorCode::kInternal, Problem{.message = "the compiler ended well but wrote no library",
                                              .source = toolchain.compiler,
                                              .hint = "set CXX to a C++20 compiler"});
  }
  file.write(MappedFile::open(built)->bytes());
  file.commit();
  CompileResult out{.library = output, .compiler_version = toolchain.compiler_version};
  out.bytes = static_cast<int64_t>(fs::file_size(output));
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace dovetail::compile
