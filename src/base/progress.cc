#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dovetail {
namespace {
using Clock = std::chrono::steady_clock;

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, kUnits[unit]);
  return text;
}

std::string format_seconds(double seconds) {
  char text[32];
  if (seconds < 9.995) {
    std::snprintf(text, sizeof text, "%.2f s", seconds);
  } else if (seconds < 59.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else {
    const long whole = std::lround(std::min(seconds, 1e9));
    std::snprintf(text, sizeof text, "%ld min %02ld s", whole / 60, whole % 60);
  }
  return text;
}

bool terminal_colors(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr && term != nullptr &&
         std::strcmp(term, "dumb") != 0;
}

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(total),
      enabled_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() { finish(); }

void Progress::advance(int64_t amount) {
  if (!enabled_) return;
  std::lock_guard lock(mutex_);
  done_ += amount;
  const Clock::time_point now = Clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  draw(now);
}

void Progress::finish() {
  std::lock_guard lock(mutex_);
  if (enabled_ && drawn_) std::fputs("\r\033[K", stderr);
  enabled_ = false;
}

void Progress::draw(Clock::time_point now) {
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double rate = elapsed > 0 ? static_cast<double>(done_) / elapsed : 0;
  const double share =
      total_ > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 0;
  std::string tail = " " + std::to_string(static_cast<int>(share * 100)) + "%  " + format_bytes(done_) +
                     " of " + format_bytes(total_) + "  " + format_bytes(static_cast<int64_t>(rate)) + "/s";
  if (rate > 0) tail += "  " + format_seconds(static_cast<double>(total_ - done_) / rate) + " left";
  const int columns = terminal_width();
  const int room = columns - static_cast<int>(label_.size() + tail.size()) - 5;
  std::string bar;
  if (room >= 10) {
    const int width = std::min(room, 30);
    const int filled = static_cast<int>(share * width);
    for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
    bar = " " + bar;
  }
  std::string line = label_ + bar + tail;
  // A line that wraps can't be drawn over. Without a bar every byte is a column.
  if (bar.empty()) line.resize(std::min(line.size(), static_cast<size_t>(std::max(columns - 1, 0))));
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace dovetail
