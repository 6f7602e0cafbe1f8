#include "cli/open_engine.h"

#include <chrono>
#include <utility>

namespace dovetail::cli {

Session open_session(const EngineArguments& arguments, const std::vector<MediaArgument>& media,
                     bool verbose) {
  std::optional<std::filesystem::path> library;
  if (!arguments.library.empty()) library = arguments.library;
  Session session;
  auto start = std::chrono::steady_clock::now();
  const auto add_load_time = [&] {
    session.load_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  library::Model model = library::open_model(arguments.package, library);
  add_load_time();
  for (const MediaArgument& argument : media) {
    session.media.push_back(read_media(model, argument, verbose));
  }
  start = std::chrono::steady_clock::now();
  session.engine = std::make_unique<engine::Engine>(
      std::move(model), engine::EngineOptions{.threads = arguments.threads, .exact = arguments.exact});
  add_load_time();
  return session;
}

std::unique_ptr<engine::Engine> open_engine(const EngineArguments& arguments) {
  return open_session(arguments, {}, false).engine;
}

}  // namespace dovetail::cli
