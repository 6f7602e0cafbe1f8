// Canonical JSON and what is computed from it: the two identifiers that tie a package to a library.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "contract/manifest.h"

namespace dovetail::contract {

// A number, or the name of a dimension whose value the model config gives (for example "vocab_size").
using Dimension = std::variant<int64_t, std::string>;

// One parameter as it is stored (after quantization).
struct ParameterRecord {
  std::string name;
  std::vector<Dimension> shape;
  std::string dtype;  // "uint32", "float16", … as in base/dtype.h
  bool operator==(const ParameterRecord&) const = default;
};

struct Resources {
  std::vector<std::string> required_features;
  int64_t max_storage_buffer_binding_size = 0;  // bytes of the largest parameter
  int64_t estimated_device_memory_bytes = 0;    // bytes of all parameters
  bool operator==(const Resources&) const = default;
};

// No whitespace, members sorted by UTF-16 code unit, integers in decimal, only the escapes JSON demands.
// Numbers that are not integers are an Error kUnsupported.
std::string canonical_json(const Json& value);

// "sha256:" + hash of the canonical JSON of {"tasks": …} with defaults filled in.
std::string interface_id(const Tasks& tasks);

// The canonical JSON that parameter_schema_id hashes: an array of the records sorted by name.
std::string canonical_parameters(const std::vector<ParameterRecord>& parameters);
std::string parameter_schema_id(const std::vector<ParameterRecord>& parameters);

using NamedDimensions = std::map<std::string, int64_t, std::less<>>;

// The stored size in bytes. Throws Error kMalformed when a name has no value in `dimensions`, a dimension is
// negative, the dtype is unknown, or the size overflows.
int64_t parameter_bytes(const ParameterRecord& parameter, const NamedDimensions& dimensions);

// Features are sorted and deduplicated. Throws Error kMalformed with every parameter that has no size.
Resources compute_resources(const std::vector<ParameterRecord>& parameters, const NamedDimensions& dimensions,
                            std::vector<std::string> required_features);

// Names whose value compute_resources needs.
std::vector<std::string> dimension_names(const std::vector<ParameterRecord>& parameters);

}  // namespace dovetail::contract
