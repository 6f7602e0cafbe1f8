// Choice of the level.
#include <cstdlib>

#include "base/error.h"
#include "ops_test_util.h"

namespace dovetail::ops {
namespace {

class ForcedLevel {
 public:
  explicit ForcedLevel(const char* value) {
    const char* before = std::getenv("DOVETAIL_CPU");
    if (before != nullptr) before_ = before;
    had_ = before != nullptr;
    setenv("DOVETAIL_CPU", value, 1);
  }
  ~ForcedLevel() {
    if (had_) {
      setenv("DOVETAIL_CPU", before_.c_str(), 1);
    } else {
      unsetenv("DOVETAIL_CPU");
    }
  }

 private:
  std::string before_;
  bool had_ = false;
};

TEST(Levels, BothAreLinked) {
  ASSERT_EQ(built_levels().size(), 2u);
  EXPECT_EQ(built_levels()[0], Level::kAvx2);
  EXPECT_EQ(built_levels()[1], Level::kAvx512);
}

TEST(Levels, BestIsTheHighestTheCpuHas) {
  const ForcedLevel none("");
  const Level expected = cpu_supports(Level::kAvx512) ? Level::kAvx512 : Level::kAvx2;
  RecordProperty("instruction_set", std::string(level_name(expected)));
  EXPECT_EQ(best_level(), expected);
}

TEST(Levels, EnvironmentForcesEachLevel) {
  for (const Level level : {Level::kReference, Level::kAvx2, Level::kAvx512}) {
    if (!cpu_supports(level)) continue;
    const ForcedLevel forced(std::string(level_name(level)).c_str());
    EXPECT_EQ(best_level(), level);
    Context context;
    EXPECT_EQ(context.level(), level);
    EXPECT_EQ(context.kernels().level, level);
  }
}

TEST(Levels, UnknownNameIsRefusedWithTheChoices) {
  const ForcedLevel forced("avx9000");
  try {
    best_level();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("x86-64-v4"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("avx9000"), std::string::npos);
  }
}

TEST(Levels, MissingInstructionsAreNamed) {
  if (cpu_supports(Level::kAvx512)) GTEST_SKIP() << "this CPU has every level";
  const ForcedLevel forced("x86-64-v4");
  try {
    best_level();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("AVX512"), std::string::npos);
  }
}

TEST(Levels, TheProcessorAgrees) {
  EXPECT_EQ(cpu_supports(Level::kAvx512),
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni"));
  EXPECT_TRUE(cpu_supports(Level::kReference));
}

TEST(Context, ScratchIsAlignedAndPerWorker) {
  Context context(best_level(), 2);
  const auto a = context.scratch(0, 1000), b = context.scratch(1, 10), c = context.shared_scratch(77);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c.data()) % 64, 0u);
  EXPECT_EQ(a.size(), 1000u);
  EXPECT_EQ(context.scratch(0, 500).data(), a.data());
}

}  // namespace
}  // namespace dovetail::ops
