// Runs another program and waits for it.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

namespace dovetail {

struct ProcessResult {
  int exit_code = 0;   // 128 + the signal's number when a signal ended it
  std::string output;  // stdout and stderr together, at most 1 MiB
  bool cancelled = false;
};

// argv[0] is looked up in PATH. Standard input is empty. When `*cancel` becomes true the program and what it
// started are ended; the program is also ended when the calling thread is. Throws Error kNotFound when there
// is no such program.
ProcessResult run_process(const std::vector<std::string>& argv, const std::atomic<bool>* cancel = nullptr);

// As one would type it in a shell, with quotes where needed.
std::string shell_command(std::span<const std::string> argv);

}  // namespace dovetail
