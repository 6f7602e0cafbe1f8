#include "cli/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "cli/chat_command.h"

namespace dovetail::cli {
namespace {

constexpr int kHistoryLines = 1000;

char* prompt(EditLine*) {
  static char text[] = "> ";
  return text;
}

}  // namespace

struct LineReader::Editor {
  EditLine* line;
  History* history;
  HistEvent event;

  Editor() : line(el_init("dovetail", stdin, stderr, stderr)), history(history_init()) {
    set_up_history();
    el_set(line, EL_PROMPT, prompt);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    el_source(line, nullptr);  // the user's ~/.editrc
  }
  ~Editor() {
    history_end(history);
    el_end(line);
  }
  void set_up_history() {
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
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
  if (!editor_) return std::getline(std::cin, line) ? Result::kLine : Result::kEnd;
  clear_interrupt();
  int count = 0;
  const char* text = el_gets(editor_->line, &count);
  if (interrupted()) {
    el_reset(editor_->line);
    std::fputc('\n', stderr);
    return Result::kInterrupted;
  }
  if (text == nullptr || count <= 0) {
    std::fputc('\n', stderr);
    return Result::kEnd;
  }
  line.assign(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  if (!line.empty()) ::history(editor_->history, &editor_->event, H_ENTER, line.c_str());
  return Result::kLine;
}

}  // namespace dovetail::cli
