// The shared plans of kept regions, and pixels against Pillow's.
#include "media/resize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "media/image.h"
#include "support/npz.h"

namespace dovetail::media {
namespace {

const std::filesystem::path kPictures = DOVETAIL_TEST_DATA "/media/pictures";

TEST(ResizePlan, SharedVectors) {
  const Json vectors = read_json(DOVETAIL_TEST_DATA "/media/image_resize.json")["vectors"];
  ASSERT_EQ(vectors.size(), 33u);
  for (const Json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const Json& resize = vector["resize"];
    const Json& draw = vector["draw"];
    const ResizePlan plan =
        plan_resize(resize["mode"] == "stretch" ? ResizeMode::kStretch : ResizeMode::kCenterCrop,
                    vector["source_width"].get<int64_t>(), vector["source_height"].get<int64_t>(),
                    resize["width"].get<int64_t>(), resize["height"].get<int64_t>());
    EXPECT_EQ(plan.width, draw["width"].get<int64_t>());
    EXPECT_EQ(plan.height, draw["height"].get<int64_t>());
    EXPECT_EQ(plan.left, draw["left"].get<int64_t>());
    EXPECT_EQ(plan.top, draw["top"].get<int64_t>());
  }
}

TEST(ResizePlan, TheScaledPictureAlwaysCoversTheTarget) {
  for (int64_t width = 1; width < 700; width += 3) {
    for (int64_t height = 1; height < 700; height += 7) {
      const ResizePlan plan = plan_resize(ResizeMode::kCenterCrop, width, height, 336, 336);
      ASSERT_EQ(std::min(plan.width, plan.height), 336) << width << " x " << height;
      ASSERT_GE(plan.left, 0);
      ASSERT_LE(plan.left + 336, plan.width);
      ASSERT_LE(plan.top + 336, plan.height);
    }
  }
}

// Down, up and mixed, odd sizes, 1 x 20000 and 20000 x 1: bit for bit what Pillow computes.
TEST(Resize, EqualToPillow) {
  const auto expected = test::read_npz(kPictures / "resized.npz");
  ASSERT_EQ(expected.size(), 38u);
  for (const auto& [name, pixels] : expected) {
    SCOPED_TRACE(name);
    std::istringstream words(name);
    std::string source, mode, filter;
    words >> source >> mode >> filter;
    const std::string file = read_file(kPictures / ("resize-" + source + ".png"));
    const Image image =
        decode_image(std::as_bytes(std::span(file)),
                     {mode == "stretch" ? ResizeMode::kStretch : ResizeMode::kCenterCrop, pixels.shape[0],
                      pixels.shape[1], filter == "bicubic" ? Filter::kBicubic : Filter::kBilinear});
    EXPECT_EQ(image.pixels, pixels.bytes);
  }
}

// The scaled pictures would have 2.3 * 10^9 pixels; only the kept part is computed.
TEST(Resize, ExtremeShapesCostNothing) {
  for (const char* source : {"column", "row"}) {
    const std::string file = read_file(kPictures / ("resize-" + std::string(source) + ".png"));
    const Image image =
        decode_image(std::as_bytes(std::span(file)), {ResizeMode::kCenterCrop, 336, 336, Filter::kBicubic});
    ASSERT_EQ(image.pixels.size(), 336u * 336 * 3);
    // The middle of the strip: its second channel is position / 80.
    EXPECT_NEAR(image.pixels[(168 * 336 + 168) * 3 + 1], 10000 / 80, 1);
  }
}

TEST(Resize, OwnSizeAndConstantsAreKept) {
  std::vector<uint8_t> pixels(31 * 17 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 % 256);
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
    EXPECT_EQ(resize_rgb(pixels, {31, 17}, {31, 17, 0, 0}, {31, 17}, filter), pixels);
    const std::vector<uint8_t> white(31 * 17 * 3, 255);
    for (const auto& [width, height] : {std::pair<int64_t, int64_t>{5, 3}, {100, 3}, {5, 100}, {100, 100}}) {
      const std::vector<uint8_t> result =
          resize_rgb(white, {31, 17}, {width, height, 0, 0}, {width, height}, filter);
      EXPECT_EQ(result, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), 255));
    }
  }
}

}  // namespace
}  // namespace dovetail::media
