#include "cli/help.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <utility>

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

const CLI::App* subcommand_or_self(const CLI::App* command, const std::string& name) {
  for (const CLI::App* sub : command->get_subcommands({}))
    if (!name.empty() && sub->get_name() == name) return sub;
  return command;
}

// CLI11 names them last one first, and an empty one not at all.
std::string quoted_extras(const CLI::App& app) {
  std::string out;
  for (const std::string& word : app.remaining(true))
    if (word != "--") out += " \"" + printable(word) + '"';
  return out;
}

[[noreturn]] void refuse(const CLI::App* command, const std::string& message) {
  std::string name;
  for (; command != nullptr; command = command->get_parent()) {
    // Groups of options are commands without a name.
    if (!command->get_name().empty()) name = command->get_name() + (name.empty() ? "" : " ") + name;
  }
  throw Error(ErrorCode::kUsage,
              Problem{.message = message, .hint = "'" + name + " --help' shows how it is used"});
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

std::vector<std::string> reversed_words(const CLI::App& app, std::span<const char* const> given) {
  const CLI::App* command = &app;
  bool is_value = false;  // of the option in front of it, whatever it looks like
  bool options_end = false;
  std::vector<std::string> words;
  for (const char* text : given) {
    const std::string word = words.emplace_back(text);
    if (std::exchange(is_value, false) || options_end) continue;
    if (!word.starts_with('-')) {
      command = subcommand_or_self(command, word);
      continue;
    }
    options_end = word == "--";
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const CLI::Option* option = command->get_option_no_throw(word.substr(0, equals));
    if (option == nullptr) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    if (equals == word.size() - 1) {
      if (is_flag) refuse(command, word.substr(0, equals) + ": the value is empty");
      words.back().pop_back();
      words.emplace_back();
    }
    is_value = !is_flag && equals == std::string::npos;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

void refuse_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  refuse(command, extras ? "not expected:" + quoted_extras(app) : error.what());
}

}  // namespace dovetail::cli
