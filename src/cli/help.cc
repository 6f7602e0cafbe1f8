#include "cli/help.h"

#include <algorithm>

#include "base/error.h"
#include "cli/report.h"

namespace dovetail::cli {
namespace {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::stringstream out;
    CLI::detail::format_help(out, make_option_name(option, positional) + make_option_opts(option),
                             broken(make_option_desc(option), column_width_), column_width_);
    return out.str();
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_display_name(true),
                             broken(command->get_description(), column_width_), column_width_);
    return out.str();
  }

  std::string make_description(const CLI::App* command) const override {
    const std::string text = CLI::Formatter::make_description(command);
    // That of a group of options has lines of its own.
    return command->get_name().empty() ? text : broken(text.substr(0, text.find('\n')), 0) + "\n";
  }

 private:
  // format_help() puts the blanks behind line ends.
  static std::string broken(const std::string& text, size_t indent) {
    const size_t columns = terminal_columns();
    return CLI::detail::find_and_replace(wrapped(text, indent, columns > 0 ? columns : 80),
                                         "\n" + std::string(indent, ' '), "\n");
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

void refuse_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string name = app.get_name();
  for (const CLI::App* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    if (!command->get_name().empty()) name += " " + command->get_name();
  }
  throw Error(ErrorCode::kUsage,
              Problem{.message = error.what(), .hint = "'" + name + " --help' shows how it is used"});
}

}  // namespace dovetail::cli
