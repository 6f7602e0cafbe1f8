// Values from one float type to another, and group quantization.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "models/quantization.h"

namespace dovetail::convert {

// How scales are chosen. docs/packages.md has both rules.
enum class Rounding : uint8_t {
  kSearch,  // the scale with the smallest squared error of those tried
  kMlc,     // the largest magnitude of the group decides: MLC's tools, bit for bit
};

// How one weight is quantized. `transposed`: it will be stored transposed; MLC computes those differently in
// bfloat16.
struct GroupMode {
  DType model_dtype;  // of the scales
  int bits;
  bool transposed = false;
  Rounding rounding = Rounding::kSearch;
};

// One row of `cols` values of type `source` (BF16, F16 or F32; any alignment) in groups of
// models::group_size(bits). `scales` gets one value of the model dtype per group, `words`
// models::group_words(bits) words per group, the first value in the lowest bits; positions of the last group
// behind the end of the row hold 0. A scale that is not finite says that the group has such a value, or one
// too large for the model dtype.
void quantize_row(const GroupMode& mode, DType source, const std::byte* values, int64_t cols, uint32_t* words,
                  std::byte* scales);

// `count` values from `source` to `target` (BF16, F16 or F32), rounded to nearest, ties to even.
void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out);

// The plain implementations that the others are tested against, whatever the CPU.
namespace portable {
void quantize_row(const GroupMode& mode, DType source, const std::byte* values, int64_t cols, uint32_t* words,
                  std::byte* scales);
void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out);
}  // namespace portable

}  // namespace dovetail::convert
