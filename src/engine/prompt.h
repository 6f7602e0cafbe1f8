// From a conversation to token ids (docs/engine.md, "Prompt assembly").
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/manifest.h"
#include "engine/conversation.h"
#include "package/chat_config.h"

namespace dovetail::engine {

// The positions that an adapter's rows fill.
struct MediaSpan {
  int64_t begin = 0;
  int64_t rows = 0;
  std::shared_ptr<const Media> media;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> modality_ids;  // 1 where an adapter's row goes, else 0
  std::vector<MediaSpan> media;       // in order

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  int64_t media_tokens() const;
};

// Token ids of a text; nothing is added. Special tokens written in the text are recognised.
using Encode = std::function<std::vector<int32_t>(const std::string& text)>;
// How many rows a medium will fill.
using MediaRows = std::function<int64_t(const Media& media)>;

// `inputs` are those of the manifest's task. Throws Error kUsage for a conversation that is empty, does not
// end with a user's turn, or has media where they can't be, and kUnsupported for media that no input takes.
Prompt build_prompt(const Conversation& conversation, const package::ConvTemplate& conv_template,
                    const contract::Named<contract::Input>& inputs, const Encode& encode,
                    const MediaRows& rows);

// [begin, end) of a prompt.
struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;
};

// Cuts the positions from `begin` on into chunks of at most `chunk_size`. A media span that fits into one
// chunk is never divided: when it would be, the chunk ends before it.
std::vector<Chunk> plan_chunks(const Prompt& prompt, int64_t begin, int64_t chunk_size);

// How many leading positions two token sequences share, media included: the same ids and, where an adapter's
// rows stand, the same media in full. Never ends inside a span.
int64_t common_prefix(std::span<const int32_t> a, std::span<const MediaSpan> a_media,
                      std::span<const int32_t> b, std::span<const MediaSpan> b_media);

}  // namespace dovetail::engine
