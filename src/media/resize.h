// Pictures to a target size: which part of the scaled picture is kept, and an antialiased filter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "contract/manifest.h"

namespace dovetail::media {

using contract::ResizeMode;

// The filters of Pillow (BILINEAR, BICUBIC with a = -0.5). When a picture shrinks, they widen by the scale.
enum class Filter { kBilinear, kBicubic };

// The filter that the preprocessors of published models use with a mode, since a package does not name one:
// bilinear where the picture is stretched, bicubic where it is cropped (docs/pictures.md).
Filter usual_filter(ResizeMode mode);

// The picture is scaled to width x height; the target's top left corner lies at (left, top) of the result.
struct ResizePlan {
  int64_t width = 0;
  int64_t height = 0;
  int64_t left = 0;
  int64_t top = 0;
  bool operator==(const ResizePlan&) const = default;
};

// stretch: each side to the target's. center_crop: one scale that just covers the target, sides rounded half
// up; an odd surplus loses one more pixel at the right or bottom. Sides must be 1..2^20.
ResizePlan plan_resize(ResizeMode mode, int64_t source_width, int64_t source_height, int64_t target_width,
                       int64_t target_height);

struct Size {
  int64_t width = 0;
  int64_t height = 0;
};

// `pixels` is [source.height, source.width, 3], the result [target.height, target.width, 3]. Bit for bit what
// Pillow 13 computes: horizontally, then vertically (or the other way round, see resize.cc), each rounded to
// 8 bits, with 22-bit coefficients. Only the kept part of the scaled picture is computed.
std::vector<uint8_t> resize_rgb(std::span<const uint8_t> pixels, Size source, const ResizePlan& plan,
                                Size target, Filter filter);

}  // namespace dovetail::media
