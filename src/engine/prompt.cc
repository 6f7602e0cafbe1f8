#include "engine/prompt.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace dovetail::engine {
namespace {

constexpr std::string_view kSystemPlaceholder = "{system_message}";
constexpr std::string_view kUserPlaceholder = "{user_message}";
constexpr std::string_view kAssistantPlaceholder = "{assistant_message}";

// The text before and after a placeholder; a template without it keeps everything in front.
struct Frame {
  std::string before;
  std::string after;
};

Frame split_template(const std::string& text, std::string_view placeholder) {
  const size_t at = text.find(placeholder);
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + placeholder.size())};
}

// Appends segments to a prompt. Text is collected until a medium or the end of a message comes, so that
// neighbouring pieces are tokenized together.
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
  if (conversation.turns.empty() || conversation.turns.back().role != Role::kUser) {
    throw Error(ErrorCode::kUsage, "a conversation must end with a message of the user");
  }
  for (const Turn& turn : conversation.turns) {
    for (const Part& part : turn.parts) {
      if (turn.role == Role::kAssistant && !std::holds_alternative<std::string>(part)) {
        throw Error(ErrorCode::kUsage, "only the user's messages may contain media");
      }
    }
  }
}

// The system segment; empty when there is nothing to say.
std::string system_text(const Conversation& conversation, const package::ConvTemplate& conv_template) {
  const std::string& message = conversation.system ? *conversation.system : conv_template.system_message;
  const bool has_placeholder = conv_template.system_template.find(kSystemPlaceholder) != std::string::npos;
  if (has_placeholder && message.empty()) return "";
  const Frame frame = split_template(conv_template.system_template, kSystemPlaceholder);
  return has_placeholder ? frame.before + message + frame.after : frame.before;
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
  builder.flush();
  bool role_omitted = !conv_template.add_role_after_system_message && !system.empty();
  for (const Turn& turn : conversation.turns) {
    const bool user = turn.role == Role::kUser;
    const std::string role = user ? "user" : "assistant";
    if (!role_omitted) {
      builder.text(conv_template.role(role));
      builder.text(conv_template.role_content_sep);
    }
    role_omitted = false;
    const Frame frame =
        split_template(conv_template.role_template(role), user ? kUserPlaceholder : kAssistantPlaceholder);
    builder.text(frame.before);
    for (const Part& part : turn.parts) {
      if (const auto* text = std::get_if<std::string>(&part)) {
        builder.text(*text);
      } else {
        builder.media(std::get<std::shared_ptr<const Media>>(part));
      }
    }
    builder.text(frame.after);
    if (!conv_template.seps.empty())
      builder.text(user ? conv_template.seps.front() : conv_template.seps.back());
    builder.flush();
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
