#include "cli/app.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/similar.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "ops/ops.h"

namespace dovetail::cli {
namespace {

void print_line(std::string_view label, std::string_view text) {
  const bool colour = terminal_colors(STDERR_FILENO);
  // Names in a message may come from a file: control bytes never reach the terminal, but for line ends.
  std::string safe;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    safe += (at > 0 ? "\n  " : "") + printable(text.substr(at, end - at), std::numeric_limits<size_t>::max());
    at = end + 1;
  }
  std::fprintf(stderr, "%s%.*s%s %s\n", colour ? "\x1b[31m" : "", static_cast<int>(label.size()),
               label.data(), colour ? "\x1b[0m" : "", safe.c_str());
}

// A closed standard stream gives its number to the next file that is opened, which would then hold messages.
// Writing to the stand-in for standard output fails, so that a lost answer is noticed.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void check_standard_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Error(ErrorCode::kIo, Problem{.message = std::string("writing failed: ") + std::strerror(errno),
                                      .source = "standard output"});
}

// The first words name the command. CLI11 only says that one is missing.
void refuse_unknown_command(const CLI::App& app, std::span<const char* const> words) {
  std::string parent = "dovetail";
  const CLI::App* command = &app;
  for (const std::string word : words) {
    std::vector<std::string> names;
    for (const CLI::App* sub : command->get_subcommands({})) {
      // Groups of options are subcommands without a name.
      if (!sub->get_name().empty()) names.push_back(sub->get_name());
    }
    if (names.empty() || word.starts_with('-')) return;
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      const std::string* nearest = most_similar(word, names);
      const std::string guess = nearest != nullptr ? "did you mean '" + *nearest + "'? " : "";
      throw Error(ErrorCode::kUsage, Problem{.message = "there is no command \"" + printable(word) + "\"",
                                             .source = parent,
                                             .hint = guess + "'" + parent + " --help' lists the commands"});
    }
    command = command->get_subcommand(word);
    parent += " " + word;
  }
}

int run_app(int argc, const char* const* argv) {
  CLI::App app{"Dovetail converts, compiles and runs language models that listen and see.", "dovetail"};
  app.set_version_flag("--version", "dovetail " DOVETAIL_VERSION);
  app.formatter(help_formatter());  // commands take it over when they are added
  app.require_subcommand(1);
  int exit_code = 0;
  add_plan_command(app, exit_code);
  add_convert_command(app, exit_code);
  add_compile_command(app, exit_code);
  add_verify_command(app, exit_code);
  add_inspect_command(app, exit_code);
  add_chat_command(app, exit_code);
  add_contract_command(app, exit_code);
  add_logits_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_doctor_command(app, exit_code);
  // Also for commands that run no kernel: a misspelt level is no wish for the best one.
  if (std::getenv("DOVETAIL_CPU") != nullptr) ops::best_level();
  check_values(app);
  const auto words = std::span(argv, static_cast<size_t>(argc)).subspan(argc > 0 ? 1 : 0);
  refuse_unknown_command(app, words);
  try {
    app.parse(reversed_words(app, words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) refuse_usage(app, error);
    app.exit(error);  // prints what --help or --version ask for
  }
  check_standard_output();
  return exit_code;
}

}  // namespace

void print_error(const Error& error) {
  std::vector<std::string_view> hints;
  for (const Problem& problem : error.problems()) {
    print_line("error:", problem.text());
    if (!problem.hint.empty() && std::find(hints.begin(), hints.end(), problem.hint) == hints.end()) {
      hints.push_back(problem.hint);
    }
  }
  for (std::string_view hint : hints) print_line("  hint:", hint);
}

int run(int argc, const char* const* argv) noexcept {
  open_standard_streams();
  try {
    return run_app(argc, argv);
  } catch (const Error& error) {
    print_error(error);
    return error.code() == ErrorCode::kUsage ? 2 : 1;
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
    return 1;
  } catch (const std::exception& error) {
    print_line("error:", std::string("internal error: ") + error.what());
    return 1;
  }
}

}  // namespace dovetail::cli
