#include "cli/interrupt.h"

#include <csignal>

namespace dovetail::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // so that a signal handler may write it

void on_signal(int signal) {
  interrupted.store(true);
  // A terminal that closes often sends SIGHUP twice: from the shell and from the kernel.
  if (signal != SIGHUP) std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptFlag::InterruptFlag()
    : previous_interrupt_(std::signal(SIGINT, on_signal)),
      previous_terminate_(std::signal(SIGTERM, on_signal)),
      previous_hangup_(std::signal(SIGHUP, on_signal)) {
  if (previous_hangup_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // of nohup
  interrupted = false;
}

InterruptFlag::~InterruptFlag() {
  std::signal(SIGINT, previous_interrupt_);
  std::signal(SIGTERM, previous_terminate_);
  std::signal(SIGHUP, previous_hangup_);
}

const std::atomic<bool>* InterruptFlag::flag() const { return &interrupted; }

}  // namespace dovetail::cli
