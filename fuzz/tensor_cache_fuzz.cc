// tensor-cache.json (first byte even) and dovetail-hashes.json (odd), from any bytes. Accepted tensors lie in
// their shards, and sums of their sizes are exact.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "package/content_hashes.h"
#include "package/paths.h"
#include "package/tensor_cache.h"

using namespace dovetail;
using namespace dovetail::package;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void run_tensor_cache(std::string_view json) {
  const TensorCache cache = TensorCache::parse(json);
  for (const StoredTensor& tensor : cache.tensors()) {
    require(cache.find(tensor.name) == &tensor);
    require(tensor.elements() * dtype_bytes(tensor.stored_dtype()) == tensor.bytes);
    require(tensor.offset >= 0 && tensor.offset + tensor.bytes <= cache.shards()[tensor.shard].bytes);
  }
  for (const Shard& shard : cache.shards()) require(!bad_relative_path(shard.file));
  require(cache.stored_bytes() >= 0 && cache.parameter_bytes() >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) {
      run_tensor_cache(json);
    } else {
      for (const FileHash& file : parse_content_hashes(json))
        require(!bad_relative_path(file.file) && file.bytes >= 0);
    }
  } catch (const Error& error) {
    require(!error.problems().empty());
  }
  return 0;
}
