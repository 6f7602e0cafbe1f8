#include "package/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "dovetail_rust.h"

namespace dovetail::package {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string take(DovetailRustText text) {
  std::string result(text.data, text.size);
  dovetail_rust_free_text(text);
  return result;
}

std::vector<int32_t> take(DovetailRustIds ids) {
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  dovetail_rust_free_ids(ids);
  return result;
}

std::string type_of(const Json& part) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return "";
  return part["type"].get<std::string>();
}

// A component, or the members of a Sequence of them.
std::vector<Json> components(const Json& part, const char* members) {
  if (part.is_null()) return {};
  if (type_of(part) != "Sequence" || !part.contains(members)) return {part};
  return {part[members].begin(), part[members].end()};
}

TokenizerInfo detect_info(const Json& parts) {
  TokenizerInfo info;
  for (const Json& decoder : components(parts["decoder"], "decoders")) {
    const std::string type = type_of(decoder);
    if (type == "ByteLevel") info.token_postproc_method = "byte_level";
    if (type == "ByteFallback") info.token_postproc_method = "byte_fallback";
    if (type == "Strip" && decoder.value("content", "") == " " && decoder.value("start", int64_t{0}) == 1 &&
        decoder.value("stop", int64_t{0}) == 0) {
      info.strip_space_in_decode = true;
    }
  }
  for (const Json& normalizer : components(parts["normalizer"], "normalizers")) {
    if (type_of(normalizer) == "Prepend" && normalizer.value("prepend", "") == "\xE2\x96\x81") {
      info.prepend_space_in_encode = true;
    }
  }
  return info;
}

bool has_byte_fallback(const Json& parts) {
  const std::vector<Json> decoders = components(parts["decoder"], "decoders");
  return std::any_of(decoders.begin(), decoders.end(),
                     [](const Json& d) { return type_of(d) == "ByteFallback"; });
}

}  // namespace

struct Tokenizer::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { dovetail_tokenizer_free(handle); }

  DovetailTokenizer* handle = nullptr;
  std::vector<int32_t> special_ids;  // ascending
  TokenizerInfo info;
  bool byte_fallback = false;
};

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  return from_json(read_file(path, kMaxFileBytes), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& source) {
  auto fail = [&](DovetailRustText error) -> Error {
    return {ErrorCode::kMalformed,
            Problem{.message = "not a usable tokenizer: " + printable(take(error), 400),
                    .source = source,
                    .hint = "take tokenizer.json from the model's folder again; it may be incomplete"}};
  };
  auto state = std::make_shared<State>();
  DovetailRustText text{};
  DovetailRustText error{};
  DovetailRustIds ids{};
  if (!dovetail_tokenizer_new(reinterpret_cast<const uint8_t*>(json.data()), json.size(), &state->handle,
                              &error)) {
    throw fail(error);
  }
  if (!dovetail_tokenizer_special_ids(state->handle, &ids, &error)) throw fail(error);
  state->special_ids = take(ids);
  if (!dovetail_tokenizer_parts(state->handle, &text, &error)) throw fail(error);
  const Json parts = parse_json(take(text), source, 256);
  state->info = detect_info(parts);
  state->byte_fallback = has_byte_fallback(parts);
  return Tokenizer(std::move(state));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  DovetailRustIds ids{};
  DovetailRustText error{};
  if (!dovetail_tokenizer_encode(state_->handle, text.data(), text.size(), add_special_tokens, &ids,
                                 &error)) {
    throw Error(ErrorCode::kUsage, "text can't be tokenized: " + printable(take(error)));
  }
  return take(ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  DovetailRustText text{};
  DovetailRustText error{};
  if (!dovetail_tokenizer_decode(state_->handle, ids.data(), ids.size(), skip_special_tokens, &text,
                                 &error)) {
    throw Error(ErrorCode::kUsage, "token ids can't be decoded: " + printable(take(error)));
  }
  return take(text);
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(dovetail_tokenizer_vocab_size(state_->handle));
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = dovetail_tokenizer_token_to_id(state_->handle, token.data(), token.size());
  if (id < 0) return std::nullopt;
  return id;
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  DovetailRustText text{};
  if (!dovetail_tokenizer_id_to_token(state_->handle, id, &text)) return std::nullopt;
  return take(text);
}

bool Tokenizer::is_special(int32_t id) const {
  return std::binary_search(state_->special_ids.begin(), state_->special_ids.end(), id);
}

const TokenizerInfo& Tokenizer::tokenizer_info() const { return state_->info; }

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

bool StreamDecoder::is_byte_token(int32_t id) const {
  if (!tokenizer_.state_->byte_fallback) return false;
  const std::optional<std::string> token = tokenizer_.id_to_token(id);
  return token && token->size() == 6 && token->starts_with("<0x") && token->ends_with(">");
}

std::string StreamDecoder::push(int32_t id) {
  if (id < 0) throw Error(ErrorCode::kUsage, "token id " + std::to_string(id) + " is negative");
  if (!tokenizer_.id_to_token(id)) return "";
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return "";
  ids_.push_back(id);
  if (is_byte_token(id)) return "";
  std::string text = tokenizer_.decode(ids_, skip_special_tokens_);
  if (text.size() <= context_.size() || !text.starts_with(context_) || text.ends_with(kReplacement))
    return "";
  std::string piece = text.substr(context_.size());
  // The newest piece stays as context: decoders treat the first token of a text differently.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(emitted_));
  emitted_ = ids_.size();
  context_ = tokenizer_.decode(ids_, skip_special_tokens_);
  return piece;
}

std::string StreamDecoder::finish() {
  std::string text = tokenizer_.decode(ids_, skip_special_tokens_);
  std::string piece = text.starts_with(context_) ? text.substr(context_.size()) : "";
  ids_.clear();
  emitted_ = 0;
  context_.clear();
  return piece;
}

}  // namespace dovetail::package
