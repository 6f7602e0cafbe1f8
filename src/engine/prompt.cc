#include "engine/prompt.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace dovetail::engine {
namespace {

constexpr std::string_view kSystemPlaceholder = "{system_message}";
constexpr std::string_view kUserPlaceholder = "{user_message}";
constexpr std::string_view kAssistantPlaceholder = "{assistant_message}";
constexpr std::string_view kFunctionPlaceholder = "{function_string}";

// The texts between which a template's placeholder stands. A template without it keeps everything in front.
std::vector<std::string> split_template(const std::string& text, std::string_view placeholder) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (size_t at = text.find(placeholder); at != std::string::npos; at = text.find(placeholder, begin)) {
    pieces.push_back(text.substr(begin, at - begin));
    begin = at + placeholder.size();
  }
  pieces.push_back(text.substr(begin));
  if (pieces.size() == 1) pieces.emplace_back();
  return pieces;
}

// There are no tools here: what a template says of them is its own text.
std::string without_functions(std::string text, const package::ConvTemplate& conv_template) {
  const std::string& functions =
      conv_template.use_function_calling ? conv_template.function_string : std::string();
  for (size_t at = 0; (at = text.find(kFunctionPlaceholder, at)) != std::string::npos; at += functions.size())
    text.replace(at, kFunctionPlaceholder.size(), functions);
  return text;
}

// A reply of an earlier turn without what the model thought before it.
std::string without_reasoning(const std::string& text) {
  constexpr std::string_view kEnd = "</think>";
  const size_t at = text.rfind(kEnd);
  if (at == std::string::npos) return text;
  const size_t begin = text.find_first_not_of(" \t\r\n", at + kEnd.size());
  return begin == std::string::npos ? "" : text.substr(begin);
}

// Appends segments to a prompt. Text is collected until a medium or the end comes: a prompt's text is
// tokenized as a whole, as the checkpoints' own templates are.
class Builder {
 public:
  Builder(const contract::Named<contract::Input>& inputs, const Encode& encode, const MediaRows& rows)
      : inputs_(inputs), encode_(encode), rows_(rows) {}

  void token_ids(std::span<const int64_t> ids) {
    for (int64_t id : ids) append(static_cast<int32_t>(id), 0);
  }

  void text(std::string_view text) { pending_ += text; }

  void flush() {
    if (pending_.empty()) return;
    for (int32_t id : encode_(pending_)) append(id, 0);
    pending_.clear();
  }

  void media(const std::shared_ptr<const Media>& media) {
    const contract::Input* input = contract::find_named(inputs_, media->input);
    if (input == nullptr || !input->prompt) {
      throw Error(ErrorCode::kUnsupported, "this package does not take " + media->input + " input");
    }
    flush();
    const contract::Prompt& frame = *input->prompt;
    token_ids(frame.prefix_token_ids);
    const int64_t rows = rows_(*media);
    prompt_.media.push_back({.begin = prompt_.size(), .rows = rows, .media = media});
    prompt_.ids.insert(prompt_.ids.end(), rows, static_cast<int32_t>(frame.placeholder_token_id));
    prompt_.modality_ids.insert(prompt_.modality_ids.end(), rows, 1);
    token_ids(frame.suffix_token_ids);
  }

  // A text that begins with what the prompt already begins with (a template that spells the beginning-of-text
  // token which the package also lists as a prefix) must not double it.
  void drop_repeated_prefix(size_t length) {
    std::vector<int32_t>& ids = prompt_.ids;
    const bool repeated = length > 0 && ids.size() >= 2 * length && !first_is_media(2 * length) &&
                          std::equal(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length),
                                     ids.begin() + static_cast<std::ptrdiff_t>(length));
    if (!repeated) return;
    const auto count = static_cast<std::ptrdiff_t>(length);
    ids.erase(ids.begin(), ids.begin() + count);
    prompt_.modality_ids.erase(prompt_.modality_ids.begin(), prompt_.modality_ids.begin() + count);
    for (MediaSpan& span : prompt_.media) span.begin -= count;
  }

  Prompt take() { return std::move(prompt_); }

 private:
  void append(int32_t id, int32_t modality) {
    prompt_.ids.push_back(id);
    prompt_.modality_ids.push_back(modality);
  }

  bool first_is_media(size_t before) const {
    return !prompt_.media.empty() && prompt_.media.front().begin < static_cast<int64_t>(before);
  }

  const contract::Named<contract::Input>& inputs_;
  const Encode& encode_;
  const MediaRows& rows_;
  std::string pending_;
  Prompt prompt_;
};

void check(const Conversation& conversation) {
  const auto refuse = [](const char* why) { throw Error(ErrorCode::kUsage, why); };
  if (conversation.turns.empty() || conversation.turns.back().role != Role::kUser)
    refuse("a conversation must end with a message of the user");
  bool begun = false;
  for (const Turn& turn : conversation.turns) {
    if (turn.role == Role::kSystem && begun) {
      refuse(
          "a system message must stand before all other messages: the package's conversation template has no "
          "place for it in the middle of a conversation");
    }
    begun |= turn.role != Role::kSystem;
    for (const Part& part : turn.parts) {
      if (turn.role != Role::kUser && !std::holds_alternative<std::string>(part))
        refuse("only the user's messages may contain media");
    }
  }
}

std::string text_of(const Turn& turn) {
  std::string out;
  for (const Part& part : turn.parts) out += std::get<std::string>(part);
  return out;
}

// The conversation's own; nullopt when it has none.
std::optional<std::string> given_system_message(const Conversation& conversation) {
  std::optional<std::string> message = conversation.system;
  for (const Turn& turn : conversation.turns) {
    if (turn.role != Role::kSystem) continue;
    const std::string text = text_of(turn);
    message = message && !message->empty() && !text.empty() ? *message + "\n\n" + text
                                                            : message.value_or("") + text;
  }
  return message;
}

// The system segment; empty when there is nothing to say.
std::string system_text(const Conversation& conversation, const package::ConvTemplate& conv_template) {
  const std::optional<std::string> given = given_system_message(conversation);
  const std::string frame = without_functions(conv_template.system_template, conv_template);
  if (frame.find(kSystemPlaceholder) == std::string::npos) {
    if (given.value_or("").empty()) return frame;
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = "the package's template has no place for a system message",
                        .source = std::string(package::kChatConfigFile),
                        .field = "conv_template.system_template",
                        .expected = "a text with {system_message}",
                        .actual = '"' + printable(frame, 80) + '"',
                        .hint = "leave the system message out"});
  }
  const std::string message = given.value_or(conv_template.system_message);
  if (message.empty()) return "";
  const std::vector<std::string> pieces = split_template(frame, kSystemPlaceholder);
  std::string out = pieces.front();
  for (size_t i = 1; i < pieces.size(); ++i) out += message + pieces[i];
  return out;
}

void append_turn(Builder& builder, const Turn& turn, const package::ConvTemplate& conv_template,
                 bool with_role) {
  const bool user = turn.role == Role::kUser;
  const std::string role = user ? "user" : "assistant";
  if (with_role) {
    builder.text(conv_template.role(role));
    builder.text(conv_template.role_content_sep);
  }
  const std::vector<std::string> pieces =
      split_template(without_functions(conv_template.role_template(role), conv_template),
                     user ? kUserPlaceholder : kAssistantPlaceholder);
  builder.text(pieces.front());
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (!user && conv_template.strip_reasoning_in_history) {
      builder.text(without_reasoning(text_of(turn)));
    } else {
      for (const Part& part : turn.parts) {
        if (const auto* text = std::get_if<std::string>(&part)) {
          builder.text(*text);
        } else {
          builder.media(std::get<std::shared_ptr<const Media>>(part));
        }
      }
    }
    builder.text(pieces[i]);
  }
  if (!conv_template.seps.empty())
    builder.text(user ? conv_template.seps.front() : conv_template.seps.back());
}

// The messages that the template begins every conversation with; read_conv_template has checked them.
std::vector<Turn> first_turns(const package::ConvTemplate& conv_template) {
  std::vector<Turn> out;
  for (const Json& message : conv_template.messages) {
    out.push_back({.role = message[0] == "user" ? Role::kUser : Role::kAssistant,
                   .parts = {message[1].get<std::string>()}});
  }
  return out;
}

}  // namespace

int64_t Prompt::media_tokens() const {
  int64_t count = 0;
  for (const MediaSpan& span : media) count += span.rows;
  return count;
}

Prompt build_prompt(const Conversation& conversation, const package::ConvTemplate& conv_template,
                    const contract::Named<contract::Input>& inputs, const Encode& encode,
                    const MediaRows& rows) {
  check(conversation);
  Builder builder(inputs, encode, rows);
  builder.token_ids(conv_template.system_prefix_token_ids);
  const std::string system = system_text(conversation, conv_template);
  builder.text(system);
  bool with_role = conv_template.add_role_after_system_message || system.empty();
  std::vector<Turn> turns = first_turns(conv_template);
  turns.insert(turns.end(), conversation.turns.begin(), conversation.turns.end());
  for (const Turn& turn : turns) {
    if (turn.role == Role::kSystem) continue;
    append_turn(builder, turn, conv_template, with_role);
    with_role = true;
  }
  builder.text(conv_template.role("assistant"));
  builder.text(conv_template.role_empty_sep);
  builder.flush();
  builder.drop_repeated_prefix(conv_template.system_prefix_token_ids.size());
  return builder.take();
}

std::vector<Chunk> plan_chunks(const Prompt& prompt, int64_t begin, int64_t chunk_size) {
  std::vector<Chunk> chunks;
  while (begin < prompt.size()) {
    int64_t end = std::min(begin + chunk_size, prompt.size());
    for (const MediaSpan& span : prompt.media) {
      const bool divided = span.begin < end && span.begin + span.rows > end;
      if (divided && span.rows <= chunk_size && span.begin > begin) end = span.begin;
    }
    chunks.push_back({begin, end});
    begin = end;
  }
  return chunks;
}

int64_t common_prefix(std::span<const int32_t> a, std::span<const MediaSpan> a_media,
                      std::span<const int32_t> b, std::span<const MediaSpan> b_media) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  int64_t length = ends.first - a.begin();
  const size_t spans = std::max(a_media.size(), b_media.size());
  for (size_t i = 0; i < spans; ++i) {
    const MediaSpan* x = i < a_media.size() ? &a_media[i] : nullptr;
    const MediaSpan* y = i < b_media.size() ? &b_media[i] : nullptr;
    const bool same = x != nullptr && y != nullptr && x->begin == y->begin && x->rows == y->rows &&
                      x->media->input == y->media->input && x->media->sha256 == y->media->sha256;
    if (same && x->begin + x->rows <= length) continue;
    // From the first span that is not shared in full, nothing is.
    if (x != nullptr) length = std::min(length, x->begin);
    if (y != nullptr) length = std::min(length, y->begin);
    break;
  }
  return length;
}

}  // namespace dovetail::engine
