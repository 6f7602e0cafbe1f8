#include "cli/media_arguments.h"

#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/report.h"

namespace dovetail::cli {
namespace {

void add_option(CLI::App& command, const char* name, const char* description, MediaKind kind,
                std::vector<MediaArgument>& arguments) {
  // Called for every occurrence while the command line is read, so that the order across options is kept.
  const auto add = [kind, &arguments](const std::string& path) { arguments.push_back({kind, path}); };
  command.add_option_function<std::string>(name, add, description)
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->trigger_on_parse();
}

std::string size_text(int64_t width, int64_t height) {
  return std::to_string(width) + " x " + std::to_string(height);
}

std::string what_it_is(const engine::Media& media) {
  if (media.height == 0) return media.format + ", " + format_seconds(media.seconds);
  return media.format + ", " + size_text(media.source_width, media.source_height) + " pixels";
}

void print_line(const engine::Media& media, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", printable(media.source).c_str(), printable(text).c_str());
}

}  // namespace

void add_media_options(CLI::App& command, std::vector<MediaArgument>& arguments) {
  add_option(command, "--audio", "A recording (WAV, FLAC, MP3, Ogg) before the message; may be repeated",
             MediaKind::kAudio, arguments);
  add_option(command, "--image",
             "A picture (JPEG, PNG, WebP, GIF, BMP, TIFF) before the message; may be repeated. Pictures and "
             "recordings keep their order",
             MediaKind::kImage, arguments);
}

std::shared_ptr<const engine::Media> read_media(const library::Model& model, const MediaArgument& argument,
                                                bool verbose) {
  const std::string bytes = read_file(argument.path);
  std::shared_ptr<const engine::Media> media = argument.kind == MediaKind::kAudio
                                                   ? engine::read_audio(model, bytes, argument.path)
                                                   : engine::read_image(model, bytes, argument.path);
  if (verbose) print_line(*media, what_it_is(*media));
  for (const std::string& warning : media->warnings) print_line(*media, warning);
  if (!verbose) return media;
  for (const std::string& note : media->notes) print_line(*media, note);
  return media;
}

void print_media_positions(const engine::Prompt& prompt, int64_t context_window) {
  if (prompt.media.empty()) return;
  int64_t pictures = 0;
  for (const engine::MediaSpan& span : prompt.media) pictures += span.media->height > 0 ? 1 : 0;
  const int64_t recordings = static_cast<int64_t>(prompt.media.size()) - pictures;
  std::string counts;
  if (pictures > 0) counts += counted(pictures, "picture");
  if (recordings > 0) counts += (counts.empty() ? "" : " and ") + counted(recordings, "recording");
  std::fprintf(stderr, "%s in a prompt of %lld tokens; the context window has %lld\n", counts.c_str(),
               static_cast<long long>(prompt.size()), static_cast<long long>(context_window));
  for (const engine::MediaSpan& span : prompt.media) {
    std::fprintf(stderr, "  %s: %s at positions %lld to %lld\n", printable(span.media->source).c_str(),
                 counted(span.rows, "row").c_str(), static_cast<long long>(span.begin),
                 static_cast<long long>(span.begin + span.rows - 1));
  }
}

engine::Turn user_turn(const MediaList& media, const std::string& text) {
  engine::Turn turn{.role = engine::Role::kUser};
  for (const auto& medium : media) turn.parts.emplace_back(medium);
  turn.parts.emplace_back(text);
  return turn;
}

}  // namespace dovetail::cli
