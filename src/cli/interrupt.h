// Ctrl-C as a flag, for commands that clean up before they end.
#pragma once

#include <atomic>

namespace dovetail::cli {

// While it lives, SIGINT, SIGTERM and SIGHUP (a closed terminal) set the flag; the second SIGINT or SIGTERM
// ends the program at once. SIGHUP stays ignored where it was. One at a time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  const std::atomic<bool>* flag() const;

 private:
  using Handler = void (*)(int);
  Handler previous_interrupt_;
  Handler previous_terminate_;
  Handler previous_hangup_;
};

}  // namespace dovetail::cli
