// The list of commands. Each one lives in a file of its own, adds its subcommand with options and a callback
// to the app, and does its work in the callback. The callback throws dovetail::Error when it fails (printed
// by the app, exit code 1; kUsage gives 2) and sets exit_code only when another code than 0 is its regular
// result.
#pragma once

#include <CLI/App.hpp>

namespace dovetail::cli {

void add_bench_command(CLI::App& app, int& exit_code);
void add_chat_command(CLI::App& app, int& exit_code);
void add_compile_command(CLI::App& app, int& exit_code);
void add_convert_command(CLI::App& app, int& exit_code);
void add_contract_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
void add_eval_command(CLI::App& app, int& exit_code);
void add_inspect_command(CLI::App& app, int& exit_code);
void add_logits_command(CLI::App& app, int& exit_code);
void add_plan_command(CLI::App& app, int& exit_code);
void add_verify_command(CLI::App& app, int& exit_code);

}  // namespace dovetail::cli
