// What the commands that run a model share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/media_arguments.h"
#include "engine/engine.h"

namespace dovetail::cli {

struct EngineArguments {
  std::string package;
  std::string library;  // empty: the best of the package's own
  int threads = 0;
  bool exact = false;
};

std::unique_ptr<engine::Engine> open_engine(const EngineArguments& arguments);

struct Session {
  std::unique_ptr<engine::Engine> engine;
  double load_seconds = 0;  // of the model
  MediaList media;
};

// Also reads the media, before the engine takes the weights: what can't be used is refused at once.
Session open_session(const EngineArguments& arguments, const std::vector<MediaArgument>& media, bool verbose);

}  // namespace dovetail::cli
