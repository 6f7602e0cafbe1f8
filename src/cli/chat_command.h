// Shared by the two forms of `dovetail chat`: one message, and a conversation.
#pragma once

#include <string>
#include <vector>

#include "cli/media_arguments.h"
#include "engine/engine.h"

namespace dovetail::cli {

// Set by Ctrl-C, cleared before every reply.
bool interrupted();
void clear_interrupt();
// Ctrl-C sets the flag and interrupts a read, and nothing else, from here on.
void catch_interrupts();

// Generates the reply to the conversation and shows it on stdout while it comes; with `verbose` the places of
// media, counts and rates on stderr.
engine::Reply show_reply(engine::Engine& engine, const engine::Conversation& conversation,
                         const engine::GenerateOptions& options, bool verbose);

// Reads messages until the end of input or /quit. `conversation` may have a system message; `media` go with
// the first message. False when some line failed: a command, or a message that got no answer.
bool converse(engine::Engine& engine, engine::Conversation conversation, MediaList media,
              const engine::GenerateOptions& options, bool verbose);

}  // namespace dovetail::cli
