#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace dovetail {
namespace {

// In the child, between fork and exec: only calls that are safe after a fork of a program with threads.
[[noreturn]] void execute(char* const* arguments, pid_t parent, const sigset_t& mask, int output,
                          int report) {
  // What the parent's handlers do is of no use here. Ignored signals stay ignored.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  // A group of its own, so that all of it can be ended.
  ::setpgid(0, 0);
  // Also ends with a parent that is killed. That may have happened before the call.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input >= 0 && ::dup2(input, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
      ::dup2(output, STDERR_FILENO) >= 0) {
    ::execvp(arguments[0], arguments);
  }
  const int failed = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &failed, sizeof failed);
  ::_exit(127);
}

// Waits for the program to have started. → errno of the failure, 0 for none.
int start(char* const* arguments, int output, pid_t& child) {
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return errno;
  const pid_t parent = ::getpid();
  // No signal may reach the handlers of this program in the child, where they would swallow it.
  sigset_t all, mask;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  child = ::fork();
  const int fork_error = errno;
  if (child == 0) execute(arguments, parent, mask, output, report[1]);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::close(report[1]);
  int failed = child < 0 ? fork_error : 0;
  if (child > 0) {
    ssize_t n = 0;
    while ((n = ::read(report[0], &failed, sizeof failed)) < 0 && errno == EINTR) {
    }
    if (n != sizeof failed) failed = 0;
    while (failed != 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(report[0]);
  return failed;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const std::atomic<bool>* cancel) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) throw Error(ErrorCode::kIo, "creating a pipe failed");
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = start(arguments.data(), pipe_ends[1], child);
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
