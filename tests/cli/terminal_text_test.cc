#include "cli/terminal_text.h"

#include <gtest/gtest.h>

namespace dovetail::cli {
namespace {

TEST(TerminalText, OrdinaryTextPasses) {
  const std::string text = "caf\xC3\xA9 \xE2\x82\xAC\n\ttab \xC2\xA0 \xF0\x9F\x98\x80";
  EXPECT_EQ(terminal_text(text), text);
}

TEST(TerminalText, ControlCharactersAreShown) {
  EXPECT_EQ(terminal_text("\x1b[2Jx\r\x7f"), "\\x1b[2Jx\\x0d\\x7f");
  // U+009B is a control sequence introducer of eight bits.
  EXPECT_EQ(terminal_text("\xC2\x9B"
                          "2J"),
            "\\x9b2J");
  EXPECT_EQ(terminal_text("\xC2"), "\xC2");
}

}  // namespace
}  // namespace dovetail::cli
