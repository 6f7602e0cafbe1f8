// What the commands that run a model share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace dovetail::cli {

struct EngineArguments {
  std::string package;
  std::string library;  // empty: the best of the package's own
  int threads = 0;
  bool exact = false;
};

std::unique_ptr<engine::Engine> open_engine(const EngineArguments& arguments);

// Reads and decodes one recording. What the user should know of it goes to stderr.
std::shared_ptr<const engine::Media> read_audio(const engine::Engine& engine, const std::string& path);

// A user's turn: the recordings in their order, then the text.
engine::Turn user_turn(std::vector<std::shared_ptr<const engine::Media>> media, const std::string& text);

}  // namespace dovetail::cli
