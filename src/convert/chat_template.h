// A checkpoint's chat template (Jinja) as MLC's conversation template. docs/conversation-templates.md says
// how and what MLC's form can't express.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "package/chat_config.h"
#include "package/tokenizer.h"

namespace dovetail::convert {

struct ChatTemplate {
  std::string source;  // the file
  std::string text;
  Json tokens = Json::object();  // "bos_token": text, "eos_token": …
  // The family's template is no substitute: a conversion with --chat-template file fails instead.
  bool required = false;
};

// chat_template.jinja, chat_template.json, or "chat_template" of tokenizer_config.json
// (read_tokenizer_config); nullopt when there is none. The first one counts; a note says when two differ, or
// that none of a list is for conversations. Throws Error kMalformed.
std::optional<ChatTemplate> find_chat_template(const std::filesystem::path& checkpoint,
                                               const Json& tokenizer_config, std::vector<std::string>& notes);

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// What the template makes of a conversation. Throws Error kMalformed with the template's own words.
std::string render(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                   bool add_generation_prompt);

// The text that MLC's form gives for the same conversation, without system_prefix_token_ids.
std::string conversation_text(const package::ConvTemplate& conv, const std::vector<Message>& messages);

// Replaces prefix, system, roles and separators of `conv` (the family's own) by what the chat template does,
// found by rendering a few conversations. Conversations that MLC's form renders otherwise are noted. Returns
// why the template can't be written so, and leaves `conv` as it is; empty: it can.
std::string derive_conv_template(const ChatTemplate& chat_template, const package::Tokenizer& tokenizer,
                                 package::ConvTemplate& conv, std::vector<std::string>& notes);

}  // namespace dovetail::convert
