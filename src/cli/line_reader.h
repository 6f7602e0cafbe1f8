// Lines typed by a person: edited with history on a terminal, read plainly from anything else.
#pragma once

#include <memory>
#include <string>

namespace dovetail::cli {

class LineReader {
 public:
  LineReader();
  ~LineReader();

  enum class Result { kLine, kInterrupted, kEnd };
  // Shows the prompt on stderr when a person types. `line` has no line end, be
  // it a line feed or also the carriage return of other systems. Throws Error kIo.
  Result read(std::string& line);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null when stdin is not a terminal
};

}  // namespace dovetail::cli
