// dovetail logits: a model's logits for a prompt and a given reply, to compare with other implementations.
#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/npz.h"
#include "cli/open_engine.h"
#include "cli/utf8_text.h"
#include "library/model.h"
#include "package/package.h"

namespace dovetail::cli {
namespace {

struct LogitsArguments {
  EngineArguments engine;
  std::string system;
  bool system_given = false;  // an empty one takes the package's away
  std::string message;
  std::vector<MediaArgument> media;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> reply_ids;
  std::string output;
};

engine::Engine::Logits compute(const LogitsArguments& arguments) {
  check_utf8(arguments.system, "--system");
  check_utf8(arguments.message, "--message");
  const Session session = open_session(arguments.engine, arguments.media, false);
  if (!arguments.prompt_ids.empty()) return session.engine->logits(arguments.prompt_ids, arguments.reply_ids);
  engine::Conversation conversation;
  if (arguments.system_given) conversation.system = arguments.system;
  conversation.turns.push_back(user_turn(session.media, arguments.message));
  return session.engine->logits(conversation, arguments.reply_ids);
}

// Not a vector of CLI11, which leaves out what is empty between two commas.
CLI::Option* add_ids_option(CLI::App& command, const char* name, const char* description,
                            std::vector<int32_t>& ids) {
  const auto read = [name, &ids](const std::string& text) {
    for (const char *at = text.data(), *end = at + text.size();; ++at) {
      const auto [next, status] = std::from_chars(at, end, ids.emplace_back());
      if (status != std::errc() || (next != end && *next != ','))
        throw CLI::ValidationError(name, '"' + printable(text) + "\" is not token ids separated by commas");
      if (next == end) return;
      at = next;
    }
  };
  return command.add_option_function<std::string>(name, read, description)->type_name("IDS");
}

void run_logits(const LogitsArguments& arguments) {
  std::vector<std::filesystem::path> inputs = library::package_libraries(arguments.engine.package);
  inputs.emplace_back(arguments.engine.library);
  for (const MediaArgument& file : arguments.media) inputs.emplace_back(file.path);
  package::check_output(arguments.output, arguments.engine.package, inputs);
  { const AtomicFile writable(arguments.output); }  // refused before anything is computed
  const engine::Engine::Logits logits = compute(arguments);
  const std::vector<int64_t> ids(logits.prompt_ids.begin(), logits.prompt_ids.end());
  NpzFile file;
  file.add("prompt_token_ids", std::span(ids), {static_cast<int64_t>(ids.size())});
  file.add("logits", std::span(logits.values), {logits.rows, logits.vocab});
  file.write(arguments.output);
}

}  // namespace

void add_logits_command(CLI::App& app, int&) {
  auto arguments = std::make_shared<LogitsArguments>();
  CLI::App* command = app.add_subcommand(
      "logits", "Write the logits at a prompt's last position and after each token of a given reply as .npz");
  command->add_option("package", arguments->engine.package, "The folder that `dovetail convert` wrote")
      ->required();
  command->add_option("--library", arguments->engine.library,
                      "The compiled library; default: the package's own");
  CLI::Option* system =
      command->add_option("--system", arguments->system, "The system message; default: the package's")
          ->type_name(kFreeText);
  CLI::Option_group* const prompt = command->add_option_group("prompt");
  prompt->add_option("--message", arguments->message, "The message")->type_name(kFreeText);
  CLI::Option* ids = add_ids_option(
      *prompt, "--prompt-ids", "Token ids of the whole prompt, separated by commas, instead of a message",
      arguments->prompt_ids);
  prompt->require_option(1);
  add_media_options(*command, arguments->media);
  ids->excludes(system, command->get_option("--audio"), command->get_option("--image"));
  add_ids_option(*command, "--reply-ids", "Token ids of the reply, separated by commas",
                 arguments->reply_ids);
  command->add_option("--threads", arguments->engine.threads, "Default: all processors of this process")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--exact", arguments->engine.exact, "Compute with float32 activations");
  command
      ->add_option("-o,--output", arguments->output,
                   "The file: arrays prompt_token_ids (int64) and logits (float32 [1 + reply, vocabulary])")
      ->required();
  command->callback([arguments, system] {
    arguments->system_given = system->count() > 0;
    run_logits(*arguments);
  });
}

}  // namespace dovetail::cli
