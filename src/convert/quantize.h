// Values from one float type to another, and MLC's 4-bit group quantization, bit for bit. The arithmetic of
// q4f16_1 is float16 throughout: every operation is rounded to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace dovetail::convert {

inline constexpr int64_t kGroupValues = 32;  // values that share a scale
inline constexpr int64_t kGroupWords = 4;    // of 32 bits, 8 values in each

// One row of `cols` values of type `source` (BF16, F16 or F32; any alignment) in groups of 32. Positions
// of the last group behind the end of the row hold 0. `scales` gets ceil(cols / 32) values of type
// `model_dtype` (F16 or F32), `words` 4 times as many: value i of a group is in bits 4 (i mod 8) of word i
// / 8. A value q stands for (q - 7) * scale.
void quantize_row(DType source, const std::byte* values, int64_t cols, DType model_dtype, uint32_t* words,
                  std::byte* scales);

// `count` values from `source` to `target` (BF16, F16 or F32), rounded to nearest, ties to even.
void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out);

// The plain implementations that the others are tested against, whatever the CPU.
namespace portable {
void quantize_row(DType source, const std::byte* values, int64_t cols, DType model_dtype, uint32_t* words,
                  std::byte* scales);
void convert_values(DType source, const std::byte* values, int64_t count, DType target, std::byte* out);
}  // namespace portable

}  // namespace dovetail::convert
