// Runs another program and waits for it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dovetail {

struct ProcessResult {
  int exit_code = 0;   // 128 + the signal's number when a signal ended it
  std::string output;  // stdout and stderr together, at most 1 MiB
};

// argv[0] is looked up in PATH. Standard input is empty. Throws Error kNotFound when there is no such
// program.
ProcessResult run_process(const std::vector<std::string>& argv);

// As one would type it in a shell, with quotes where needed.
std::string shell_command(std::span<const std::string> argv);

}  // namespace dovetail
