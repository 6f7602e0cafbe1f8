#include "models/weight_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace dovetail::models {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

WeightMemory::WeightMemory(size_t bytes) {
  if (bytes == 0) return;
  // One huge page more, so that the first can begin at a multiple of its size.
  const size_t reserved = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  void* memory =
      ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  ::madvise(memory, reserved, MADV_HUGEPAGE);
  memory_ = {static_cast<std::byte*>(memory), Unmap{reserved}};
  used_ = (kHugePage - reinterpret_cast<uintptr_t>(memory) % kHugePage) % kHugePage;
}

void WeightMemory::Unmap::operator()(std::byte* data) const { ::munmap(data, bytes); }

std::byte* WeightMemory::allocate(size_t bytes) {
  if (!memory_ || memory_.get_deleter().bytes - used_ < rounded(bytes)) return nullptr;
  std::byte* const out = memory_.get() + used_;
  used_ += rounded(bytes);
  return out;
}

const void* WeightMemory::store(const void* data, size_t bytes) {
  std::byte* const out = allocate(bytes);
  if (out == nullptr) return data;
  std::memcpy(out, data, bytes);
  return out;
}

}  // namespace dovetail::models
