// Kernels for CPUs with AVX2 and F16C. Their file is compiled for that level, so it shares no inline function
// with the rest of the program.
#pragma once

#include <cstdint>

namespace dovetail::convert::avx2 {

// False when this build has no such kernels; the caller also asks the CPU.
bool built();

enum class Float : uint8_t { kF32, kF16, kBF16 };

// As convert::GroupMode.
struct Mode {
  Float model;
  int bits;
  bool transposed;
};

// `groups` whole groups, rounded as MLC does.
void quantize_groups(Float source, const void* values, int64_t groups, const Mode& mode, uint32_t* words,
                     void* scales);
// A row, with the scales sought (convert/scale_search.h).
void search_row(Float source, const void* values, int64_t cols, const Mode& mode, uint32_t* words,
                void* scales);
// float16 output; the number of values done, a multiple of 8.
int64_t convert_to_half(Float source, const void* values, int64_t count, uint16_t* out);

}  // namespace dovetail::convert::avx2
