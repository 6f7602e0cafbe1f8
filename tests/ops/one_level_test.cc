// A program that was linked without the AVX-512 kernels.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "ops/ops.h"

namespace dovetail::ops {
namespace {

TEST(OneLevel, OnlyTheLinkedLevelIsThere) {
  ASSERT_EQ(built_levels().size(), 1u);
  EXPECT_EQ(built_levels()[0], Level::kAvx2);
  unsetenv("DOVETAIL_CPU");
  if (!cpu_supports(Level::kAvx2)) GTEST_SKIP() << "this CPU has no AVX2";
  EXPECT_EQ(best_level(), Level::kAvx2);
}

TEST(OneLevel, AskingForTheOtherNamesWhatIsThere) {
  setenv("DOVETAIL_CPU", "x86-64-v4", 1);
  try {
    best_level();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("x86-64-v3"), std::string::npos) << error.what();
  }
  unsetenv("DOVETAIL_CPU");
}

}  // namespace
}  // namespace dovetail::ops
