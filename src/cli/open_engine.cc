#include "cli/open_engine.h"

#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace dovetail::cli {

std::unique_ptr<engine::Engine> open_engine(const EngineArguments& arguments) {
  std::optional<std::filesystem::path> library;
  if (!arguments.library.empty()) library = arguments.library;
  return std::make_unique<engine::Engine>(
      library::open_model(arguments.package, library),
      engine::EngineOptions{.threads = arguments.threads, .exact = arguments.exact});
}

std::shared_ptr<const engine::Media> read_audio(const engine::Engine& engine, const std::string& path) {
  const std::string bytes = read_file(path);
  std::shared_ptr<const engine::Media> media = engine.audio(bytes, path);
  for (const std::string& note : media->notes) {
    std::fprintf(stderr, "%s: %s\n", printable(path).c_str(), printable(note).c_str());
  }
  return media;
}

engine::Turn user_turn(std::vector<std::shared_ptr<const engine::Media>> media, const std::string& text) {
  engine::Turn turn{.role = engine::Role::kUser};
  for (auto& medium : media) turn.parts.emplace_back(std::move(medium));
  turn.parts.emplace_back(text);
  return turn;
}

}  // namespace dovetail::cli
