// Converts the mapped weights and hands them to the tensor cache writer, in blocks of rows: a checkpoint of
// any size goes through a few hundred megabytes of memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "convert/mapping.h"
#include "convert/quantize.h"
#include "package/tensor_cache_writer.h"

namespace dovetail::convert {

// Bytes of the checkpoint that stream_weights() reads, the unit of its progress.
int64_t source_bytes(const Mapping& mapping, const Checkpoint& checkpoint);

// Weights that take column ranges of the same tensors are converted in one pass over them. Throws Error
// kNumeric (of every tensor the first value that the target type can't hold, as the file has it), kIo,
// kCancelled (within one block of `cancel` becoming true; null: never).
void stream_weights(const models::ModelPlan& plan, const Checkpoint& checkpoint, const Mapping& mapping,
                    Rounding rounding, package::TensorCacheWriter& writer, ThreadPool& pool,
                    Progress& progress, const std::atomic<bool>* cancel);

}  // namespace dovetail::convert
