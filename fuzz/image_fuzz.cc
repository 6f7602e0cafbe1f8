// decode_image on arbitrary bytes: an Error or a whole picture. The first byte chooses mode and filter.
#include <cstdlib>

#include "base/error.h"
#include "media/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail::media;
  if (size == 0) return 0;
  const ImageTarget target{.mode = data[0] & 1 ? ResizeMode::kCenterCrop : ResizeMode::kStretch,
                           .height = 14,
                           .width = 9,
                           .filter = data[0] & 2 ? Filter::kBicubic : Filter::kBilinear};
  try {
    const Image image = decode_image(std::as_bytes(std::span(data + 1, size - 1)), target, "fuzz");
    if (image.pixels.size() != 14 * 9 * 3) abort();
    if (image.source.width < 1 || image.source.width > kMaxImageSide) abort();
    if (image.source.height < 1 || image.source.height > kMaxImageSide) abort();
  } catch (const dovetail::Error&) {
  }
  return 0;
}
