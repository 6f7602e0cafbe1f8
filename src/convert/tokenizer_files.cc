#include "convert/tokenizer_files.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "convert/checkpoint_folder.h"
#include "convert/sentencepiece.h"
#include "convert/sentencepiece_tokenizer.h"
#include "package/fields.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr const char* kJson = "tokenizer.json";
constexpr const char* kModel = "tokenizer.model";
constexpr const char* kAddedTokens = "added_tokens.json";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr int64_t kMaxBytes = int64_t{256} << 20;

// In the order in which MLC lists them.
constexpr const char* kFiles[] = {kModel, kJson, "vocab.json", "merges.txt", kAddedTokens, kConfig};

bool has(const fs::path& dir, const char* name) {
  std::error_code ec;
  return fs::is_regular_file(dir / name, ec);
}

SentencePieceModel read_model(const fs::path& dir) {
  return parse_sentencepiece(read_file(dir / kModel, kMaxBytes), kModel);
}

// What tokenizer.model says otherwise; empty: nothing.
std::string disagreement(const SentencePieceModel& model, const package::Tokenizer& tokenizer) {
  int64_t different = 0;
  std::string first;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const std::optional<std::string> token = tokenizer.id_to_token(static_cast<int32_t>(id));
    if (token == model.pieces[id].text) continue;
    if (different++ == 0) {
      first = "id " + std::to_string(id) + " is \"" + printable(model.pieces[id].text, 40) + "\" in " +
              kModel + " and " + (token ? "\"" + printable(*token, 40) + "\"" : "missing") + " in " + kJson;
    }
  }
  if (different == 0) return "";
  return std::to_string(different) + " of " + std::to_string(model.pieces.size()) + " pieces of " + kModel +
         " differ from " + kJson + " (" + std::to_string(tokenizer.vocab_size()) +
         " tokens), which is used: " + first;
}

// Of a tokenizer.json that was made from tokenizer.model.
package::Tokenizer made_tokenizer(const std::string& json) {
  try {
    return package::Tokenizer::from_json(json, kJson);
  } catch (const Error& error) {
    throw Error(error.code(),
                Problem{.message = error.problems().front().message,
                        .source = kModel,
                        .hint = "the file is damaged: fetch it again, or take a checkpoint that has "
                                "tokenizer.json too"});
  }
}

package::Tokenizer read_given(const fs::path& dir, std::vector<std::string>& notes) {
  package::Tokenizer out = package::Tokenizer::from_file(dir / kJson);
  if (!has(dir, kModel)) return out;
  try {
    if (std::string text = disagreement(read_model(dir), out); !text.empty())
      notes.push_back(std::move(text));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported)
      notes.push_back(error.problems().front().text() + "; " + kJson + " is used");
  }
  return out;
}

}  // namespace

TokenizerFiles read_tokenizer(const fs::path& checkpoint, const Json& config,
                              std::vector<std::string>& notes) {
  std::vector<TokenizerFile> files;
  for (const char* name : kFiles) {
    if (has(checkpoint, name)) {
      files.push_back({.name = name, .copied_from = checkpoint / name});
    } else if (name == std::string_view(kJson) && has(checkpoint, kModel)) {
      const SentencePieceModel model = read_model(checkpoint);
      notes.push_back("tokenizer.json is made from " + std::string(kModel) + ", a SentencePiece model of " +
                      std::to_string(model.pieces.size()) + " pieces (" +
                      (model.model_type == SentencePieceModel::kBpe ? "BPE" : "unigram") + ")");
      const Json added_tokens = read_json_object(checkpoint, kAddedTokens, kMaxBytes);
      files.push_back(
          {.name = kJson, .text = sentencepiece_tokenizer_json(model, kModel, config, added_tokens, notes)});
    }
  }
  for (const TokenizerFile& file : files) {
    if (file.name == kJson && file.copied_from.empty()) {
      package::Tokenizer tokenizer = made_tokenizer(file.text);
      return {.source = kModel, .files = std::move(files), .tokenizer = std::move(tokenizer)};
    }
  }
  package::Tokenizer tokenizer = read_given(checkpoint, notes);
  return {.source = kJson, .files = std::move(files), .tokenizer = std::move(tokenizer)};
}

}  // namespace dovetail::convert
