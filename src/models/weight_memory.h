// Memory for the weights that every token reads. Mapped files lie in pages of 4 KiB at whatever offset the
// file has; here weights are aligned to cache lines and lie in huge pages where the system gives them, which
// makes reading them up to 1.4 times as fast (docs/performance.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dovetail::models {

class WeightMemory {
 public:
  // `bytes` is the sum of what will be stored, each rounded up to kAlignment. Without enough memory, store()
  // gives back what it was given, and allocate() null.
  explicit WeightMemory(size_t bytes);
  WeightMemory() = default;

  static constexpr size_t kAlignment = 64;
  static constexpr size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // Memory that lives as long as this object, or null.
  std::byte* allocate(size_t bytes);
  // A copy that lives as long as this object.
  const void* store(const void* data, size_t bytes);

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> memory_{nullptr, Unmap{0}};
  size_t used_ = 0;
};

}  // namespace dovetail::models
