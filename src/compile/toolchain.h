// What `dovetail compile` needs on this machine: a C++ compiler, and the headers and static libraries that a
// compiled library is made from. The build puts them beside the executable in toolchain/.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "ops/types.h"

namespace dovetail::compile {

struct Toolchain {
  std::string compiler;          // of the environment variable CXX, else c++
  std::string compiler_version;  // its first line of --version
  std::filesystem::path include;
  std::filesystem::path lib;
  std::vector<std::string> flags;  // sanitizers of this build
  std::vector<std::string> tvm_includes;
  std::string tvm_lib;  // folder of libtvm_ffi.so
};

// Looks in $DOVETAIL_TOOLCHAIN, else in toolchain/ beside the running executable. Throws Error kNotFound or
// kMalformed with everything that is missing and what to do, kCancelled soon after `*cancel` became true.
Toolchain find_toolchain(const std::atomic<bool>* cancel = nullptr);

// The command that builds `source` into `output`, both absolute: a name that begins with - or @ is something
// else to the compiler.
std::vector<std::string> compiler_command(const Toolchain& toolchain, const std::vector<ops::Level>& levels,
                                          const std::filesystem::path& source,
                                          const std::filesystem::path& output);

}  // namespace dovetail::compile
