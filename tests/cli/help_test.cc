#include "cli/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

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

TEST(Help, OnlyTheEmptyValueOfAnOptionBecomesAWord) {
  CLI::App app{"", "tool"};
  std::string value;
  bool flag = false;
  CLI::App* command = app.add_subcommand("command", "");
  command->add_option("file", value);
  command->add_option("-o,--option", value);
  command->add_option_group("group")->add_option("--grouped", value);
  command->add_flag("--flag", flag);
  const auto words = [&](std::vector<const char*> given) {
    std::vector<std::string> out = reversed_words(app, given);
    std::reverse(out.begin(), out.end());
    return out;
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(words({}), Words());
  EXPECT_EQ(words({"command", "--option=", "x"}), Words({"command", "--option", "", "x"}));
  EXPECT_EQ(words({"command", "--grouped=", "x"}), Words({"command", "--grouped", "", "x"}));
  EXPECT_EQ(words({"command", "--option=", "--option="}), Words({"command", "--option", "", "--option", ""}));
  for (const Words& same :
       {Words{"command", "--option", "--option="}, Words{"command", "-o", "--option="},
        Words{"command", "--grouped", "--option="}, Words{"command", "--option=--option="},
        Words{"command", "--option", "--", "--flag"}, Words{"command", "--", "--option="},
        Words{"command", "--other="}, Words{"command", "file="}, Words{"--option="},
        Words{"", "-", "command"}}) {
    std::vector<const char*> given;
    for (const std::string& word : same) given.push_back(word.c_str());
    EXPECT_EQ(words(given), same);
  }
  EXPECT_EQ(words({"command", "--flag", "--option="}), Words({"command", "--flag", "--option", ""}));
  try {
    words({"command", "--flag="});
    FAIL() << "a flag has no empty value";
  } catch (const Error& refused) {
    EXPECT_EQ(refused.problems()[0].message, "--flag: the value is empty");
    EXPECT_EQ(refused.problems()[0].hint, "'tool command --help' shows how it is used");
  }
}

}  // namespace
}  // namespace dovetail::cli
