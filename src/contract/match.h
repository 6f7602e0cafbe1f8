// Whether a package and a library fit each other and the device: the check before anything is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "contract/artifact.h"
#include "contract/canonical.h"
#include "contract/manifest.h"

namespace dovetail::contract {

struct Device {
  std::optional<std::set<std::string>> features;
  std::optional<int64_t> max_storage_buffer_binding_size;  // bytes
};

// What is known besides the two documents. Checks that need something unknown are left out.
struct MatchContext {
  std::optional<int64_t> vocab_size;  // of the chat config
  NamedDimensions named_dimensions;   // of the chat config
  std::optional<Device> device;
  std::optional<std::set<std::string, std::less<>>> functions;  // every function the library exports
  std::string manifest_source{kManifestFile};                   // names of the documents in messages
  std::string metadata_source{kMetadata};
};

// Each reads one JSON document into the context. They throw Error kMalformed.
// mlc-chat-config.json: vocab_size, and the integers of model_config as named dimensions.
void add_chat_config(MatchContext& context, std::string_view bytes,
                     std::string_view source = kChatConfigFile);
// {"features": [names], "maxStorageBufferBindingSize": bytes}, each optional, as WebGPU names them.
void add_device(MatchContext& context, std::string_view bytes, std::string_view source);
// ["function", …]
void add_functions(MatchContext& context, std::string_view bytes, std::string_view source);

// Everything that forbids the library to serve the package's chat.completions task. Empty: they fit.
std::vector<Problem> match(const PackageManifest& manifest, const LibraryMetadata& library,
                           const MatchContext& context = {});

// What is odd about the library but forbids nothing: stated sizes that are not those of its parameters.
std::vector<Problem> review(const LibraryMetadata& library, const MatchContext& context = {});

}  // namespace dovetail::contract
