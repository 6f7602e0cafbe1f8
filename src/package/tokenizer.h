// Text to token ids and back, as tokenizer.json says (Hugging Face `tokenizers` does the work).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "package/tokenizer_info.h"

struct DovetailTokenizer;

namespace dovetail::package {

// Cheap to copy (copies share one read-only tokenizer); all members may be called from several threads.
// The file's truncation and padding settings are not applied: the caller owns the context limit.
class Tokenizer {
 public:
  // Throws Error kNotFound, kIo, kLimit (more than 256 MiB), kMalformed.
  static Tokenizer from_file(const std::filesystem::path& path);
  // `source` names the document in errors.
  static Tokenizer from_json(std::string_view json, const std::string& source);

  // Text of special tokens inside `text` becomes those tokens. add_special_tokens also applies the file's
  // post-processor (for example a leading BOS). Throws kUsage when text is not valid UTF-8.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = false) const;

  // Ids that have no token contribute nothing; bytes that are not UTF-8 become U+FFFD.
  // Throws kUsage for a negative id.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Number of tokens, added tokens included. A model's vocab_size may be larger (padded), never smaller.
  int64_t vocab_size() const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The raw token text, for example "▁the" or "<0x0A>".
  std::optional<std::string> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  const TokenizerInfo& tokenizer_info() const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Turns the ids of one reply into text while they arrive. A piece never ends inside a character: incomplete
// UTF-8 is held back until its bytes are there, and so is a run of byte tokens ("<0x0A>") until another token
// ends it, because one bad byte changes how the whole run is decoded. All pieces together, with finish(),
// equal decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true);

  // The text that became certain with this id; often empty.
  std::string push(int32_t id);
  // What is still held back; an incomplete character becomes U+FFFD. The decoder then starts afresh.
  std::string finish();

 private:
  bool is_byte_token(int32_t id) const;

  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  // ids_[0, emitted_) is text already returned, kept as context; the rest is held back.
  std::vector<int32_t> ids_;
  size_t emitted_ = 0;
  std::string context_;  // decode(ids_[0, emitted_))
};

}  // namespace dovetail::package
