#include "convert/pieces.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/utf8.h"

namespace dovetail::convert {
namespace {

constexpr size_t kMaxPieceBytes = 256;  // of a piece that merges are sought for

bool only_spaces(std::string_view text) {
  return !text.empty() && text.find_first_not_of(' ') == std::string_view::npos;
}

bool only_marks(std::string_view text) {
  while (text.starts_with(kSpaceMark)) text.remove_prefix(kSpaceMark.size());
  return text.empty();
}

std::string with_marks(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? kSpaceMark : std::string_view(&c, 1);
  return out;
}

}  // namespace

void PieceVocabulary::add(std::string_view text, int64_t type, bool joins_spaces) {
  const auto id = static_cast<int64_t>(texts_.size());
  types_.push_back(type < kNormal || type > kByte ? kNormal : type);
  const bool run = only_spaces(text) || (!text.empty() && only_marks(text));
  spaces_.push_back(joins_spaces && type == kUserDefined && run);
  texts_.push_back(spaces_.back() ? with_marks(text) : std::string(text));
  ids_.emplace(texts_.back(), id);
}

Json PieceVocabulary::added_tokens() const {
  Json out = Json::array();
  for (size_t id = 0; id < texts_.size(); ++id) {
    const bool special = types_[id] == kControl || types_[id] == kUnknown;
    if ((!special && types_[id] != kUserDefined) || spaces_[id] || texts_[id].empty() || !is_first(id))
      continue;
    out.push_back(added_token(static_cast<int64_t>(id), texts_[id], special));
  }
  return out;
}

Json PieceVocabulary::ids() const {
  Json out = Json::object();
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (is_first(id)) out.get_ref<Json::object_t&>().emplace_back(texts_[id], Json(id));
  }
  return out;
}

bool PieceVocabulary::is_part(size_t id) const {
  return (types_[id] == kNormal || spaces_[id]) && !texts_[id].empty() && is_first(id);
}

// BPE with every way to divide a piece, in the order of the scores, joins the same neighbours. Runs of spaces
// are joined before all else and from the left, so that the longest one comes out.
Json PieceVocabulary::scored_merges(std::span<const float> scores) const {
  struct Merge {
    float score;
    size_t left_bytes, split;  // bytes of the left part, if the piece is a run of spaces
    size_t id;                 // of the result
    int64_t left, right;
  };
  std::unordered_map<std::string_view, int64_t> parts;
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (is_part(id)) parts.emplace(texts_[id], static_cast<int64_t>(id));
  }
  std::vector<Merge> merges;
  for (size_t id = 0; id < texts_.size(); ++id) {
    const std::string_view text = texts_[id];
    if (!is_part(id) || text.size() > kMaxPieceBytes || !(scores[id] == scores[id])) continue;
    size_t at = utf8_character_bytes(text);
    for (; at < text.size(); at += utf8_character_bytes(text.substr(at))) {
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
  Json out = Json::array();
  for (const Merge& merge : merges)
    out.push_back({std::string_view(texts_[merge.id]).substr(0, merge.split),
                   std::string_view(texts_[merge.id]).substr(merge.split)});
  return out;
}

std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto content = value.is_object() ? value.find("content") : value.end();
  if (!value.is_object() || content == value.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

Json added_token(int64_t id, const std::string& text, bool special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

Json replace_step(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json bpe_model(const BpeOptions& options, Json ids, Json merges) {
  Json out = {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", options.unknown},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", options.fuse_unknown},
              {"byte_fallback", options.byte_fallback},
              {"ignore_merges", options.whole_tokens}};
  out["vocab"] = std::move(ids);
  out["merges"] = std::move(merges);
  return out;
}

Json leading_token(int64_t id, const std::string& text) {
  const Json special = {{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
  const auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", {special, sequence("A", 0)}},
          {"pair", {special, sequence("A", 0), special, sequence("B", 1)}},
          {"special_tokens", {{text, {{"id", text}, {"ids", {id}}, {"tokens", {text}}}}}}};
}

Json mark_decoder(bool prefix) {
  Json decoders = {replace_step(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", decoders}};
}

}  // namespace dovetail::convert
