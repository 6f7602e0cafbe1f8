// --audio and --image of the commands that talk to a model, and what is told of the files.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/media.h"
#include "engine/prompt.h"

namespace dovetail::cli {

enum class MediaKind { kAudio, kImage };

struct MediaArgument {
  MediaKind kind;
  std::string path;
};

// Adds both options; `arguments` receives their files in the order of the command line.
void add_media_options(CLI::App& command, std::vector<MediaArgument>& arguments);

using MediaList = std::vector<std::shared_ptr<const engine::Media>>;

// Reads and decodes one file. What of it was left out goes to stderr, with `verbose` also what it is and what
// was done to it.
std::shared_ptr<const engine::Media> read_media(const library::Model& model, const MediaArgument& argument,
                                                bool verbose);

// Where the media of a prompt stand in the context window, on stderr; nothing for a prompt without media.
void print_media_positions(const engine::Prompt& prompt, int64_t context_window);

// A user's turn: the media in their order, then the text.
engine::Turn user_turn(const MediaList& media, const std::string& text);

}  // namespace dovetail::cli
