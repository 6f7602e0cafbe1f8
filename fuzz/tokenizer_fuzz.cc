// The input is a tokenizer.json, or (after a zero byte) text and ids for tokenizers that are known to be
// good.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "package/tokenizer.h"

namespace {

using dovetail::package::StreamDecoder;
using dovetail::package::Tokenizer;

// Ids 0…255 are bytes, "a" is 256, a replacement character 257, a special token 258.
Tokenizer byte_fallback() {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    char entry[24];
    std::snprintf(entry, sizeof entry, "\"<0x%02X>\":%d,", byte, byte);
    vocab += entry;
  }
  return Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":258,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,
      "normalized":false,"special":true}],"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},
      {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","byte_fallback":true,
      "vocab":{)" +
          vocab + R"("a":256,"\ufffd":257},"merges":[]}})",
      "fuzz");
}

void check_stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (bool skip : {true, false}) {
    StreamDecoder decoder(tokenizer, skip);
    std::string text;
    for (int32_t id : ids) text += decoder.push(id);
    text += decoder.finish();
    if (text != tokenizer.decode(ids, skip)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer known = byte_fallback();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    if (!input.empty() && input[0] == '\0') {
      std::vector<int32_t> ids;
      for (size_t i = 1; i + 1 < size; i += 2) ids.push_back((data[i] << 8 | data[i + 1]) % 262);
      check_stream(known, ids);
      const std::vector<int32_t> encoded = known.encode(input.substr(1));
      check_stream(known, encoded);
      return 0;
    }
    const Tokenizer tokenizer = Tokenizer::from_json(input, "fuzz");
    const std::vector<int32_t> ids = tokenizer.encode("Turn on \xF0\x9F\x98\x80 the lights", true);
    tokenizer.decode(ids);
    tokenizer.decode(std::vector<int32_t>{0, 1, 2, 3, 500}, false);
  } catch (const dovetail::Error&) {
  }
  return 0;
}
