// dovetail doctor: what this machine has of what Dovetail needs.
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <tvm/ffi/c_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "compile/toolchain.h"
#include "library/cpu.h"

namespace dovetail::cli {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;
constexpr int64_t kWantedMemory = 4 * kGigabyte;
constexpr int64_t kWantedDisk = 10 * kGigabyte;

struct Finding {
  std::string name;
  bool ok = true;
  std::string text;
  std::string advice;  // for a problem
};

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "dovetail-doctor-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) {
      throw Error(ErrorCode::kIo,
                  "no folder can be made in " + std::filesystem::temp_directory_path().string());
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const char* name) const { return std::filesystem::path(path_) / name; }

 private:
  std::string path_;
};

Finding check_compiler(const std::atomic<bool>* cancel) {
  Finding finding{.name = "compiler"};
  try {
    const compile::Toolchain toolchain = compile::find_toolchain(cancel);
    const TemporaryFolder folder;
    write_file_atomic(folder / "try.cc",
                      "#include <vector>\nint f(const std::vector<int>& v) { return v.at(0); }\n");
    const ProcessResult result = run_process({toolchain.compiler, "-std=c++20", "-shared", "-fPIC", "-o",
                                              (folder / "try.so").string(), (folder / "try.cc").string()},
                                             cancel);
    if (result.cancelled) throw Error(ErrorCode::kCancelled, "stopped while the compiler was tried");
    finding.ok = result.exit_code == 0;
    finding.text = toolchain.compiler_version;
    if (!finding.ok) {
      std::string output = result.output;
      std::replace(output.begin(), output.end(), '\n', ' ');
      finding.text += " can't build a small library: " + printable(output);
      finding.advice = "install g++ (Debian: apt-get install g++), or set CXX to a C++20 compiler";
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    finding.ok = false;
    finding.text = error.problems().front().text();
    finding.advice = error.problems().front().hint;
  }
  return finding;
}

Finding check_cpu() {
  std::string levels;
  bool fast = false;
  for (const std::string& level : library::cpu_levels()) {
    levels += (levels.empty() ? "" : ", ") + level;
    fast = fast || level == "x86-64-v3";
  }
  Finding finding{.name = "processor",
                  .ok = fast,
                  .text = std::to_string(ThreadPool::available_cpus()) + " usable, " +
                          (levels.empty() ? std::string(library::cpu_arch()) : levels)};
  if (!fast) finding.advice = "compiled libraries need x86-64-v3 (AVX2 and FMA, processors since about 2013)";
  return finding;
}

Finding check_memory() {
  std::ifstream lines("/proc/meminfo");
  int64_t total = 0;
  int64_t available = 0;
  for (std::string word; lines >> word;) {
    int64_t kilobytes = 0;
    if (word == "MemTotal:" && lines >> kilobytes) total = kilobytes * 1024;
    if (word == "MemAvailable:" && lines >> kilobytes) available = kilobytes * 1024;
  }
  Finding finding{.name = "memory",
                  .ok = available >= kWantedMemory,
                  .text = format_bytes(available) + " free of " + format_bytes(total)};
  if (!finding.ok) finding.advice = "models of two billion weights need about 4 GB; smaller ones still run";
  return finding;
}

Finding check_disk() {
  struct statvfs status = {};
  const std::string path = std::filesystem::current_path().string();
  Finding finding{.name = "disk"};
  if (statvfs(path.c_str(), &status) != 0) {
    finding.ok = false;
    finding.text = "unknown for " + printable(path);
    finding.advice = "run the command in a folder that exists";
    return finding;
  }
  const auto free = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  finding.ok = free >= kWantedDisk;
  finding.text = format_bytes(free) + " free in " + printable(path);
  if (!finding.ok)
    finding.advice = "a converted model of two billion weights takes about 3 GB beside its checkpoint";
  return finding;
}

Finding check_tvm_ffi() {
  TVMFFIVersion version = {};
  TVMFFIGetVersion(&version);
  Dl_info info = {};
  const bool found = dladdr(reinterpret_cast<const void*>(&TVMFFIGetVersion), &info) != 0;
  return {.name = "TVM FFI",
          .text = std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                  std::to_string(version.patch) + (found ? " in " + printable(info.dli_fname) : "")};
}

void run_doctor(int& exit_code) {
  const InterruptFlag interrupt;
  for (const Finding& finding :
       {check_compiler(interrupt.flag()), check_tvm_ffi(), check_cpu(), check_memory(), check_disk()}) {
    std::printf("%-8s %-10s %s\n", finding.ok ? "ok" : "problem", finding.name.c_str(), finding.text.c_str());
    if (finding.ok) continue;
    std::printf("%-8s %-10s %s\n", "", "", finding.advice.c_str());
    exit_code = 1;
  }
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Check what this machine has of what Dovetail needs; exit code 1 when there is a problem");
  command->callback([&exit_code] { run_doctor(exit_code); });
}

}  // namespace dovetail::cli
