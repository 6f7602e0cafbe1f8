// dovetail logits: a model's logits for a prompt and a given reply, to compare with other implementations.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/npz.h"
#include "cli/open_engine.h"
#include "cli/utf8_text.h"

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
  if (!arguments.prompt_ids.empty() && !arguments.media.empty())
    throw Error(ErrorCode::kUsage, "--prompt-ids are the whole prompt: media go with --message");
  check_utf8(arguments.system, "--system");
  check_utf8(arguments.message, "--message");
  const Session session = open_session(arguments.engine, arguments.media, false);
  if (!arguments.prompt_ids.empty()) return session.engine->logits(arguments.prompt_ids, arguments.reply_ids);
  engine::Conversation conversation;
  if (arguments.system_given) conversation.system = arguments.system;
  conversation.turns.push_back(user_turn(session.media, arguments.message));
  return session.engine->logits(conversation, arguments.reply_ids);
}

// Of an empty value CLI11 makes a 0.
std::string check_token_id(const std::string& text) {
  return text.empty() ? "an empty value is no token id" : std::string();
}

void run_logits(const LogitsArguments& arguments) {
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
      command->add_option("--system", arguments->system, "The system message; default: the package's");
  CLI::Option_group* const prompt = command->add_option_group("prompt");
  prompt->add_option("--message", arguments->message, "The message");
  prompt
      ->add_option("--prompt-ids", arguments->prompt_ids,
                   "Token ids of the whole prompt, separated by commas, instead of a message")
      ->delimiter(',')
      ->check(check_token_id);
  prompt->require_option(1);
  add_media_options(*command, arguments->media);
  command->add_option("--reply-ids", arguments->reply_ids, "Token ids of the reply, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(check_token_id);
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
