// Help and usage errors of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace dovetail::cli {

// CLI11's help with descriptions broken at spaces, at the width of the terminal or at 80 columns.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// What is wrong with a command line, as an Error of the code kUsage; `app` has parsed it as far as it could.
[[noreturn]] void refuse_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace dovetail::cli
