#include "base/error.h"

#include <gtest/gtest.h>

namespace dovetail {
namespace {

TEST(Error, ShowsEveryProblemAndEachHintOnce) {
  const Error error(ErrorCode::kMismatch,
                    {Problem{.message = "size differs",
                             .source = "a.json",
                             .field = "x[0]",
                             .expected = "1",
                             .actual = "2",
                             .hint = "convert again"},
                     Problem{.message = "missing", .source = "b.bin", .hint = "convert again"}});
  EXPECT_STREQ(error.what(),
               "a.json: x[0]: size differs (expected 1, got 2)\nb.bin: missing\n  hint: convert again");
  EXPECT_EQ(error_code_name(error.code()), "mismatch");
}

TEST(Error, PrintableEscapesControlBytesAndCuts) {
  EXPECT_EQ(printable("a\x1b[31m\n", 100), "a\\x1b[31m\\x0a");
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("é"), "é");
  EXPECT_EQ(printable("aé", 2), "a…");
}

TEST(Error, PrintableGivesUtf8WhateverComesIn) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80"), "\\xc0\\xaf\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\xf4\x90\x80\x80\xf0\x9f\x98\x80"), "\\xf4\\x90\\x80\\x80\xf0\x9f\x98\x80");
}

}  // namespace
}  // namespace dovetail
