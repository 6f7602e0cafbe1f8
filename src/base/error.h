// The one error type of the project. Everything that can fail because of what came from outside throws it.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail {

enum class ErrorCode {
  kUsage,        // the command line or an API argument is wrong
  kNotFound,     // a file, tensor or function does not exist
  kIo,           // reading or writing failed (disk full, permission, …)
  kMalformed,    // a document or file breaks its format
  kMismatch,     // two parts that must fit together do not
  kUnsupported,  // well formed, but this version can't do it
  kLimit,        // a stated limit is exceeded (context window, samples, memory)
  kNumeric,      // a computation produced a non-finite value
  kCancelled,    // the user stopped it
  kInternal,     // a bug in Dovetail
};

// Lower-case name for machine-readable output, for example "malformed".
std::string_view error_code_name(ErrorCode code);

// One thing that is wrong. Empty members are left out of the message.
struct Problem {
  std::string message;  // what is wrong, without the location
  std::string source;   // file or document, for example "tensor-cache.json"
  std::string field;    // path inside it, for example "records[3].nbytes"
  std::string expected;
  std::string actual;
  std::string hint;  // what the user can do about it

  // "tensor-cache.json: records[3].nbytes: size differs (expected 12, got 16)"
  std::string text() const;
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);
  Error(ErrorCode code, Problem problem);
  // All problems found, in the order they were found. `problems` must not be empty.
  Error(ErrorCode code, std::vector<Problem> problems);

  ErrorCode code() const { return code_; }
  const std::vector<Problem>& problems() const { return problems_; }
  // Every problem on a line of its own; hints follow, each once.
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ErrorCode code_;
  std::vector<Problem> problems_;
  std::string text_;
};

// Text from outside made safe for a terminal: control characters and bytes that are not UTF-8 as \xNN, cut
// after at most `limit` bytes at the end of a character.
std::string printable(std::string_view text, size_t limit = 200);

}  // namespace dovetail
