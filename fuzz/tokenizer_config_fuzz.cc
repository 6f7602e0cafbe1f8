// The documents beside a tokenizer.model, from any bytes: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json, with a zero byte between them. What comes of them stays what it is, and with a model a
// tokenizer is made of them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/sentencepiece_tokenizer.h"
#include "convert/tokenizer_config.h"
#include "package/tokenizer.h"

using namespace dovetail;

namespace {

// The next document; an empty object where the input has no more.
Json take_object(std::string_view& input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(0, end);
  input.remove_prefix(std::min(end + 1, input.size()));
  Json out = text.empty() ? Json::object() : parse_json(text, "fuzz");
  return out.is_object() ? out : Json::object();
}

convert::SentencePieceModel small_model() {
  convert::SentencePieceModel out{.model_type = convert::SentencePieceModel::kBpe};
  out.pieces = {{.text = "<unk>", .type = 2}, {.text = "<s>", .type = 3}, {.text = "a"}, {.text = "b"}};
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const convert::SentencePieceModel model = small_model();
  std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    std::vector<std::string> notes;
    const Json written = take_object(input);
    const Json config = convert::merge_tokenizer_config(written, take_object(input), notes);
    if (convert::merge_tokenizer_config(config, Json::object(), notes) != config) std::abort();
    const std::string json =
        convert::sentencepiece_tokenizer_json(model, "fuzz.model", config, take_object(input), notes);
    package::Tokenizer::from_json(json, "tokenizer.json").encode("a <s>b");
  } catch (const Error& error) {
    if (error.problems().empty()) std::abort();
  }
  return 0;
}
