// The command line as a function, so that tests can run it without a process.
#pragma once

#include "base/error.h"

namespace dovetail::cli {

// Runs one command line; argv[0] is the program's name. Returns the exit code: 0 success, 1 the command
// failed, 2 the command line is wrong. Errors are printed on stderr; nothing is thrown.
int run(int argc, const char* const* argv) noexcept;

// Every problem on a line of its own on stderr, hints after them.
void print_error(const Error& error);

}  // namespace dovetail::cli
