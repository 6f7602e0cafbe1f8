#include "convert/tokenizer_config.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "convert/checkpoint_folder.h"
#include "convert/pieces.h"
#include "package/fields.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

using package::ProblemList;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kMore = "additional_special_tokens";
constexpr int64_t kMaxBytes = int64_t{64} << 20;

void wrong_type(const char* source, std::string field, const char* expected, const Json& value,
                ProblemList& problems) {
  problems.add({.message = "wrong type",
                .source = source,
                .field = std::move(field),
                .expected = expected,
                .actual = std::string(package::json_type_name(value))});
}

// Of what token_text() takes nothing from.
void no_token(const char* source, std::string field, const Json& value, ProblemList& problems) {
  const auto content = value.is_object() ? value.find("content") : value.end();
  if (content != value.end()) return wrong_type(source, field + ".content", "a text", *content, problems);
  if (!value.is_object())
    return wrong_type(source, std::move(field), "a text, or an object with its \"content\"", value, problems);
  problems.add(
      {.message = "is missing", .source = source, .field = field + ".content", .expected = "a text"});
}

// The special tokens of a document, by their names there.
Json special_tokens(const Json& document, const char* source, ProblemList& problems) {
  Json out = Json::object();
  for (const char* name : kNamedTokens) {
    const auto found = document.find(name);
    if (found == document.end() || found->is_null()) continue;
    if (const auto text = token_text(*found)) {
      out[name] = *text;
    } else {
      no_token(source, name, *found, problems);
    }
  }
  const auto more = document.find(kMore);
  if (more == document.end() || more->is_null()) return out;
  if (!more->is_array()) {
    wrong_type(source, kMore, "a list", *more, problems);
    return out;
  }
  Json list = Json::array();
  for (size_t i = 0; i < more->size(); ++i) {
    if (const auto text = token_text((*more)[i])) {
      list.push_back(*text);
    } else {
      no_token(source, std::string(kMore) + "[" + std::to_string(i) + "]", (*more)[i], problems);
    }
  }
  out[kMore] = std::move(list);
  return out;
}

bool same_tokens(Json a, Json b) {
  if (a.is_array()) std::sort(a.begin(), a.end());
  if (b.is_array()) std::sort(b.begin(), b.end());
  return a == b;
}

std::string shown(const Json& tokens) { return printable(tokens.dump(), 80); }

// Two ids of one text: which of them the text becomes, would be chance.
void check_added_tokens(const Json& document, ProblemList& problems) {
  constexpr const char* kField = "added_tokens_decoder";
  const auto list = document.find(kField);
  if (list == document.end() || list->is_null()) return;
  if (!list->is_object()) return wrong_type(kConfig, kField, "an object", *list, problems);
  std::map<std::string, std::string> ids;
  for (const auto& [id, value] : list->items()) {
    const std::optional<std::string> text = token_text(value);
    if (!text) continue;
    const auto [first, fresh] = ids.emplace(*text, id);
    if (fresh) continue;
    problems.add({.message = "\"" + printable(*text, 40) + "\" stands under two ids, " +
                             printable(first->second, 20) + " and " + printable(id, 20),
                  .source = kConfig,
                  .field = kField,
                  .expected = "one id for each text",
                  .hint = "take the tokenizer's files from the original model again, or remove the id that "
                          "the text does not have in the tokenizer itself"});
  }
}

}  // namespace

Json merge_tokenizer_config(Json config, const Json& map, std::vector<std::string>& notes) {
  ProblemList problems;
  const Json ours = special_tokens(config, kConfig, problems);
  const Json theirs = special_tokens(map, kMap, problems);
  check_added_tokens(config, problems);
  problems.throw_if_any(ErrorCode::kMalformed);
  for (const auto& [name, tokens] : ours.items()) config[name] = tokens;
  for (const auto& [name, tokens] : theirs.items()) {
    const auto known = ours.find(name);
    if (known == ours.end()) {
      config[name] = tokens;
    } else if (!same_tokens(*known, tokens)) {
      notes.push_back(std::string(kMap) + " has another " + name + " (" + shown(tokens) + ") than " +
                      kConfig + " (" + shown(*known) + "), which is the one that counts");
    }
  }
  return config;
}

Json read_tokenizer_config(const fs::path& checkpoint, std::vector<std::string>& notes) {
  return merge_tokenizer_config(read_json_object(checkpoint, kConfig, kMaxBytes),
                                read_json_object(checkpoint, kMap, kMaxBytes), notes);
}

}  // namespace dovetail::convert
