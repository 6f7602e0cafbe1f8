#include "base/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"

namespace dovetail {
namespace {

constexpr int kWaitMilliseconds = 10'000;

// True when something can be read, or the last writer is gone, in time.
bool readable(int fd) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, kWaitMilliseconds) == 1;
}

TEST(Process, OutputAndExitCode) {
  const ProcessResult result = run_process({"sh", "-c", "echo out; echo err >&2; cat; exit 3"});
  EXPECT_EQ(result.output, "out\nerr\n");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(result.cancelled);
  EXPECT_EQ(run_process({"sh", "-c", "kill -KILL $$"}).exit_code, 128 + SIGKILL);
}

TEST(Process, AMissingProgramIsNamed) {
  try {
    run_process({"no-such-program"});
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_EQ(error.problems().front().source, "no-such-program");
  }
}

TEST(Process, CancellingEndsWhatTheProgramStarted) {
  std::atomic<bool> cancel{false};
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the shell has started the other program
    cancel = true;
  });
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result = run_process({"sh", "-c", "sleep 30; true"}, &cancel);
  canceller.join();
  EXPECT_TRUE(result.cancelled);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(kWaitMilliseconds));
}

TEST(Process, EndsWithAKilledParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // inherited: its end tells that the program is gone
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    run_process({"sh", "-c", "echo x > /proc/self/fd/" + std::to_string(ends[1]) + "; exec sleep 30"});
    ::_exit(0);
  }
  ::close(ends[1]);
  char byte[2];
  ASSERT_TRUE(readable(ends[0]));
  ASSERT_EQ(::read(ends[0], byte, sizeof byte), 2);
  ::kill(parent, SIGKILL);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  ASSERT_TRUE(readable(ends[0])) << "the program still runs";
  EXPECT_EQ(::read(ends[0], byte, sizeof byte), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace dovetail
