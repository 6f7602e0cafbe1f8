// mlc-model-manifest.json, schema "mlc.model-package" version 1: what a converted model takes and gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "contract/named.h"

namespace dovetail::contract {

inline constexpr std::string_view kManifestFile = "mlc-model-manifest.json";
inline constexpr std::string_view kChatConfigFile = "mlc-chat-config.json";
inline constexpr std::string_view kTensorCacheFile = "tensor-cache.json";
inline constexpr std::string_view kTokenizer = "tokenizer";
inline constexpr std::string_view kChatTask = "chat.completions";

// format "pcm_f32": the adapter takes float32 [samples], mono, at sample_rate_hz.
struct AudioDecode {
  int64_t sample_rate_hz = 0;
  int64_t channels = 1;
  int64_t min_samples = 1;
  int64_t max_samples = 0;
  bool operator==(const AudioDecode&) const = default;
};

enum class ResizeMode { kStretch, kCenterCrop };

struct Resize {
  ResizeMode mode = ResizeMode::kStretch;
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const Resize&) const = default;
};

// format "rgb_u8", layout "nhwc": the adapter takes [1, height, width, 3] with values 0 to 255.
struct ImageDecode {
  Resize resize;
  int64_t num_embeddings = 0;
  bool operator==(const ImageDecode&) const = default;
};

// A processor without settings is its name; the only one of version 1 is kTokenizer.
using Processor = std::variant<std::string, AudioDecode, ImageDecode>;

struct Prompt {
  std::vector<int64_t> prefix_token_ids;
  int64_t placeholder_token_id = 0;
  std::vector<int64_t> suffix_token_ids;
  bool operator==(const Prompt&) const = default;
};

// `adapter` and `prompt` are both present or both absent.
struct Input {
  Processor processor;
  std::optional<std::string> adapter;
  std::optional<Prompt> prompt;
  bool operator==(const Input&) const = default;
};

struct Task {
  std::string executor;  // the name of a program of the library
  Named<Input> inputs;
  std::string output;
  bool operator==(const Task&) const = default;
};

using Tasks = Named<Task>;

struct PackageManifest {
  std::string chat_config{kChatConfigFile};
  std::string interface_id;
  std::string weights_manifest{kTensorCacheFile};
  std::string parameter_schema_id;
  Tasks tasks;
  bool operator==(const PackageManifest&) const = default;
};

// `source` names the document in errors. The interface_id is checked against the tasks.
// Throws Error kMalformed with everything that is wrong.
PackageManifest parse_package_manifest(std::string_view bytes, std::string_view source = kManifestFile);

// The value of "tasks" alone. Throws Error kMalformed.
Tasks parse_tasks(const Json& tasks, std::string_view source = kManifestFile);

// Fields in the specification's order; optional fields without content are left out.
Json to_json(const PackageManifest& manifest);
Json to_json(const Tasks& tasks);

// As to_json, but with the defaults written out: the form that is hashed.
Json canonical_tasks(const Tasks& tasks);

// "stretch" or "center_crop".
std::string_view resize_mode_name(ResizeMode mode);

}  // namespace dovetail::contract
