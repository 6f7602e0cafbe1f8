#include "convert/gguf_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "convert/gguf_metadata.h"
#include "convert/pieces.h"

namespace dovetail::convert {
namespace {

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

class Builder {
 public:
  Builder(const Gguf& gguf, std::vector<std::string>& notes)
      : gguf_(gguf), notes_(notes), tokens_(gguf, "tokenizer.ggml.", problems_) {}

  std::string build() {
    const std::string kind = tokens_.text("model");
    read_tokens(kind);
    throw_problems();
    Json out = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    out["added_tokens"] = pieces_.added_tokens();
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
    if (list->count > kMaxPieces) {
      tokens_.problem("tokens", "too many tokens", "at most " + std::to_string(kMaxPieces),
                      std::to_string(list->count));
      return;
    }
    std::vector<int64_t> types(static_cast<size_t>(list->count), kNormal);
    if (const GgufArray* given = tokens_.array("token_type", GgufType::kInt32)) {
      if (given->count == list->count) {
        types = *given->integers();
      } else {
        tokens_.problem("token_type", "not one for each token", std::to_string(list->count),
                        std::to_string(given->count));
      }
    }
    for (size_t id = 0; id < list->strings.size(); ++id) {
      const std::string_view text = list->strings[id];
      if (find_invalid_utf8(text) != std::string_view::npos) {
        tokens_.problem("tokens[" + std::to_string(id) + "]", "is not UTF-8", {},
                        "\"" + printable(text, 40) + "\"");
        if (problems_.size() > 20) return;
        continue;
      }
      pieces_.add(text, types[id], kind != "gpt2");
    }
    if (pieces_.repeated() > 0) {
      notes_.push_back(std::to_string(pieces_.repeated()) +
                       " tokens of the vocabulary repeat others; text can't use them");
    }
  }

  // A leading token of every text; chat adds it from its template.
  Json post_processor(bool by_default) {
    if (!tokens_.boolean("add_bos_token", by_default) || !tokens_.has("bos_token_id")) return nullptr;
    const int64_t id = tokens_.integer("bos_token_id", 0, static_cast<int64_t>(pieces_.size()) - 1);
    if (static_cast<size_t>(id) >= pieces_.size()) return nullptr;
    return leading_token(id, pieces_.text(static_cast<size_t>(id)));
  }

  void with_byte_fallback(Json& out, Json merges) {
    const bool prefix = tokens_.boolean("add_space_prefix", true);
    const Json marks = replace_step(" ", kSpaceMark);
    out["normalizer"] = marks;
    if (prefix) {
      out["normalizer"] = {{"type", "Sequence"},
                           {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpaceMark}}, marks}}};
    }
    out["pre_tokenizer"] = nullptr;
    out["post_processor"] = post_processor(true);
    out["decoder"] = mark_decoder(prefix);
    Json unknown = nullptr;
    if (tokens_.has("unknown_token_id")) {
      const auto id = static_cast<size_t>(tokens_.integer("unknown_token_id", 0, kMaxPieces));
      if (id < pieces_.size()) unknown = pieces_.text(id);
    }
    out["model"] = bpe_model({.unknown = unknown, .byte_fallback = true, .fuse_unknown = true}, pieces_.ids(),
                             std::move(merges));
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
    out["model"] = bpe_model({.whole_tokens = cutting->whole_tokens}, pieces_.ids(), listed_merges());
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
      const auto known = [&](std::string_view part) { return pieces_.contains(std::string(part)); };
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

  Json scored_merges() {
    const GgufArray* list = tokens_.array("scores", GgufType::kFloat32);
    if (list == nullptr || list->count != static_cast<int64_t>(pieces_.size())) {
      tokens_.problem("scores", "not one for each token", std::to_string(pieces_.size()),
                      list == nullptr ? "none" : std::to_string(list->count));
      return Json::array();
    }
    return pieces_.scored_merges(*list->floats());
  }

  const Gguf& gguf_;
  std::vector<std::string>& notes_;
  std::vector<Problem> problems_;
  GgufMetadata tokens_;
  PieceVocabulary pieces_;
};

}  // namespace

std::string gguf_tokenizer_json(const Gguf& gguf, std::vector<std::string>& notes) {
  return Builder(gguf, notes).build();
}

}  // namespace dovetail::convert
