// Lines typed by a person: edited with history on a terminal, read plainly from anything else.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace dovetail::cli {

// No line of a conversation is as long as this.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

class LineReader {
 public:
  LineReader();
  ~LineReader();

  enum class Result { kLine, kInterrupted, kEnd };
  // Shows the prompt on stderr when a person types. `line` has no line end, be it a line feed or also the
  // carriage return of other systems. Of a line of more than kMaxLineBytes only one byte more is kept. Throws
  // Error kIo.
  Result read(std::string& line);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null when stdin is not a terminal
};

}  // namespace dovetail::cli
