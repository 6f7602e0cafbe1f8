// mlc-chat-config.json, from any bytes. What is accepted comes back the same when it is written and read
// again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "package/chat_config.h"

using namespace dovetail;
using namespace dovetail::package;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ChatConfig config = parse_chat_config({reinterpret_cast<const char*>(data), size});
    const std::string text = chat_config_text(config);
    if (chat_config_text(parse_chat_config(text)) != text) std::abort();
  } catch (const Error& error) {
    if (error.problems().empty()) std::abort();
  }
  return 0;
}
