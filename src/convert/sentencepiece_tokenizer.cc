#include "convert/sentencepiece_tokenizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "convert/pieces.h"
#include "media/base64.h"

namespace dovetail::convert {
namespace {

constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kAddedTokens = "added_tokens.json";

bool flag(const Json& object, const char* name, bool fallback) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : fallback;
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

class Builder {
 public:
  Builder(const SentencePieceModel& model, const std::string& source, const Json& config, const Json& added,
          std::vector<std::string>& notes)
      : model_(model), source_(source), config_(config), added_(added), notes_(notes) {}

  std::string build() {
    check_kind();
    const bool bpe = model_.model_type == SentencePieceModel::kBpe;
    read_pieces(bpe);
    read_added();
    if (!problems_.empty()) throw Error(ErrorCode::kMalformed, std::move(problems_));
    note_limits(bpe);
    Json out = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    out["added_tokens"] = tokens(bpe);
    out["normalizer"] = normalizer();
    out["pre_tokenizer"] = nullptr;
    if (!legacy() && model_.add_dummy_prefix) {
      out["pre_tokenizer"] = {
          {"type", "Metaspace"}, {"replacement", kSpaceMark}, {"prepend_scheme", "first"}, {"split", false}};
    }
    out["post_processor"] = post_processor();
    out["decoder"] = mark_decoder(model_.add_dummy_prefix);
    out["model"] = bpe ? bpe_part() : unigram_part();
    return out.dump();
  }

 private:
  void refuse(const std::string& what, const std::string& actual) const {
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = what,
                        .source = source_,
                        .expected = "a BPE or unigram model with spaces before words",
                        .actual = actual,
                        .hint = "take a checkpoint that has tokenizer.json too"});
  }

  void check_kind() const {
    if (model_.model_type != SentencePieceModel::kBpe && model_.model_type != SentencePieceModel::kUnigram)
      refuse("this kind of SentencePiece model can't be converted",
             model_.model_type == 3   ? "a word model"
             : model_.model_type == 4 ? "a character model"
                                      : "kind " + std::to_string(model_.model_type));
    if (model_.whitespace_as_suffix) refuse("spaces stand behind words", "treat_whitespace_as_suffix");
    if (!model_.escape_whitespaces) refuse("spaces have no mark", "escape_whitespaces: false");
  }

  void problem(std::string source, std::string field, std::string message, std::string expected = {},
               std::string actual = {}) {
    problems_.push_back({.message = std::move(message),
                         .source = std::move(source),
                         .field = std::move(field),
                         .expected = std::move(expected),
                         .actual = std::move(actual)});
  }

  void read_pieces(bool bpe) {
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      const SentencePieceModel::Piece& piece = model_.pieces[id];
      if (pieces_.contains(piece.text)) {
        problem(source_, "piece " + std::to_string(id), "repeats an earlier piece", {},
                "\"" + printable(piece.text, 40) + "\"");
        if (problems_.size() > 20) return;
      }
      pieces_.add(piece.text, piece.type, bpe);
      if (piece.type == kNormal) {
        lowest_ = any_normal_ ? std::min(lowest_, piece.score) : piece.score;
        highest_ = any_normal_ ? std::max(highest_, piece.score) : piece.score;
        any_normal_ = true;
      }
      if (piece.type == kUnknown) {
        if (unknown_) problem(source_, "piece " + std::to_string(id), "is a second unknown piece");
        unknown_ = id;
      }
      unused_ += piece.type == kUnused;
      user_defined_ |= piece.type == kUserDefined && !pieces_.spaces(id);
    }
    if (!unknown_) problem(source_, "", "has no unknown piece");
  }

  // Tokens that the checkpoint's documents add behind the pieces, or name among them.
  void read_added() {
    for (const char* name : kNamedTokens) {
      if (config_.contains(name)) special_.insert(token_text(config_[name]).value_or(""));
    }
    if (const auto list = config_.find("additional_special_tokens");
        list != config_.end() && list->is_array()) {
      for (const Json& token : *list) special_.insert(token_text(token).value_or(""));
    }
    if (const auto list = config_.find("added_tokens_decoder"); list != config_.end() && list->is_object()) {
      for (const auto& [key, value] : list->items()) {
        const std::string field = "added_tokens_decoder[\"" + printable(key, 20) + "\"]";
        const bool digits =
            !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
        const std::string text = token_text(value).value_or("");
        if (!digits || text.empty()) {
          problem(kTokenizerConfig, field, "is no token", "an id and its text");
          continue;
        }
        Json token = added_token(std::stoll(key), text, flag(value, "special", false));
        for (const char* name : {"single_word", "lstrip", "rstrip"}) token[name] = flag(value, name, false);
        add(kTokenizerConfig, field, std::move(token));
      }
    }
    for (const auto& [text, id] : added_.items()) {
      const std::string field = "\"" + printable(text, 40) + "\"";
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMaxPieces ||
          text.empty()) {
        problem(kAddedTokens, field, "is no token", "a text and its id", printable(id.dump(), 40));
      } else {
        add(kAddedTokens, field, added_token(id.get<int64_t>(), text, special_.contains(text)));
      }
    }
    int64_t next = static_cast<int64_t>(pieces_.size());
    for (const auto& [id, token] : more_) {
      if (id < static_cast<int64_t>(pieces_.size())) continue;
      if (id != next) {
        problem(sources_.at(id), "token " + std::to_string(id), "the ids of added tokens leave a hole",
                std::to_string(next), std::to_string(id));
        break;
      }
      ++next;
    }
  }

  void add(const char* source, const std::string& field, Json token) {
    const auto id = token["id"].get<int64_t>();
    const auto text = token["content"].get<std::string>();
    const auto taken = more_.find(id);
    const std::string other = taken != more_.end() ? taken->second["content"].get<std::string>()
                              : id < static_cast<int64_t>(pieces_.size())
                                  ? pieces_.text(static_cast<size_t>(id))
                                  : text;
    const bool elsewhere = id >= static_cast<int64_t>(pieces_.size()) && pieces_.contains(text);
    if (other != text || elsewhere) {
      problem(source, field,
              elsewhere ? "the model has a piece of this text" : "the model has another piece of this id",
              elsewhere ? "the piece's id" : "\"" + printable(other, 40) + "\"",
              elsewhere ? std::to_string(id) : "\"" + printable(text, 40) + "\"");
      return;
    }
    if (taken != more_.end()) return;
    if (const auto [first, fresh] = ids_.emplace(text, id); !fresh) {
      problem(source, field,
              "\"" + printable(text, 40) + "\" stands under two ids, " + std::to_string(first->second) +
                  " and " + std::to_string(id),
              "one id for each text");
      return;
    }
    more_.emplace(id, std::move(token));
    sources_.emplace(id, source);
  }

  void note_limits(bool bpe) {
    if (bpe && unused_ > 0) {
      notes_.push_back(source_ + " has " + std::to_string(unused_) +
                       " unused pieces: a text that others are made from may have other ids");
    }
    if (bpe && user_defined_ && (model_.remove_extra_whitespaces || model_.add_dummy_prefix)) {
      notes_.push_back("text behind a user-defined piece of " + source_ +
                       " begins as a new text does, as with transformers; SentencePiece itself goes on");
    }
  }

  // In a unigram model user-defined pieces win by their score.
  Json tokens(bool bpe) const {
    std::map<int64_t, Json> out;
    for (Json& token : pieces_.added_tokens()) {
      const auto id = token["id"].get<int64_t>();
      if (bpe || token["special"].get<bool>()) out.emplace(id, std::move(token));
    }
    for (const auto& [id, token] : more_) out[id] = token;
    Json list = Json::array();
    for (auto& [id, token] : out) {
      if (special_.contains(token["content"].get<std::string>())) token["special"] = true;
      list.push_back(std::move(token));
    }
    return list;
  }

  // Transformers puts a space before every text between two special tokens, unless this is false.
  bool legacy() const { return flag(config_, "legacy", true); }

  Json normalizer() const {
    Json steps = Json::array();
    const auto replace_pattern = [&](const char* pattern, const char* to) {
      steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", to}});
    };
    if (!model_.charsmap.empty()) {
      const auto* bytes = reinterpret_cast<const std::byte*>(model_.charsmap.data());
      steps.push_back({{"type", "Precompiled"},
                       {"precompiled_charsmap", media::encode_base64({bytes, model_.charsmap.size()})}});
    }
    if (model_.remove_extra_whitespaces) {
      replace_pattern("\\A +|[ \xE2\x96\x81]+\\z", "");
      replace_pattern(" {2,}", " ");
    }
    const bool marks = legacy() || !model_.add_dummy_prefix;
    if (marks && model_.add_dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    if (marks) steps.push_back(replace_step(" ", kSpaceMark));
    if (steps.empty()) return nullptr;
    return {{"type", "Sequence"}, {"normalizers", steps}};
  }

  Json post_processor() const {
    std::string begin = model_.begin_piece;
    if (const auto found = config_.find("bos_token"); found != config_.end())
      begin = token_text(*found).value_or("");
    if (!flag(config_, "add_bos_token", true) || begin.empty()) return nullptr;
    for (size_t id = 0; id < pieces_.size(); ++id) {
      if (pieces_.text(id) == begin) return leading_token(static_cast<int64_t>(id), begin);
    }
    for (const auto& [id, token] : more_) {
      if (token["content"] == begin) return leading_token(id, begin);
    }
    return nullptr;
  }

  Json bpe_part() const {
    std::vector<float> scores;
    for (const SentencePieceModel::Piece& piece : model_.pieces) scores.push_back(piece.score);
    return bpe_model(
        {.unknown = pieces_.text(*unknown_), .byte_fallback = model_.byte_fallback, .fuse_unknown = true},
        pieces_.ids(), pieces_.scored_merges(scores));
  }

  Json unigram_part() const {
    Json list = Json::array();
    for (const SentencePieceModel::Piece& piece : model_.pieces) {
      double score = piece.score;
      if (piece.type == kUserDefined) {
        score = static_cast<double>(piece.text.size()) * highest_ - 0.1;
      } else if (piece.type == kByte || piece.type == kUnused) {
        // Never found in a text: any way to take it apart is better.
        score = static_cast<double>(characters(piece.text)) * std::min(lowest_, 0.0f) - 1;
      }
      list.push_back({piece.text, score});
    }
    return {
        {"type", "Unigram"}, {"unk_id", *unknown_}, {"vocab", list}, {"byte_fallback", model_.byte_fallback}};
  }

  const SentencePieceModel& model_;
  const std::string& source_;
  const Json& config_;
  const Json& added_;
  std::vector<std::string>& notes_;
  std::vector<Problem> problems_;
  PieceVocabulary pieces_;
  std::map<int64_t, Json> more_;            // tokens of the documents, by id
  std::map<int64_t, const char*> sources_;  // of the same
  std::map<std::string, int64_t> ids_;      // of the same, by text
  std::unordered_set<std::string> special_;
  std::optional<size_t> unknown_;
  int64_t unused_ = 0;
  bool user_defined_ = false, any_normal_ = false;
  float lowest_ = 0, highest_ = 0;  // scores of normal pieces
};

}  // namespace

std::string sentencepiece_tokenizer_json(const SentencePieceModel& model, const std::string& source,
                                         const Json& tokenizer_config, const Json& added_tokens,
                                         std::vector<std::string>& notes) {
  return Builder(model, source, tokenizer_config, added_tokens, notes).build();
}

}  // namespace dovetail::convert
