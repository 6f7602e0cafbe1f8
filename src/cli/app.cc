#include "cli/app.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"

namespace dovetail::cli {
namespace {

void print_line(std::string_view label, std::string_view text) {
  const bool colour = isatty(STDERR_FILENO) != 0;
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

int run_app(int argc, const char* const* argv) {
  CLI::App app{"Dovetail converts, compiles and runs language models that listen and see.", "dovetail"};
  app.set_version_flag("--version", "dovetail " DOVETAIL_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  add_doctor_command(app, exit_code);
  add_logits_command(app, exit_code);
  add_plan_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_chat_command(app, exit_code);
  add_compile_command(app, exit_code);
  add_convert_command(app, exit_code);
  add_verify_command(app, exit_code);
  add_inspect_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_contract_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
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
