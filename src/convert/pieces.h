// A vocabulary of pieces with types and scores, as SentencePiece has it, and the parts of a tokenizer.json
// that follow from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace dovetail::convert {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
inline constexpr int64_t kMaxPieces = 1 << 22;

// The tokens that tokenizer_config.json names one by one.
inline constexpr std::array<const char*, 4> kNamedTokens = {"bos_token", "eos_token", "unk_token",
                                                            "pad_token"};
// Of a token as the documents beside a tokenizer write it: "<s>", or {"content": "<s>", …}.
std::optional<std::string> token_text(const Json& value);

// Numbered as in SentencePiece's models.
enum PieceType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

class PieceVocabulary {
 public:
  // The next id. `text` is UTF-8. With `joins_spaces` a user-defined run of spaces is made by merges, as in
  // checkpoints, and not cut off before them.
  void add(std::string_view text, int64_t type, bool joins_spaces);

  size_t size() const { return texts_.size(); }
  const std::string& text(size_t id) const { return texts_[id]; }
  int64_t type(size_t id) const { return types_[id]; }
  // A user-defined run of spaces.
  bool spaces(size_t id) const { return spaces_[id]; }
  bool contains(const std::string& text) const { return ids_.contains(text); }
  // The first piece with this text counts.
  bool is_first(size_t id) const { return ids_.at(texts_[id]) == static_cast<int64_t>(id); }
  int64_t repeated() const { return static_cast<int64_t>(texts_.size() - ids_.size()); }

  // "added_tokens": what is found in a text before anything else. Special: control and unknown pieces.
  Json added_tokens() const;
  // "vocab" of a BPE model.
  Json ids() const;
  // "merges" that join what SentencePiece joins: the two neighbours whose joint piece has the highest score.
  Json scored_merges(std::span<const float> scores) const;

 private:
  bool is_part(size_t id) const;

  std::vector<std::string> texts_;
  std::vector<int64_t> types_;
  std::vector<bool> spaces_;
  std::unordered_map<std::string, int64_t> ids_;
};

Json added_token(int64_t id, const std::string& text, bool special);
Json replace_step(std::string_view from, std::string_view to);  // a normalizer or decoder

struct BpeOptions {
  Json unknown = nullptr;      // the text of the token for what has no other
  bool byte_fallback = false;  // … which is made of bytes instead
  bool fuse_unknown = false;   // a run of them is one
  bool whole_tokens = false;   // a word that is a token is not built from merges
};
Json bpe_model(const BpeOptions& options, Json ids, Json merges);

// "post_processor" that puts the token before every text.
Json leading_token(int64_t id, const std::string& text);

// "decoder" of pieces with marks and bytes; `prefix`: a text's first space is not the text's.
Json mark_decoder(bool prefix);

}  // namespace dovetail::convert
