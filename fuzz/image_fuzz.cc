// decode_image on arbitrary bytes: an Error or a whole picture. The size chooses mode and filter, so that
// whole files are seeds as they are (fuzz/corpus/image_fuzz is the folder of the test pictures).
#include <cstdlib>

#include "base/error.h"
#include "media/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail::media;
  const ImageTarget target{.mode = size & 1 ? ResizeMode::kCenterCrop : ResizeMode::kStretch,
                           .height = 14,
                           .width = 9,
                           .filter = size & 2 ? Filter::kBicubic : Filter::kBilinear};
  try {
    const Image image = decode_image(std::as_bytes(std::span(data, size)), target, "fuzz");
    if (image.pixels.size() != 14 * 9 * 3) abort();
    if (image.source.width < 1 || image.source.width > kMaxImageSide) abort();
    if (image.source.height < 1 || image.source.height > kMaxImageSide) abort();
  } catch (const dovetail::Error&) {
  }
  return 0;
}
