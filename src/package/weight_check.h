// Whether the weights of a package are the bytes that were written.
#pragma once

#include <filesystem>

#include "package/tensor_cache.h"

namespace dovetail::package {

// Compares every shard with its SHA-256 in dovetail-hashes.json, or, where that does not list it, with its
// MD5 in tensor-cache.json; a shard that has neither is not checked. Reads all weights, on all processors.
// Throws Error kMalformed naming every shard that has changed.
void check_weights(const std::filesystem::path& dir, const TensorCache& weights);

}  // namespace dovetail::package
