// Convolutions of the audio tower.
#include <algorithm>
#include <cstring>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/split.h"

namespace dovetail::ops {
namespace {

// The 3x3 neighbourhood of output point (row, column) in the order channel, kernel row, kernel column.
void gather_patch(const float* x, int64_t h, int64_t w, int64_t channels, int64_t row, int64_t column,
                  float* patch) {
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      const int64_t y = 2 * row - 1 + i, z = 2 * column - 1 + j;
      const bool inside = y >= 0 && y < h && z >= 0 && z < w;
      const float* point = x + (y * w + z) * channels;
      for (int64_t c = 0; c < channels; ++c) patch[c * 9 + i * 3 + j] = inside ? point[c] : 0.0f;
    }
  }
}

}  // namespace

void conv3x3_stride2(Context& context, const float* x, int64_t h, int64_t w, int64_t channels_in,
                     const Matrix& weight, float* y) {
  const KernelTable& kernels = context.kernels();
  const int64_t out_h = (h + 1) / 2, out_w = (w + 1) / 2, cols = channels_in * 9;
  constexpr int64_t kPoints = 48;  // output points per patch matrix
  const double cost = static_cast<double>(cols * weight.rows) / 16;
  split(context, out_h * out_w, cost, kPoints, [&](int64_t begin, int64_t end, int worker) {
    const size_t patch_bytes = (static_cast<size_t>(kPoints * cols) * sizeof(float) + 63) / 64 * 64;
    std::byte* scratch =
        context.scratch(worker, patch_bytes + kernels.matmul_f32_scratch(kPoints, cols)).data();
    float* const patches = reinterpret_cast<float*>(scratch);
    for (int64_t first = begin; first < end; first += kPoints) {
      const int64_t count = std::min(kPoints, end - first);
      for (int64_t i = 0; i < count; ++i) {
        gather_patch(x, h, w, channels_in, (first + i) / out_w, (first + i) % out_w, patches + i * cols);
      }
      kernels.matmul_f32(patches, count, weight, 0, weight.rows, y + first * weight.rows, weight.rows,
                         scratch + patch_bytes);
    }
  });
}

void depthwise_causal_conv(Context& context, const float* x, int64_t m, int64_t n, const float* weight,
                           int64_t taps, float* y) {
  split(context, m, static_cast<double>(n * taps) / 4, 1, [&](int64_t begin, int64_t end, int) {
    context.kernels().depthwise_causal_conv(x, begin, end, n, weight, taps, y);
  });
}

}  // namespace dovetail::ops
