// SentencePiece's model files (tokenizer.model): a Protocol Buffers message with the pieces, how the model
// was trained and how it normalizes text. Source: https://github.com/google/sentencepiece,
// "src/sentencepiece_model.proto" (names and numbers of fields).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::convert {

struct SentencePieceModel {
  struct Piece {
    std::string text;
    float score = 0;
    int64_t type = 1;  // PieceType
  };

  std::vector<Piece> pieces;  // by id
  int64_t model_type = 1;     // kUnigram, kBpe; others are word and character models
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string begin_piece = "<s>";
  std::string charsmap;  // the compiled normalization of characters; empty: none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  static constexpr int64_t kUnigram = 1;
  static constexpr int64_t kBpe = 2;
};

// True when the file begins with a piece, as these models do: then it is one, be it damaged.
bool begins_as_sentencepiece(std::string_view file);

// Views of nothing outside: the model is copied. Throws Error kMalformed with the byte at which `file` is no
// such message, kUnsupported when it is a vocabulary of tiktoken, which goes by the same name; `source` names
// it.
SentencePieceModel parse_sentencepiece(std::string_view file, const std::string& source);

}  // namespace dovetail::convert
