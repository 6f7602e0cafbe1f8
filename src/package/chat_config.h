// mlc-chat-config.json: what a frontend needs to know about a model besides its weights. Members that are not
// listed here are ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "package/fields.h"
#include "package/tokenizer_info.h"

namespace dovetail::package {

inline constexpr std::string_view kChatConfigFile = "mlc-chat-config.json";

// How a conversation becomes text; MLC's format. Placeholders: {system_message}, {user_message},
// {assistant_message}, {tool_message}, {function_string}.
struct ConvTemplate {
  using Texts = std::vector<std::pair<std::string, std::string>>;  // by role, in file order

  std::string name;
  std::string system_template;
  std::string system_message;
  std::vector<int64_t> system_prefix_token_ids;  // the ids every prompt begins with, usually BOS alone
  bool add_role_after_system_message = true;
  Texts roles;  // "user" and "assistant", perhaps "tool"
  Texts role_templates;
  Json messages = Json::array();  // [role, text] each, before those of every conversation
  std::vector<std::string> seps;  // one for every turn, or [after the user, after the assistant]
  std::string role_content_sep;
  std::string role_empty_sep;
  std::vector<std::string> stop_str;
  std::vector<int64_t> stop_token_ids;
  bool strip_reasoning_in_history = false;
  std::string function_string;
  bool use_function_calling = false;

  // Throws Error kNotFound.
  const std::string& role(std::string_view name) const;
  // "{<name>_message}" when the package gives none.
  std::string role_template(std::string_view name) const;
};

struct ChatConfig {
  std::string version = "0.1.0";
  std::string model_type;
  std::string quantization;
  Json model_config;
  int64_t vocab_size = 0;
  int64_t context_window_size = 0;
  int64_t sliding_window_size = -1;
  int64_t prefill_chunk_size = 0;
  int64_t attention_sink_size = -1;
  int64_t tensor_parallel_shards = 1;
  int64_t pipeline_parallel_stages = 1;
  int64_t active_vocab_size = 0;  // ids from here on are padding and never sampled
  double temperature = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  double top_p = 1.0;
  std::vector<std::string> tokenizer_files;
  std::optional<TokenizerInfo> tokenizer_info;
  ConvTemplate conv_template;
  int64_t pad_token_id = 0;
  int64_t bos_token_id = 1;
  std::vector<int64_t> eos_token_ids = {2};
  std::string model_task = "chat";
  Json embedding_metadata;  // null for a chat model

  // 0: the most likely token alone, which other frontends know as temperature 0.
  void set_top_p(double value) {
    top_p = value > 0 ? value : 1;
    if (value <= 0) temperature = 0;
  }
};

// Appends what is wrong to `problems`. `path` is where the template stands in `source`.
ConvTemplate read_conv_template(const Json& value, std::string_view source, std::string path,
                                ProblemList& problems);

// Throws Error kMalformed with all problems.
ChatConfig parse_chat_config(std::string_view json, const std::string& source = std::string(kChatConfigFile));
// Reads <dir>/mlc-chat-config.json. Throws also kNotFound and kIo.
ChatConfig read_chat_config(const std::filesystem::path& dir);

// In MLC's key order and layout.
std::string chat_config_text(const ChatConfig& config);

}  // namespace dovetail::package
