// A SentencePiece model, from any bytes, and the tokenizer.json made from it, which must be one that can be
// read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/sentencepiece.h"
#include "convert/sentencepiece_tokenizer.h"
#include "package/tokenizer.h"

using namespace dovetail;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const convert::SentencePieceModel model = convert::parse_sentencepiece(file, "fuzz.model");
    if (model.pieces.empty()) std::abort();
    std::vector<std::string> notes;
    const std::string json =
        convert::sentencepiece_tokenizer_json(model, "fuzz.model", Json::object(), Json::object(), notes);
    package::Tokenizer::from_json(json, "tokenizer.json").encode("some text\n with  spaces");
  } catch (const Error& error) {
    if (error.problems().empty()) std::abort();
  }
  return 0;
}
