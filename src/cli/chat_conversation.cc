// The conversation form of `dovetail chat`.
#include <cstdio>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "cli/app.h"
#include "cli/chat_command.h"
#include "cli/line_reader.h"
#include "cli/media_arguments.h"
#include "cli/typed_path.h"
#include "cli/utf8_text.h"

namespace dovetail::cli {
namespace {

constexpr const char* kHelp =
    "/audio FILE  add a recording to the next message\n"
    "/image FILE  add a picture to the next message\n"
    "/reset       forget the conversation\n"
    "/help        this text\n"
    "/quit        end; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that does not begin with / is a message.\n";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

class Talk {
 public:
  Talk(engine::Engine& engine, engine::Conversation conversation, MediaList media,
       const engine::GenerateOptions& options, bool verbose)
      : engine_(engine),
        conversation_(std::move(conversation)),
        media_(std::move(media)),
        options_(options),
        verbose_(verbose) {}

  // False: end.
  bool line(const std::string& text) {
    if (text.size() > kMaxLineBytes) {
      throw Error(ErrorCode::kLimit, Problem{.message = "is too long",
                                             .source = "the line",
                                             .expected = "at most " + format_bytes(kMaxLineBytes)});
    }
    if (const size_t zero = text.find('\0'); zero != std::string::npos) {
      throw Error(ErrorCode::kUsage, Problem{.message = "has a zero byte at byte " + std::to_string(zero),
                                             .source = "the line",
                                             .hint = "bytes are counted from 0; lines are text in UTF-8"});
    }
    const std::string command = trimmed(text);
    const std::string word = command.substr(0, command.find_first_of(" \t"));
    if (command.empty()) return true;
    if (command == "/quit") return false;
    if (command == "/help") {
      std::fputs(kHelp, stderr);
    } else if (command == "/reset") {
      conversation_.turns.clear();
      media_.clear();
      std::fputs("The conversation is forgotten.\n", stderr);
    } else if (word == "/audio" || word == "/image") {
      const std::string path = typed_path(text.substr(text.find(word) + word.size()));
      add_media(word == "/audio" ? MediaKind::kAudio : MediaKind::kImage, path);
    } else if (command.starts_with('/')) {
      throw Error(ErrorCode::kUsage, Problem{.message = "there is no command " + printable(command),
                                             .hint = "/help lists the commands"});
    } else {
      answer(text);
    }
    return true;
  }

 private:
  void add_media(MediaKind kind, const std::string& path) {
    const bool picture = kind == MediaKind::kImage;
    if (path.empty())
      throw Error(ErrorCode::kUsage, std::string(picture ? "/image" : "/audio") + " needs a file");
    media_.push_back(read_media(engine_.model(), {kind, path}, verbose_));
    const engine::Media& media = *media_.back();
    if (picture) {
      std::fprintf(stderr, "A picture of %lld x %lld pixels goes with the next message.\n",
                   static_cast<long long>(media.source_width), static_cast<long long>(media.source_height));
    } else {
      std::fprintf(stderr, "%s of audio go with the next message.\n", format_seconds(media.seconds).c_str());
    }
  }

  void answer(const std::string& text) {
    check_utf8(text, "the message");
    conversation_.turns.push_back(user_turn(media_, text));
    try {
      const engine::Reply reply = show_reply(engine_, conversation_, options_, verbose_);
      if (reply.text.empty() && reply.finish_reason == engine::FinishReason::kCancelled) {
        conversation_.turns.pop_back();
        return;
      }
      conversation_.turns.push_back({.role = engine::Role::kAssistant, .parts = {reply.text}});
      media_.clear();
      // Another draw for the next answer, and still the same conversation for the same seed.
      ++options_.sampling.seed;
    } catch (const Error&) {
      conversation_.turns.pop_back();
      drop_media();
      throw;
    }
  }

  // Kept, what made a message too long would make the next one too long as well.
  void drop_media() {
    if (media_.empty()) return;
    media_.clear();
    std::fputs("The recordings and pictures of this message are dropped.\n", stderr);
  }

  engine::Engine& engine_;
  engine::Conversation conversation_;
  MediaList media_;
  engine::GenerateOptions options_;
  bool verbose_;
};

}  // namespace

bool converse(engine::Engine& engine, engine::Conversation conversation, MediaList media,
              const engine::GenerateOptions& options, bool verbose) {
  Talk talk(engine, std::move(conversation), std::move(media), options, verbose);
  LineReader reader;
  std::string line;
  bool all_answered = true;
  while (true) {
    const LineReader::Result result = reader.read(line);
    if (result == LineReader::Result::kEnd) return all_answered;
    if (result == LineReader::Result::kInterrupted) continue;
    try {
      if (!talk.line(line)) return all_answered;
    } catch (const Error& error) {
      // The conversation goes on without the message that failed.
      print_error(error);
      all_answered = false;
    }
  }
}

}  // namespace dovetail::cli
