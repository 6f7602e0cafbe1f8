#include "base/error.h"

#include <gtest/gtest.h>

namespace dovetail {
namespace {

TEST(Error, ShowsEveryProblemAndEachHintOnce) {
  const Error error(ErrorCode::kMismatch,
                    {Problem{.message = "size differs", .source = "a.json", .field = "x[0]", .expected = "1", .actual = "2", .hint = "convert again"},
                     Problem{.message = "missing", .source = "b.bin", .hint = "convert again"}});
  EXPECT_STREQ(error.what(), "a.json: x[0]: size differs (expected 1, got 2)\nb.bin: missing\n  hint: convert again");
  EXPECT_EQ(error_code_name(error.code()), "mismatch");
}

TEST(Error, PrintableEscapesControlBytesAndCuts) {
  EXPECT_EQ(printable("a\x1b[31m\n", 100), "a\\x1b[31m\\x0a");
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("é"), "é");
}

}  // namespace
}  // namespace dovetail
