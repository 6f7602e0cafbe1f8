// dovetail chat: one answer, or a conversation.
#include "cli/chat_command.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/open_engine.h"
#include "cli/report.h"
#include "cli/terminal_text.h"
#include "cli/utf8_text.h"

namespace dovetail::cli {
namespace {

constexpr int kInterruptedExit = 130;  // what shells report for Ctrl-C

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) { interrupt_flag.store(true); }

struct ChatArguments {
  EngineArguments engine;
  std::string system;
  bool system_given = false;  // an empty one takes the package's away
  std::string message;
  std::vector<MediaArgument> media;
  int64_t max_tokens = 0;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<uint64_t> seed;
  bool json = false;
  bool verbose = false;
};

std::string rate(int64_t tokens, double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f tokens/s",
                seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
  return text;
}

void print_statistics(const engine::Reply& reply) {
  const engine::Usage& usage = reply.usage;
  const engine::Timings& timings = reply.timings;
  const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  std::fprintf(stderr, "prompt: %s (%lld of media, %lld from the cache), %lld computed in %s (%s)\n",
               counted(usage.prompt_tokens, "token").c_str(), static_cast<long long>(usage.media_tokens),
               static_cast<long long>(usage.cached_tokens), static_cast<long long>(computed),
               format_seconds(timings.prefill_seconds).c_str(),
               rate(computed, timings.prefill_seconds).c_str());
  if (timings.adapter_seconds > 0) {
    std::fprintf(stderr, "media: encoded in %s\n", format_seconds(timings.adapter_seconds).c_str());
  }
  // One token says nothing about the rate of the next ones.
  const int64_t decoded = usage.completion_tokens - 1;
  std::fprintf(stderr, "reply: %s (%s), first after %s%s\n",
               counted(usage.completion_tokens, "token").c_str(),
               std::string(engine::finish_reason_name(reply.finish_reason)).c_str(),
               format_seconds(timings.first_token_seconds).c_str(),
               decoded > 0 ? (", then " + rate(decoded, timings.decode_seconds)).c_str() : "");
}

void print_json(const engine::Reply& reply, const engine::GenerateOptions& options) {
  const Json document = {{"text", reply.text},
                         {"finish_reason", engine::finish_reason_name(reply.finish_reason)},
                         {"token_ids", reply.token_ids},
                         {"seed", options.sampling.seed},
                         {"usage",
                          {{"prompt_tokens", reply.usage.prompt_tokens},
                           {"media_tokens", reply.usage.media_tokens},
                           {"cached_tokens", reply.usage.cached_tokens},
                           {"completion_tokens", reply.usage.completion_tokens}}},
                         {"seconds",
                          {{"adapter", reply.timings.adapter_seconds},
                           {"prefill", reply.timings.prefill_seconds},
                           {"first_token", reply.timings.first_token_seconds},
                           {"decode", reply.timings.decode_seconds}}}};
  print_document(document);
}

void run_chat(const ChatArguments& arguments, bool one_message, int& exit_code) {
  if (arguments.json && !one_message) {
    throw Error(ErrorCode::kUsage, "--json needs --message: a conversation is for people");
  }
  check_utf8(arguments.system, "--system");
  check_utf8(arguments.message, "--message");
  Session session = open_session(arguments.engine, arguments.media, arguments.verbose);
  engine::Engine* const engine = session.engine.get();
  const package::ChatConfig& config = engine->model().chat_config;
  engine::GenerateOptions options{.max_tokens = arguments.max_tokens};
  options.sampling.temperature = arguments.temperature.value_or(config.temperature);
  options.sampling.top_p = arguments.top_p.value_or(config.top_p);
  options.sampling.seed = arguments.seed ? *arguments.seed : std::random_device()();
  if (arguments.verbose) {
    std::fprintf(stderr, "%s, loaded in %s; temperature %g, top_p %g, seed %llu\n",
                 printable(engine->model().library.path().string()).c_str(),
                 format_seconds(session.load_seconds).c_str(), options.sampling.temperature,
                 options.sampling.top_p, static_cast<unsigned long long>(options.sampling.seed));
  }
  engine::Conversation conversation;
  if (arguments.system_given) conversation.system = arguments.system;
  catch_interrupts();
  if (!one_message) {
    const bool answered =
        converse(*engine, std::move(conversation), std::move(session.media), options, arguments.verbose);
    // Whoever types has seen the error; a script has only the exit code.
    if (!answered && !isatty(STDIN_FILENO)) exit_code = 1;
    return;
  }
  conversation.turns.push_back(user_turn(session.media, arguments.message));
  engine::Reply reply;
  if (arguments.json) {
    engine::Callbacks callbacks{.cancelled = interrupted};
    if (arguments.verbose) {
      callbacks.prompt = [&](const engine::Prompt& prompt) {
        print_media_positions(prompt, engine->context_window());
      };
    }
    reply = engine->generate(conversation, options, callbacks);
    print_json(reply, options);
    if (arguments.verbose) print_statistics(reply);
  } else {
    reply = show_reply(*engine, conversation, options, arguments.verbose);
  }
  if (reply.finish_reason == engine::FinishReason::kCancelled) exit_code = kInterruptedExit;
}

}  // namespace

bool interrupted() { return interrupt_flag.load(); }
void clear_interrupt() { interrupt_flag.store(false); }

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // No SA_RESTART: a read at the prompt has to end.
  sigaction(SIGINT, &action, nullptr);
}

engine::Reply show_reply(engine::Engine& engine, const engine::Conversation& conversation,
                         const engine::GenerateOptions& options, bool verbose) {
  const bool to_terminal = isatty(STDOUT_FILENO) != 0;
  const bool status_line = isatty(STDERR_FILENO) != 0 && !verbose;
  bool status_shown = false;
  bool ends_line = true;
  const auto clear_status = [&] {
    if (status_shown) std::fputs("\r\x1b[K", stderr);
    status_shown = false;
  };
  engine::Callbacks callbacks;
  callbacks.cancelled = interrupted;
  if (verbose) {
    callbacks.prompt = [&](const engine::Prompt& prompt) {
      print_media_positions(prompt, engine.context_window());
    };
  }
  callbacks.text = [&](std::string_view text) {
    clear_status();
    const std::string shown = to_terminal ? terminal_text(text) : std::string(text);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
    ends_line = text.ends_with('\n');
  };
  callbacks.status = [&](std::string_view status) {
    const std::string text = printable(status);
    if (status_line) {
      std::fprintf(stderr, "\r\x1b[K%s …", text.c_str());
      status_shown = true;
    } else if (verbose) {
      std::fprintf(stderr, "%s\n", text.c_str());
    }
  };
  clear_interrupt();
  engine::Reply reply;
  try {
    reply = engine.generate(conversation, options, callbacks);
  } catch (...) {
    clear_status();
    if (!ends_line) std::fputc('\n', stdout);
    std::fflush(stdout);
    throw;
  }
  clear_status();
  if (!ends_line || reply.text.empty()) std::fputc('\n', stdout);
  std::fflush(stdout);
  if (reply.finish_reason == engine::FinishReason::kCancelled) std::fputs("(stopped)\n", stderr);
  if (verbose) print_statistics(reply);
  return reply;
}

void add_chat_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ChatArguments>();
  CLI::App* command = app.add_subcommand(
      "chat",
      "Talk with a model: one answer with --message, a conversation without. The answer goes to stdout, "
      "everything else to stderr");
  command->add_option("package", arguments->engine.package, "The folder that `dovetail convert` wrote")
      ->required();
  command->add_option(
      "--library", arguments->engine.library,
      "The compiled library; default: the best of the package's own that this machine can run");
  CLI::Option* system =
      command->add_option("--system", arguments->system, "The system message; default: the package's")
          ->type_name(kFreeText);
  CLI::Option* message = command->add_option("--message", arguments->message, "The message; ask once and end")
                             ->type_name(kFreeText);
  add_media_options(*command, arguments->media);
  command->add_option("--max-tokens", arguments->max_tokens, "End the answer after so many tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_option("--temperature", arguments->temperature,
                      "0: always the most likely token; default: the package's");
  command->add_option(
      "--top-p", arguments->top_p,
      "Sample from the most likely tokens that have this probability together; default: the package's");
  command->add_option("--seed", arguments->seed,
                      "Makes sampling repeatable; default: another one every time");
  command->add_option("--threads", arguments->engine.threads, "Default: all processors of this process")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--exact", arguments->engine.exact,
                    "Compute with float32 activations: slower, for comparisons");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of the text; needs --message");
  command->add_flag("--verbose", arguments->verbose,
                    "Print to stderr what the files are and where they stand in the context window, counts, "
                    "times and rates");
  command->callback([arguments, message, system, &exit_code] {
    arguments->system_given = system->count() > 0;
    run_chat(*arguments, message->count() > 0, exit_code);
  });
}

}  // namespace dovetail::cli
