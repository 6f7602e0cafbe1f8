// The shared plans of kept regions, and pixels against Pillow's.
#include "media/resize.h"

#include <gtest/gtest.h>

#include <array>
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

// Down, up and mixed, odd sizes, grey, 1 x 20000 and 20000 x 1: bit for bit what Pillow computes.
TEST(Resize, EqualToPillow) {
  const auto expected = test::read_npz(kPictures / "resized.npz");
  ASSERT_EQ(expected.size(), 44u);
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

// An uncompressed picture of one colour.
std::string bmp(int32_t width, int32_t height, std::array<uint8_t, 3> colour) {
  const auto append = [](std::string& out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
  };
  std::string row;
  for (int32_t x = 0; x < width; ++x) row.append({char(colour[2]), char(colour[1]), char(colour[0])});
  row.resize((row.size() + 3) / 4 * 4);
  std::string file = "BM";
  append(file, 0, 8);
  append(file, 54, 4);
  append(file, 40, 4);
  append(file, static_cast<uint32_t>(width), 4);
  append(file, static_cast<uint32_t>(height), 4);
  append(file, 1, 2);
  append(file, 24, 2);
  file.resize(54);
  for (int32_t y = 0; y < height; ++y) file += row;
  return file;
}

// From the file to the adapter's pixels, whatever the shape.
TEST(Resize, EveryShapeWorks) {
  for (const auto& [width, height] : {std::pair<int32_t, int32_t>{1, 1},
                                      {1, 20000},
                                      {20000, 1},
                                      {2, 3},
                                      {3, 7},
                                      {335, 337},
                                      {336, 336},
                                      {337, 335},
                                      {400, 800},
                                      {512, 14},
                                      {14, 512},
                                      {4000, 3000},
                                      {65535, 1}}) {
    SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height));
    const std::string file = bmp(width, height, {200, 100, 7});
    for (const ResizeMode mode : {ResizeMode::kStretch, ResizeMode::kCenterCrop}) {
      const Image image = decode_image(std::as_bytes(std::span(file)), {mode, 336, 336, usual_filter(mode)});
      EXPECT_EQ(image.source.width, width);
      EXPECT_EQ(image.source.height, height);
      ASSERT_EQ(image.pixels.size(), 336u * 336 * 3);
      for (size_t i = 0; i < image.pixels.size(); i += 3) {
        ASSERT_EQ(image.pixels[i], 200);
        ASSERT_EQ(image.pixels[i + 1], 100);
        ASSERT_EQ(image.pixels[i + 2], 7);
      }
    }
  }
}

TEST(Resize, FilterThatBelongsToAMode) {
  EXPECT_EQ(usual_filter(ResizeMode::kCenterCrop), Filter::kBicubic);
  EXPECT_EQ(usual_filter(ResizeMode::kStretch), Filter::kBilinear);
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
