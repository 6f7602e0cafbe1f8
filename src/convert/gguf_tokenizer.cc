#include "convert/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "convert/gguf_metadata.h"

namespace dovetail::convert {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr int64_t kMaxTokens = 1 << 22;
constexpr size_t kMaxPieceBytes = 256;  // of a piece that merges are sought for

enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Patterns of the checkpoints' own tokenizer.json files.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";

// How a text is cut before merging, by the name of "tokenizer.ggml.pre".
struct Cutting {
  std::string_view name;
  std::vector<std::string_view> patterns;  // one after the other, each on the pieces of the one before
  bool whole_tokens = false;               // a piece that is a token is not built from merges
};

const std::vector<Cutting>& cuttings() {
  static const std::vector<Cutting> known{
      {"default", {kPunctuation, kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"gpt-2", {kGpt2}},
      {"olmo", {kGpt2}},
      {"smollm", {R"(\p{N})", kGpt2}},
      {"starcoder", {R"(\p{N})", kGpt2}},
      {"refact", {R"(\p{N})", kGpt2}},
      {"command-r", {R"(\p{N})", kGpt2}},
      {"llama-bpe", {kLlama3}, true},
      {"llama3", {kLlama3}, true},
      {"llama-v3", {kLlama3}, true},
      {"falcon3", {kLlama3}, true},
      {"smaug-bpe", {kLlama3}},
      {"dbrx", {kLlama3}},
      {"qwen2", {kQwen2}},
      {"stablelm2", {kQwen2}},
      {"deepseek-r1-qwen", {kQwen2}},
      {"tekken", {kTekken}, true},
  };
  return known;
}

bool only_spaces(std::string_view text) {
  return !text.empty() && text.find_first_not_of(' ') == std::string_view::npos;
}

std::string with_marks(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? kSpace : std::string_view(&c, 1);
  return out;
}

Json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

class Builder {
 public:
  Builder(const Gguf& gguf, std::vector<std::string>& notes)
      : gguf_(gguf), notes_(notes), tokens_(gguf, "tokenizer.ggml.", problems_) {}

  std::string build() {
    const std::string kind = tokens_.text("model");
    read_tokens(kind);
    throw_problems();
    Json out = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    out["added_tokens"] = added_tokens();
    if (kind == "llama" || kind == "gemma4") {
      with_byte_fallback(out, kind == "llama" ? scored_merges() : listed_merges());
    } else if (kind == "gpt2") {
      byte_level(out);
    } else {
      refuse("model", "this kind of vocabulary is not supported", "llama, gpt2, gemma4", kind);
    }
    throw_problems();
    return out.dump();
  }

 private:
  [[noreturn]] void refuse(const std::string& key, std::string message, std::string expected,
                           const std::string& actual) const {
    throw Error(ErrorCode::kUnsupported, Problem{.message = std::move(message),
                                                 .source = gguf_.source(),
                                                 .field = "\"tokenizer.ggml." + key + "\"",
                                                 .expected = std::move(expected),
                                                 .actual = printable(actual, 40)});
  }

  void throw_problems() {
    if (!problems_.empty()) throw Error(ErrorCode::kMalformed, std::move(problems_));
  }

  void read_tokens(const std::string& kind) {
    const GgufArray* list = tokens_.array("tokens", GgufType::kString);
    if (list == nullptr) {
      if (!tokens_.has("tokens")) tokens_.problem("tokens", "the file has no vocabulary");
      return;
    }
    if (list->count > kMaxTokens) {
      tokens_.problem("tokens", "too many tokens", "at most " + std::to_string(kMaxTokens),
                      std::to_string(list->count));
      return;
    }
    types_.assign(static_cast<size_t>(list->count), kNormal);
    if (const GgufArray* types = tokens_.array("token_type", GgufType::kInt32)) {
      if (types->count == list->count) {
        types_ = *types->integers();
      } else {
        tokens_.problem("token_type", "not one for each token", std::to_string(list->count),
                        std::to_string(types->count));
      }
    }
    int64_t repeated = 0;
    for (size_t id = 0; id < list->strings.size(); ++id) {
      const std::string_view text = list->strings[id];
      if (find_invalid_utf8(text) != std::string_view::npos) {
        tokens_.problem("tokens[" + std::to_string(id) + "]", "is not UTF-8", {},
                        "\"" + printable(text, 40) + "\"");
        if (problems_.size() > 20) return;
        continue;
      }
      if (types_[id] < kNormal || types_[id] > kByte) types_[id] = kNormal;
      // A run of spaces that is a token of its own is built from merges, as in the checkpoint.
      spaces_.push_back(kind != "gpt2" && types_[id] == kUserDefined && only_spaces(text));
      texts_.push_back(spaces_.back() ? with_marks(text) : std::string(text));
      if (!ids_.emplace(texts_.back(), static_cast<int64_t>(id)).second) ++repeated;
    }
    if (repeated > 0) {
      notes_.push_back(std::to_string(repeated) +
                       " tokens of the vocabulary repeat others; text can't use them");
    }
  }

  bool is_first(size_t id) const { return ids_.at(texts_[id]) == static_cast<int64_t>(id); }

  Json added_tokens() const {
    Json out = Json::array();
    for (size_t id = 0; id < texts_.size(); ++id) {
      const bool special = types_[id] == kControl || types_[id] == kUnknown;
      if ((!special && types_[id] != kUserDefined) || spaces_[id] || texts_[id].empty() || !is_first(id))
        continue;
      out.push_back({{"id", id},
                     {"content", texts_[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
    }
    return out;
  }

  Json vocabulary() const {
    Json out = Json::object();
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (is_first(id)) out.get_ref<Json::object_t&>().emplace_back(texts_[id], Json(id));
    }
    return out;
  }

  // A leading token of every text; chat adds it from its template.
  Json post_processor(bool by_default) {
    if (!tokens_.boolean("add_bos_token", by_default) || !tokens_.has("bos_token_id")) return nullptr;
    const int64_t id = tokens_.integer("bos_token_id", 0, static_cast<int64_t>(texts_.size()) - 1);
    if (static_cast<size_t>(id) >= texts_.size()) return nullptr;
    const std::string& text = texts_[static_cast<size_t>(id)];
    const Json special = {{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
    const auto sequence = [](const char* name, int type) {
      return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
    };
    return {{"type", "TemplateProcessing"},
            {"single", {special, sequence("A", 0)}},
            {"pair", {special, sequence("A", 0), special, sequence("B", 1)}},
            {"special_tokens", {{text, {{"id", text}, {"ids", {id}}, {"tokens", {text}}}}}}};
  }

  void with_byte_fallback(Json& out, Json merges) {
    const bool prefix = tokens_.boolean("add_space_prefix", true);
    const Json marks = replace(" ", kSpace);
    out["normalizer"] = marks;
    if (prefix) {
      out["normalizer"] = {{"type", "Sequence"},
                           {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpace}}, marks}}};
    }
    out["pre_tokenizer"] = nullptr;
    out["post_processor"] = post_processor(true);
    Json decoders = {replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    out["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    Json unknown = nullptr;
    if (tokens_.has("unknown_token_id")) {
      const auto id = static_cast<size_t>(tokens_.integer("unknown_token_id", 0, kMaxTokens));
      if (id < texts_.size()) unknown = texts_[id];
    }
    out["model"] = model(unknown, true, false, std::move(merges));
  }

  void byte_level(Json& out) {
    const std::string name = tokens_.text("pre", "default");
    const auto cutting = std::find_if(cuttings().begin(), cuttings().end(),
                                      [&](const Cutting& entry) { return entry.name == name; });
    if (cutting == cuttings().end()) {
      std::string known;
      for (const Cutting& entry : cuttings()) known += (known.empty() ? "" : ", ") + std::string(entry.name);
      refuse("pre", "this way of cutting texts into words is not known", known, name);
    }
    if (!tokens_.has("pre")) {
      notes_.push_back("the file does not say how texts are cut into words; as llama.cpp's default does");
    }
    out["normalizer"] = nullptr;
    if (name == "qwen2" || name == "deepseek-r1-qwen") out["normalizer"] = {{"type", "NFC"}};
    Json steps = Json::array();
    for (const std::string_view pattern : cutting->patterns) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    const Json bytes = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    steps.push_back(bytes);
    out["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    // Llama 3's files say it not; llama.cpp adds the token for them all the same.
    out["post_processor"] = post_processor(cutting->patterns.front() == kLlama3);
    out["decoder"] = bytes;
    out["model"] = model(nullptr, false, cutting->whole_tokens, listed_merges());
  }

  Json model(const Json& unknown, bool fallback, bool whole_tokens, Json merges) const {
    Json out = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", unknown},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", fallback},
                {"byte_fallback", fallback},
                {"ignore_merges", whole_tokens}};
    out["vocab"] = vocabulary();
    out["merges"] = std::move(merges);
    return out;
  }

  // "left right", where a space inside a part is written U+0120.
  Json listed_merges() {
    Json out = Json::array();
    const GgufArray* list = tokens_.array("merges", GgufType::kString);
    if (list == nullptr) {
      if (!tokens_.has("merges")) tokens_.problem("merges", "the file has no merges of its vocabulary");
      return out;
    }
    for (size_t i = 0; i < list->strings.size() && problems_.size() <= 20; ++i) {
      const std::string_view text = list->strings[i];
      // The first part may begin with the space that separates them.
      const size_t space = text.find(' ', 1);
      const auto known = [&](std::string_view part) { return ids_.contains(std::string(part)); };
      if (space == std::string_view::npos || find_invalid_utf8(text) != std::string_view::npos ||
          !known(text.substr(0, space)) || !known(text.substr(space + 1)) ||
          !known(std::string(text.substr(0, space)) + std::string(text.substr(space + 1)))) {
        tokens_.problem("merges[" + std::to_string(i) + "]", "is no pair of tokens that makes a token", {},
                        "\"" + printable(text, 60) + "\"");
        continue;
      }
      out.push_back({text.substr(0, space), text.substr(space + 1)});
    }
    return out;
  }

  struct Merge {
    float score;
    size_t left_bytes, split;  // bytes of the left part, if the piece is a run of spaces
    size_t id;                 // of the result
    int64_t left, right;
  };

  // SentencePiece joins the two neighbours whose joint piece has the highest score; that is what BPE does
  // with every way to divide a piece, in the order of the scores. Runs of spaces are joined before all else
  // and from the left, so that the longest one comes out.
  Json scored_merges() {
    Json out = Json::array();
    const GgufArray* list = tokens_.array("scores", GgufType::kFloat32);
    if (list == nullptr || list->count != static_cast<int64_t>(texts_.size())) {
      tokens_.problem("scores", "not one for each token", std::to_string(texts_.size()),
                      list == nullptr ? "none" : std::to_string(list->count));
      return out;
    }
    const std::vector<float> scores = *list->floats();
    std::unordered_map<std::string_view, int64_t> parts;
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (is_part(id)) parts.emplace(texts_[id], static_cast<int64_t>(id));
    }
    std::vector<Merge> merges;
    for (size_t id = 0; id < texts_.size(); ++id) {
      const std::string_view text = texts_[id];
      if (!is_part(id) || text.size() > kMaxPieceBytes || !(scores[id] == scores[id])) continue;
      for (size_t at = utf8_character_bytes(text); at < text.size();
           at += utf8_character_bytes(text.substr(at))) {
        const auto left = parts.find(text.substr(0, at));
        if (left == parts.end()) continue;
        const auto right = parts.find(text.substr(at));
        if (right == parts.end()) continue;
        merges.push_back({.score = scores[id],
                          .left_bytes = spaces_[id] ? at : 0,
                          .split = at,
                          .id = id,
                          .left = left->second,
                          .right = right->second});
      }
    }
    std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      return std::tuple(b.left_bytes, b.score, a.id, a.left, a.right) <
             std::tuple(a.left_bytes, a.score, b.id, b.left, b.right);
    });
    for (const Merge& merge : merges)
      out.push_back({std::string_view(texts_[merge.id]).substr(0, merge.split),
                     std::string_view(texts_[merge.id]).substr(merge.split)});
    return out;
  }

  bool is_part(size_t id) const {
    return (types_[id] == kNormal || spaces_[id]) && !texts_[id].empty() && is_first(id);
  }

  const Gguf& gguf_;
  std::vector<std::string>& notes_;
  std::vector<Problem> problems_;
  GgufMetadata tokens_;
  std::vector<std::string> texts_;
  std::vector<int64_t> types_;
  std::vector<bool> spaces_;
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace

std::string gguf_tokenizer_json(const Gguf& gguf, std::vector<std::string>& notes) {
  return Builder(gguf, notes).build();
}

}  // namespace dovetail::convert
