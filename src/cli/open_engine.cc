#include "cli/open_engine.h"

#include <utility>

namespace dovetail::cli {

Session open_session(const EngineArguments& arguments, const std::vector<MediaArgument>& media,
                     bool verbose) {
  std::optional<std::filesystem::path> library;
  if (!arguments.library.empty()) library = arguments.library;
  library::Model model = library::open_model(arguments.package, library);
  Session session;
  for (const MediaArgument& argument : media) {
    session.media.push_back(read_media(model, argument, verbose));
  }
  session.engine = std::make_unique<engine::Engine>(
      std::move(model), engine::EngineOptions{.threads = arguments.threads, .exact = arguments.exact});
  return session;
}

std::unique_ptr<engine::Engine> open_engine(const EngineArguments& arguments) {
  return open_session(arguments, {}, false).engine;
}

}  // namespace dovetail::cli
