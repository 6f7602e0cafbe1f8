#include "library/cpu.h"

#include <algorithm>
#include <cstdlib>

namespace dovetail::library {

std::vector<std::string> cpu_levels() {
  std::vector<std::string> levels;
#if defined(__x86_64__)
  __builtin_cpu_init();
  levels.push_back("x86-64");
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  // LZCNT, MOVBE and F16C of level 3 came with the same processors and have no name here in every compiler.
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (v2) levels.push_back("x86-64-v2");
  if (v3) levels.push_back("x86-64-v3");
  if (v4) levels.push_back("x86-64-v4");
  if (const char* limit = std::getenv("DOVETAIL_CPU"); limit != nullptr) {
    const auto at = std::find(levels.begin(), levels.end(), limit);
    if (at != levels.end()) levels.erase(at + 1, levels.end());
  }
#endif
  return levels;
}

std::string_view cpu_arch() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

}  // namespace dovetail::library
