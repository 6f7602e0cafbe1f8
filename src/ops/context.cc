// Choice of the instruction-set level, and the memory and threads of the operations.
#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "ops/kernels.h"
#include "ops/ops.h"

namespace dovetail::ops {
namespace {

struct CpuidBit {
  unsigned leaf;
  int reg;  // 0…3: eax, ebx, ecx, edx
  int bit;
  const char* name;
};

// x86-64-v3 beyond v2.
constexpr CpuidBit kV3[] = {{1, 2, 12, "FMA"}, {1, 2, 22, "MOVBE"}, {1, 2, 27, "OSXSAVE"},
                            {1, 2, 28, "AVX"}, {1, 2, 29, "F16C"},  {7, 1, 3, "BMI1"},
                            {7, 1, 5, "AVX2"}, {7, 1, 8, "BMI2"},   {0x80000001u, 2, 5, "LZCNT"}};
// x86-64-v4 beyond v3, and VNNI.
constexpr CpuidBit kV4[] = {{7, 1, 16, "AVX512F"},  {7, 1, 17, "AVX512DQ"}, {7, 1, 28, "AVX512CD"},
                            {7, 1, 30, "AVX512BW"}, {7, 1, 31, "AVX512VL"}, {7, 2, 11, "AVX512VNNI"}};

bool has(const CpuidBit& feature) {
  unsigned r[4] = {};
  if (!__get_cpuid_count(feature.leaf, 0, &r[0], &r[1], &r[2], &r[3])) return false;
  return (r[feature.reg] >> feature.bit) & 1u;
}

// Register state that the operating system saves (XCR0). Only called where OSXSAVE is set.
uint64_t saved_state() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// What the CPU lacks for the level, comma separated; empty when it has all.
std::string missing_features(Level level) {
  std::string missing;
  auto add = [&](const char* name) { missing += (missing.empty() ? "" : ", ") + std::string(name); };
  if (level == Level::kReference) return missing;
  for (const CpuidBit& feature : kV3) {
    if (!has(feature)) add(feature.name);
  }
  if (level == Level::kAvx512) {
    for (const CpuidBit& feature : kV4) {
      if (!has(feature)) add(feature.name);
    }
  }
  if (missing.empty()) {
    const uint64_t needed = level == Level::kAvx512 ? 0xe6 : 0x6;
    if ((saved_state() & needed) != needed) add("operating system support for the wide registers");
  }
  return missing;
}

const KernelTable* linked_table(Level level) {
  switch (level) {
    case Level::kReference:
      return &dovetail_ops_table_reference;
    case Level::kAvx2:
      return &dovetail_ops_table_avx2;
    case Level::kAvx512:
      return &dovetail_ops_table_avx512;
  }
  return nullptr;
}

std::string built_names() {
  std::string names;
  for (Level level : built_levels()) names += (names.empty() ? "" : ", ") + std::string(level_name(level));
  return names.empty() ? "none" : names;
}

Level checked(Level level, const char* source) {
  if (linked_table(level) == nullptr) {
    throw Error(
        ErrorCode::kUnsupported,
        Problem{.message = "this build has no kernels of the instruction-set level that was asked for",
                .source = source,
                .expected = "one of: " + built_names(),
                .actual = std::string(level_name(level))});
  }
  const std::string missing = missing_features(level);
  if (!missing.empty()) {
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = "this CPU cannot run the kernels",
                        .source = source,
                        .expected = std::string(level_name(level)),
                        .actual = "missing: " + missing,
                        .hint = "use a build with a lower level, or a machine that has these features"});
  }
  return level;
}

std::span<std::byte> aligned(std::vector<std::byte>& storage, size_t bytes) {
  constexpr size_t kAlign = 64;
  if (storage.size() < bytes + kAlign)
    storage.resize(std::max(bytes + kAlign, storage.size() + storage.size() / 2));
  const size_t past = reinterpret_cast<uintptr_t>(storage.data()) % kAlign;
  return std::span(storage).subspan(past == 0 ? 0 : kAlign - past, bytes);
}

}  // namespace

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kReference:
      return "reference";
    case Level::kAvx2:
      return "x86-64-v3";
    case Level::kAvx512:
      return "x86-64-v4";
  }
  return "";
}

bool cpu_supports(Level level) { return missing_features(level).empty(); }

std::span<const Level> built_levels() {
  struct List {
    std::array<Level, 2> levels;
    size_t count = 0;
  };
  static const List list = [] {
    List built;
    for (Level level : {Level::kAvx2, Level::kAvx512}) {
      if (linked_table(level) != nullptr) built.levels[built.count++] = level;
    }
    return built;
  }();
  return {list.levels.data(), list.count};
}

Level best_level() {
  const char* forced = std::getenv("DOVETAIL_CPU");
  if (forced != nullptr && *forced != '\0') {
    for (Level level : {Level::kReference, Level::kAvx2, Level::kAvx512}) {
      if (level_name(level) == forced) return checked(level, "DOVETAIL_CPU");
    }
    throw Error(ErrorCode::kUsage, Problem{.message = "unknown instruction-set level",
                                           .source = "DOVETAIL_CPU",
                                           .expected = "one of: reference, x86-64-v3, x86-64-v4",
                                           .actual = printable(forced)});
  }
  const std::span<const Level> built = built_levels();
  for (auto level = built.rbegin(); level != built.rend(); ++level) {
    if (cpu_supports(*level)) return *level;
  }
  return checked(built.empty() ? Level::kAvx2 : built.front(), "CPU");
}

Context::Context(Level level, int threads) : level_(checked(level, "CPU")), kernels_(linked_table(level)) {
  set_threads(threads);
}

Context::~Context() = default;

void Context::set_threads(int threads) {
  pool_ = std::make_unique<ThreadPool>(threads);
  scratch_.resize(static_cast<size_t>(pool_->threads()));
}

std::span<std::byte> Context::scratch(int worker, size_t bytes) {
  return aligned(scratch_[static_cast<size_t>(worker)], bytes);
}

std::span<std::byte> Context::shared_scratch(size_t bytes) { return aligned(shared_, bytes); }

}  // namespace dovetail::ops
