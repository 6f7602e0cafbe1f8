#include "compile/toolchain.h"

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/process.h"

namespace dovetail::compile {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRebuild =
    "build Dovetail again, or point DOVETAIL_TOOLCHAIN at the folder toolchain/ of a build";

fs::path toolchain_folder() {
  std::error_code ec;
  if (const char* given = std::getenv("DOVETAIL_TOOLCHAIN"); given != nullptr && *given != '\0') {
    const fs::path absolute = fs::absolute(given, ec);
    return ec ? fs::path(given) : absolute;
  }
  const fs::path executable = fs::read_symlink("/proc/self/exe", ec);
  // Tests run from a folder below the one that holds the executable.
  for (fs::path folder = executable.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (fs::exists(folder / "toolchain" / "toolchain.json", ec)) return folder / "toolchain";
  }
  return executable.parent_path() / "toolchain";
}

std::vector<std::string> strings(const Json& config, const char* key, const std::string& source) {
  const auto found = config.find(key);
  std::vector<std::string> out;
  if (found != config.end() && found->is_array()) {
    for (const Json& value : *found) {
      if (value.is_string()) out.push_back(value.get<std::string>());
    }
    if (out.size() == found->size()) return out;
  }
  throw Error(ErrorCode::kMalformed,
              Problem{.message = "not a list of strings", .source = source, .field = key, .hint = kRebuild});
}

std::string first_line(const std::string& text) { return printable(text.substr(0, text.find('\n'))); }

}  // namespace

Toolchain find_toolchain(const std::atomic<bool>* cancel) {
  Toolchain out;
  const fs::path folder = toolchain_folder();
  const fs::path description = folder / "toolchain.json";
  Json config;
  try {
    config = read_json(description);
  } catch (const Error& error) {
    Problem problem = error.problems().front();
    problem.hint = kRebuild;
    throw Error(error.code(), std::move(problem));
  }
  if (!config.is_object())
    throw Error(ErrorCode::kMalformed,
                Problem{.message = "not an object", .source = description.string(), .hint = kRebuild});
  out.include = folder / "include";
  out.lib = folder / "lib";
  out.flags = strings(config, "flags", description.string());
  out.tvm_includes = strings(config, "tvm_includes", description.string());
  const std::vector<std::string> tvm_lib = strings(config, "tvm_lib", description.string());
  out.tvm_lib = tvm_lib.empty() ? "" : tvm_lib.front();

  std::vector<Problem> problems;
  std::vector<fs::path> needed{out.include / "compile" / "exports.h", out.lib,
                               fs::path(out.tvm_lib) / "libtvm_ffi.so"};
  for (const std::string& include : out.tvm_includes) needed.push_back(include);
  for (const fs::path& path : needed) {
    std::error_code ec;
    if (!fs::exists(path, ec)) {
      problems.push_back({.message = "is missing",
                          .source = path.string(),
                          .hint = "run scripts/setup.sh, then build Dovetail again"});
    }
  }
  const char* compiler = std::getenv("CXX");
  out.compiler = compiler != nullptr && *compiler != '\0' ? compiler : "c++";
  bool cancelled = false;
  try {
    const ProcessResult version = run_process({out.compiler, "--version"}, cancel);
    cancelled = version.cancelled;
    if (version.exit_code == 0) {
      out.compiler_version = first_line(version.output);
    } else {
      problems.push_back({.message = "does not work: " + first_line(version.output),
                          .source = out.compiler,
                          .hint = "install g++, or set CXX to a C++20 compiler"});
    }
  } catch (const Error&) {
    problems.push_back({.message = "there is no such compiler",
                        .source = out.compiler,
                        .hint = "install g++, or set CXX to a C++20 compiler"});
  }
  if (cancelled) throw Error(ErrorCode::kCancelled, "stopped while the compiler was looked for");
  if (!problems.empty()) throw Error(ErrorCode::kNotFound, std::move(problems));
  return out;
}

std::vector<std::string> compiler_command(const Toolchain& toolchain, const std::vector<ops::Level>& levels,
                                          const fs::path& source, const fs::path& output) {
  std::vector<std::string> command{toolchain.compiler,
                                   "-std=c++20",
                                   "-O2",
                                   "-DNDEBUG",
                                   "-fPIC",
                                   "-fvisibility=hidden",
                                   "-ffp-contract=off",
                                   "-march=x86-64-v3",
                                   "-I" + toolchain.include.string()};
  for (const std::string& include : toolchain.tvm_includes)
    command.insert(command.end(), {"-isystem", include});
  command.insert(command.end(), toolchain.flags.begin(), toolchain.flags.end());
  command.insert(command.end(), {"-shared", "-o", output.string(), source.string(), "-Wl,--exclude-libs,ALL",
                                 "-Wl,--gc-sections", "-Wl,-z,defs"});
  // The tables of the levels are weak references: only whole archives bring them in.
  command.push_back("-Wl,--whole-archive");
  for (const ops::Level level : levels) {
    command.push_back((toolchain.lib /
                       (level == ops::Level::kAvx512 ? "libdovetail_ops_avx512.a" : "libdovetail_ops_avx2.a"))
                          .string());
  }
  command.push_back("-Wl,--no-whole-archive");
  for (const char* library : {"libdovetail_model_runtime.a", "libdovetail_ops.a", "libdovetail_base.a"}) {
    command.push_back((toolchain.lib / library).string());
  }
  command.insert(command.end(), {"-L" + toolchain.tvm_lib, "-ltvm_ffi", "-pthread"});
  return command;
}

}  // namespace dovetail::compile
