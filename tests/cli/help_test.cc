#include "cli/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "base/error.h"
#include "cli/report.h"

namespace dovetail::cli {
namespace {

const std::string kLong =
    "the first of many words, some of which are long, that nobody would put into one line of a terminal, "
    "whatever its width, unless it was told to; and the last";

TEST(Help, LinesFitIntoTheTerminal) {
  CLI::App app{kLong, "tool"};
  app.formatter(help_formatter());
  std::string value;
  CLI::App* command = app.add_subcommand("command", kLong);
  command->add_option("file", value, kLong);
  command->add_option("--option", value, kLong);
  const size_t width = terminal_columns() > 0 ? terminal_columns() : 80;
  for (const std::string& help : {app.help(), command->help()}) {
    std::istringstream lines(help);
    std::string words;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), width) << line;
      words += line.substr(std::min(line.find_first_not_of(' '), line.size())) + " ";
    }
    EXPECT_NE(words.find(kLong), std::string::npos) << words;  // nothing is lost, nothing cut inside a word
  }
}

TEST(Help, UsageErrorsNameTheCommandWhoseHelpIsMeant) {
  CLI::App app{"", "tool"};
  int value = 0;
  CLI::App* command = app.add_subcommand("outer", "")->add_subcommand("inner", "");
  command->add_option("--number", value, "")->required();
  try {
    app.parse("outer inner");
    FAIL() << "a required option is missing";
  } catch (const CLI::ParseError& error) {
    try {
      refuse_usage(app, error);
    } catch (const Error& refused) {
      EXPECT_EQ(refused.code(), ErrorCode::kUsage);
      EXPECT_NE(refused.problems()[0].message.find("--number"), std::string::npos);
      EXPECT_EQ(refused.problems()[0].hint, "'tool outer inner --help' shows how it is used");
    }
  }
}

}  // namespace
}  // namespace dovetail::cli
