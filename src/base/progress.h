// A progress line on stderr: share, rate and time left. Silent when stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace dovetail {

class Progress {
 public:
  // `total` and the amounts given to advance() are in bytes.
  Progress(std::string label, int64_t total);
  ~Progress();
  void advance(int64_t amount);  // thread safe
  void finish();

 private:
  void draw(std::chrono::steady_clock::time_point now);

  std::string label_;
  int64_t total_;
  int64_t done_ = 0;
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  std::mutex mutex_;
};

// "12.3 MB", "2.80 GB": decimal units, three significant digits.
std::string format_bytes(int64_t bytes);
// "0.42 s", "12.3 s", "3 min 05 s".
std::string format_seconds(double seconds);
// True when stderr (2) or stdout (1) is a terminal that takes escape sequences and NO_COLOR is not set.
bool terminal_colors(int fd);

}  // namespace dovetail
