#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

extern char** environ;

namespace dovetail {

ProcessResult run_process(const std::vector<std::string>& argv, const std::atomic<bool>* cancel) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) throw Error(ErrorCode::kIo, "creating a pipe failed");
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  // A group of its own, so that all of it can be ended.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  if (failed != 0) {
    ::close(pipe_ends[0]);
    throw Error(failed == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                Problem{.message = std::string("starting the program failed: ") + std::strerror(failed),
                        .source = argv[0]});
  }
  constexpr size_t kLimit = 1 << 20;
  constexpr int kPollMilliseconds = 50;
  ProcessResult result;
  std::array<char, 4096> buffer;
  for (;;) {
    if (cancel != nullptr && *cancel && !result.cancelled) {
      result.cancelled = true;
      ::kill(-child, SIGTERM);
    }
    pollfd waiting{.fd = pipe_ends[0], .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, cancel != nullptr && !result.cancelled ? kPollMilliseconds : -1) <= 0) continue;
    const ssize_t n = ::read(pipe_ends[0], buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (result.output.size() < kLimit) result.output.append(buffer.data(), static_cast<size_t>(n));
  }
  ::close(pipe_ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string shell_command(std::span<const std::string> argv) {
  std::string out;
  for (const std::string& argument : argv) {
    if (!out.empty()) out += ' ';
    const bool plain = !argument.empty() && argument.find_first_not_of(
                                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "0123456789_-+=./:,@%") == std::string::npos;
    if (plain) {
      out += argument;
      continue;
    }
    out += '\'';
    for (char c : argument) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

}  // namespace dovetail
