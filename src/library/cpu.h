// The instruction-set levels of the x86-64 psABI that this machine can execute.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dovetail::library {

// Lowest first, for example {"x86-64", "x86-64-v2", "x86-64-v3"}. "x86-64-v4" is listed only when the machine
// also has AVX512-VNNI, which the kernels of that level use. The environment variable DOVETAIL_CPU leaves the
// levels above the named one out. Empty on other architectures.
std::vector<std::string> cpu_levels();

// "x86_64", "aarch64", or "unknown".
std::string_view cpu_arch();

}  // namespace dovetail::library
