// Pictures of any common format → canonical pixels: RGB, 8 bits, at the size a processor asks for.
// The bytes decide what a picture is, never its name. Limits are applied before any pixel is decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "media/resize.h"

namespace dovetail::media {

// Larger pictures are refused. With them a decode takes at most 16 bytes for each pixel beside the file: 1
// GB.
inline constexpr int64_t kMaxImageBytes = int64_t{256} << 20;
inline constexpr int64_t kMaxImagePixels = 64'000'000;
inline constexpr int64_t kMaxImageSide = 65535;
inline constexpr int64_t kMaxTargetSide = 8192;

// What an image processor declares, and the filter of the model's own preprocessor.
// 1 <= height, width <= kMaxTargetSide.
struct ImageTarget {
  ResizeMode mode = ResizeMode::kStretch;
  int64_t height = 0;
  int64_t width = 0;
  Filter filter = Filter::kBicubic;
};

struct ImageSource {
  std::string format;  // for example "PNG, 8-bit RGBA" or "JPEG, progressive"
  int64_t width = 0;   // upright
  int64_t height = 0;
  std::vector<std::string> omissions;  // content of the file that is left out: "animated: first frame"
  std::vector<std::string> notes;      // what was done to the rest: "turned by EXIF orientation 6"
};

struct Image {
  std::vector<uint8_t> pixels;  // [height, width, 3], RGB
  int64_t height = 0;
  int64_t width = 0;
  ImageSource source;
};

// JPEG, PNG, WebP, GIF, BMP and TIFF. Turned upright as EXIF says; transparent parts on white; the first
// frame or page. `source` stands in front of messages.
// Throws Error kUnsupported (another format or variant, named), kMalformed (damaged, truncated), kLimit (too
// large, with both numbers), kUsage (the target is out of bounds).
Image decode_image(std::span<const std::byte> bytes, const ImageTarget& target,
                   std::string_view source = "picture");

// The same for base64 text, or a data URL (data:image/png;base64,…). White space is skipped and the padding
// may be missing; the declared type must name an image but the bytes decide.
Image decode_image_base64(std::string_view text, const ImageTarget& target,
                          std::string_view source = "picture");

}  // namespace dovetail::media
