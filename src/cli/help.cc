#include "cli/help.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <type_traits>

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

// What is wrong with the text of a number. CLI11 reads 010 as 8, a number that is too large as another one,
// and nothing as 0.
template <class Number>
std::string bad_number(std::string& text, const std::string& expected) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc() && end == text.data() + text.size() &&
      std::isfinite(static_cast<double>(value))) {
    if constexpr (std::is_integral_v<Number>) text = std::to_string(value);
    return "";
  }
  if (status == std::errc::result_out_of_range) return printable(text) + " is out of range";
  return '"' + printable(text) + "\" is not " + expected;
}

std::string bad_value(std::string& text, std::string_view type) {
  if (type == kFreeText) return "";
  if (text.empty()) return "the value is empty";
  if (type.starts_with("INT")) return bad_number<int64_t>(text, "a whole number");
  if (type.starts_with("UINT")) return bad_number<uint64_t>(text, "a whole number from 0 on");
  if (type.starts_with("FLOAT")) return bad_number<double>(text, "a number");
  return "";
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    // Before the option's own checks.
    option->transform(CLI::Validator([type](std::string& text) { return bad_value(text, type); }, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) check_values(*command);
}

std::vector<std::string> reversed_words(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    std::string& word = words.emplace_back(argv[i]);
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    word.pop_back();
    words.insert(words.end() - 1, "");
  }
  return words;
}

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
