#include "cli/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "cli/chat_command.h"

namespace dovetail::cli {
namespace {

constexpr int kHistoryLines = 1000;

char* prompt(EditLine*) {
  static char text[] = "> ";
  return text;
}

unsigned char drop_line(EditLine* line, wint_t) {
  bool* dropped = nullptr;
  el_get(line, EL_CLIENTDATA, &dropped);
  *dropped = true;
  return CC_EOF;
}

void drop_line_end(std::string& line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
}

// Not std::getline(), which takes a lack of memory for the end of the input.
LineReader::Result read_plainly(std::string& line) {
  int c = 0;
  while ((c = std::getc(stdin)) != EOF && c != '\n') {
    if (line.size() <= kMaxLineBytes) line.push_back(static_cast<char>(c));
  }
  if (std::ferror(stdin) != 0) {
    throw Error(ErrorCode::kIo, Problem{.message = std::string("reading failed: ") + std::strerror(errno),
                                        .source = "standard input"});
  }
  if (c == EOF && line.empty()) return LineReader::Result::kEnd;
  // One that is too long stays so, also when it was cut behind a carriage return.
  if (line.size() <= kMaxLineBytes) drop_line_end(line);
  return LineReader::Result::kLine;
}

}  // namespace

struct LineReader::Editor {
  EditLine* line;
  History* history;
  HistEvent event;
  bool dropped = false;  // by Ctrl-C

  Editor() : line(el_init("dovetail", stdin, stderr, stderr)), history(history_init()) {
    set_up_history();
    el_set(line, EL_PROMPT, prompt);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    el_source(line, nullptr);  // the user's ~/.editrc
    set_up_keys();
  }
  ~Editor() {
    history_end(history);
    el_end(line);
  }
  void set_up_history() {
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
  }
  void set_up_keys() {
    // While a line is edited, Ctrl-C is a key and no signal: a signal just before the read would be lost.
    el_set(line, EL_SETTY, "-d", "-isig", nullptr);
    el_set(line, EL_CLIENTDATA, &dropped);
    // Wide: el_set would copy the two strings and never free the copies.
    el_wset(line, EL_ADDFN, L"dovetail-drop-line", L"Drop the line", drop_line);
    el_set(line, EL_BIND, "^C", "dovetail-drop-line", nullptr);
    // Between two lines Ctrl-C is a signal; what else is typed waits, unseen and unchanged, for the next
    // line. With the kernel's own line editing a Ctrl-D typed then would become a zero byte of that line.
    el_set(line, EL_SETTY, "-x", "-icanon", nullptr);
    el_set(line, EL_SETTY, "-x", "-echo", nullptr);
  }
};

LineReader::LineReader() {
  if (isatty(STDIN_FILENO) == 0) return;
  // The editor counts columns of characters; in the C locale it would refuse everything beyond ASCII.
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = std::make_unique<Editor>();
}

LineReader::~LineReader() = default;

LineReader::Result LineReader::read(std::string& line) {
  line.clear();
  if (!editor_) return read_plainly(line);
  el_set(editor_->line, EL_PREP_TERM, 1);
  clear_interrupt();
  editor_->dropped = false;
  int count = 0;
  const char* text = el_gets(editor_->line, &count);
  if (editor_->dropped || interrupted()) {
    std::fputs("^C\n", stderr);
    return Result::kInterrupted;
  }
  if (text == nullptr || count <= 0) {
    std::fputc('\n', stderr);
    return Result::kEnd;
  }
  line.assign(text, static_cast<size_t>(count));
  drop_line_end(line);
  if (!line.empty()) ::history(editor_->history, &editor_->event, H_ENTER, line.c_str());
  return Result::kLine;
}

}  // namespace dovetail::cli
