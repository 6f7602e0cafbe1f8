// Help and usage errors of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dovetail::cli {

// CLI11's help with descriptions broken at spaces, at the width of the terminal or at 80 columns.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// The type of an option that is free text. Only such a value may be empty: everything else names something.
inline constexpr const char* kFreeText = "MESSAGE";

// For an app that has all its commands: no option and no argument takes an empty value, unless it is free
// text, and a number is written in decimal, from its first byte to its last.
void check_values(CLI::App& app);

// The words of a command line, without the program's own, as CLI11 takes them: last one first. It would take
// the next word for the value of "--name=". Throws Error kUsage for a flag with such a value.
std::vector<std::string> reversed_words(const CLI::App& app, std::span<const char* const> given);

// What is wrong with a command line, as an Error of the code kUsage; `app` has parsed it as far as it could.
[[noreturn]] void refuse_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace dovetail::cli
