// Pictures of every kind against what Pillow makes of them; what is refused, and why.
#include "media/image.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "media/sniff.h"
#include "support/npz.h"

namespace dovetail::media {
namespace {

const std::filesystem::path kPictures = DOVETAIL_TEST_DATA "/media/pictures";

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Image decode_file(const std::string& name, const ImageTarget& target) {
  const std::string file = read_file(kPictures / name);
  return decode_image(bytes_of(file), target, name);
}

// Stretching to the picture's own size changes nothing.
ImageTarget own_size(const test::Array& pixels) {
  return {ResizeMode::kStretch, pixels.shape[0], pixels.shape[1], Filter::kBicubic};
}

constexpr ImageTarget kTarget{ResizeMode::kStretch, 8, 8, Filter::kBilinear};

struct Refusal {
  ErrorCode code;
  std::string message;
};

Refusal refusal_of(std::string_view file) {
  try {
    decode_image(bytes_of(file), kTarget);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kInternal, "accepted"};
}

void expect_refused(std::string_view file, ErrorCode code, const std::string& part) {
  const Refusal refusal = refusal_of(file);
  EXPECT_EQ(refusal.code, code) << refusal.message;
  EXPECT_NE(refusal.message.find(part), std::string::npos) << refusal.message;
}

void expect_file_refused(const std::string& name, ErrorCode code, const std::string& part) {
  SCOPED_TRACE(name);
  expect_refused(read_file(kPictures / name), code, part);
}

int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  if (a.size() != b.size()) return 256;
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(Image, EveryKindDecodesAsInPillow) {
  const auto expected = test::read_npz(kPictures / "decoded.npz");
  ASSERT_GE(expected.size(), 90u);
  for (const auto& [name, pixels] : expected) {
    SCOPED_TRACE(name);
    const Image image = decode_file(name, own_size(pixels));
    EXPECT_EQ(image.source.height, pixels.shape[0]);
    EXPECT_EQ(image.source.width, pixels.shape[1]);
    EXPECT_EQ(largest_difference(image.pixels, pixels.bytes), 0);
  }
}

TEST(Image, FormatsAndNotesAreTold) {
  struct Facts {
    std::string format;
    std::vector<std::string> notes;
    std::vector<std::string> omissions = {};
  };
  const std::map<std::string, Facts> expected = {
      {"rgb16-interlaced.png", {"PNG, 16-bit RGB, interlaced", {}}},
      {"palette4.png", {"PNG, 4-bit palette", {}}},
      {"rgba8.png", {"PNG, 8-bit RGBA", {"transparent parts are put on white"}}},
      {"animated.png", {"PNG, 8-bit RGB", {}, {"animated (3 frames): first frame"}}},
      {"wide-profile.png",
       {"PNG, 8-bit RGB", {"colour profile \"wide built-in\" not converted, colours are read as sRGB"}}},
      {"srgb-profile.jpg", {"JPEG, baseline", {}}},
      {"420-progressive.jpg", {"JPEG, progressive", {}}},
      {"grey.jpg", {"JPEG, baseline, grey", {}}},
      {"ycck.jpg", {"JPEG, baseline, CMYK", {}}},
      {"orientation1.jpg", {"JPEG, baseline", {}}},
      {"orientation6.jpg", {"JPEG, baseline", {"turned by EXIF orientation 6"}}},
      {"orientation6.png", {"PNG, 8-bit RGB", {"turned by EXIF orientation 6"}}},
      {"orientation6.webp", {"WebP, lossless", {"turned by EXIF orientation 6"}}},
      {"orientation6.tif", {"TIFF, 8-bit RGB", {"turned by EXIF orientation 6"}}},
      {"lossy.webp", {"WebP, lossy", {}}},
      {"animated.webp", {"WebP, lossless", {}, {"animated (3 frames): first frame"}}},
      {"animated.gif", {"GIF", {}, {"animated: first frame"}}},
      {"transparent.gif", {"GIF", {"transparent parts are put on white"}}},
      {"interlaced.gif", {"GIF, interlaced", {}}},
      {"rle8.bmp", {"BMP, 8-bit, run lengths", {}}},
      {"pages.tif", {"TIFF, 8-bit RGB", {}, {"several pages: first page"}}},
      {"cmyk.tif", {"TIFF, 8-bit CMYK", {}}},
  };
  for (const auto& [name, facts] : expected) {
    SCOPED_TRACE(name);
    const ImageSource source = decode_file(name, kTarget).source;
    EXPECT_EQ(source.format, facts.format);
    EXPECT_EQ(source.notes, facts.notes);
    EXPECT_EQ(source.omissions, facts.omissions);
  }
}

TEST(Image, OrientationsAreEqualToTheUprightPicture) {
  const ImageTarget target{ResizeMode::kStretch, 56, 48, Filter::kBicubic};
  const std::vector<uint8_t> upright = decode_file("orientation1.jpg", target).pixels;
  // The corners of the F: a stem at the left, the arm at the top, nothing at the right below.
  const auto red_at = [&](int y, int x) { return upright[static_cast<size_t>((y * 48 + x) * 3 + 1)] < 128; };
  EXPECT_TRUE(red_at(12, 12));
  EXPECT_TRUE(red_at(12, 36));
  EXPECT_TRUE(red_at(44, 12));
  EXPECT_FALSE(red_at(44, 36));
  for (int orientation = 2; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    const Image image = decode_file("orientation" + std::to_string(orientation) + ".jpg", target);
    EXPECT_EQ(image.source.width, 48);
    EXPECT_EQ(image.source.height, 56);
    EXPECT_EQ(image.pixels, upright);
  }
}

// A JPEG of 37 x 29 with an EXIF block of one entry, cut to `size` bytes.
std::string with_exif(bool big_endian, int orientation, size_t size = 26) {
  std::string block = big_endian ? std::string("MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0?\0\0\0\0\0\0", 26)
                                 : std::string("II*\0\x08\0\0\0\1\0\x12\x01\3\0\1\0\0\0?\0\0\0\0\0\0\0", 26);
  block[block.find('?')] = static_cast<char>(orientation);
  const std::string body = std::string("Exif\0\0", 6) + block.substr(0, size);
  std::string file = read_file(kPictures / "444.jpg");
  return file.insert(2, std::string("\xFF\xE1\0", 3) + static_cast<char>(body.size() + 2) + body);
}

TEST(Image, OrientationInBothByteOrdersAndDamagedBlocks) {
  for (const bool big_endian : {false, true}) {
    for (int orientation = 0; orientation <= 9; ++orientation) {
      SCOPED_TRACE(orientation);
      const std::string file = with_exif(big_endian, orientation);
      const ImageSource source = decode_image(bytes_of(file), kTarget).source;
      EXPECT_EQ(source.width, orientation >= 5 && orientation <= 8 ? 29 : 37);
      EXPECT_EQ(source.notes.size(), orientation >= 2 && orientation <= 8 ? 1u : 0u);
    }
    for (size_t size = 0; size < 20; ++size) {
      const std::string file = with_exif(big_endian, 6, size);
      EXPECT_EQ(decode_image(bytes_of(file), kTarget).source.width, 37) << size;
    }
  }
}

// What lies under alpha 0 is hidden, and black text on nothing stays readable.
TEST(Image, TransparentPartsAreWhite) {
  const Image hidden = decode_file("rgba8.png", {ResizeMode::kStretch, 9, 19, Filter::kBicubic});
  for (size_t i = 0; i < 2 * 19 * 3; ++i) EXPECT_EQ(hidden.pixels[i], 255);
  const Image text = decode_file("black-on-transparent.png", {ResizeMode::kStretch, 9, 19, Filter::kBicubic});
  EXPECT_EQ(text.pixels[(4 * 19 + 11) * 3], 0);
  EXPECT_EQ(text.pixels[(4 * 19 + 5) * 3], 255);
}

TEST(Image, PreprocessedPicturesOfVisionModels) {
  const auto references = test::read_npz(kPictures / "shapes/references.npz");
  ASSERT_EQ(references.size(), 16u);
  for (const auto& [name, pixels] : references) {
    SCOPED_TRACE(name);
    const std::string stem = "shapes/picture" + name.substr(name.size() - 1);
    const bool png = std::filesystem::exists(kPictures / (stem + ".png"));
    const ResizeMode mode =
        name.starts_with("center_crop_bicubic") ? ResizeMode::kCenterCrop : ResizeMode::kStretch;
    const Image image = decode_file(stem + (png ? ".png" : ".jpg"),
                                    {mode, pixels.shape[0], pixels.shape[1], usual_filter(mode)});
    EXPECT_EQ(largest_difference(image.pixels, pixels.bytes), 0);
  }
}

TEST(Image, OtherFormatsAreRefusedByName) {
  using namespace std::string_view_literals;
  const std::pair<std::string_view, const char*> files[] = {
      {""sv, "empty"},
      {"\0\0\0\x18"
       "ftypheic\0\0\0\0mif1heic"sv,
       "a HEIC image"},
      {"\0\0\0\x1C"
       "ftypmif1\0\0\0\0"sv,
       "a HEIF image"},
      {"\0\0\0\x1C"
       "ftypavif\0\0\0\0"sv,
       "an AVIF image"},
      {"\0\0\0\x0CJXL \r\n\x87\n"sv, "a JPEG XL image"},
      {"\xFF\x0A\0\0"sv, "a JPEG XL image"},
      {"\0\0\0\x0CjP  \r\n\x87\n"sv, "a JPEG 2000 image"},
      {"<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>"sv, "an SVG image"},
      {"<svg><text>\xC3\xA4</text></svg>"sv, "an SVG image"},
      {"<!DOCTYPE html><html><svg/></html>"sv, "an HTML page"},
      {"%PDF-1.7\n"sv, "a PDF document"},
      {"%!PS-Adobe-3.0"sv, "a PostScript document"},
      {"8BPS\0\1"sv, "a Photoshop image"},
      {"qoif\0\0\0\1"sv, "a QOI image"},
      {"\x76\x2F\x31\x01\2\0\0\0"sv, "an OpenEXR image"},
      {"P6\n1 1\n255\n"sv, "a PPM image"},
      {"RIFF\x24\0\0\0WAVEfmt "sv, "WAV"},
      {"OggS\0"sv, "Ogg"},
      {"hello"sv, "text"},
      {"\1\2\3\4\5\6\7\x81"sv, "data of an unknown kind"},
  };
  for (const auto& [file, name] : files) {
    SCOPED_TRACE(name);
    expect_refused(file, ErrorCode::kUnsupported, std::string("this is ") + name);
    expect_refused(file, ErrorCode::kUnsupported, "JPEG, PNG, WebP, GIF, BMP and TIFF are supported");
  }
  expect_refused(
      "\0\0\0\x18"
      "ftypheic\0\0\0\0"sv,
      ErrorCode::kUnsupported, "convert it: magick INPUT picture.png");
  expect_refused("%PDF-1.7\n", ErrorCode::kUnsupported, "pdftoppm");
  // A wrong name does not matter: the bytes are a PNG.
  const std::string png = read_file(kPictures / "rgb8.png");
  EXPECT_EQ(decode_image(bytes_of(png), kTarget, "photo.jpg").source.format, "PNG, 8-bit RGB");
}

TEST(Image, UnsupportedVariantsAreNamed) {
  expect_file_refused("arithmetic.jpg", ErrorCode::kUnsupported, "a JPEG with arithmetic coding");
  expect_file_refused("12-bit.jpg", ErrorCode::kUnsupported, "a JPEG with 12 bits a sample");
  expect_file_refused("palette.tif", ErrorCode::kUnsupported, "a TIFF of an unusual kind");
  expect_file_refused("jpeg.tif", ErrorCode::kUnsupported, "a TIFF of an unusual kind");
  expect_file_refused("float.tif", ErrorCode::kUnsupported, "a TIFF with 32 bits a sample");
}

TEST(Image, DamagedFilesAreErrors) {
  expect_file_refused("bad-crc.png", ErrorCode::kMalformed, "a PNG image can't be decoded");
  expect_file_refused("missing-rows.png", ErrorCode::kMalformed, "a PNG image can't be decoded");
  for (const char* name : {"444.jpg", "420-progressive.jpg", "rgb8.png", "lossy.webp", "lossless.webp"}) {
    SCOPED_TRACE(name);
    const std::string file = read_file(kPictures / name);
    for (const size_t percent : {30, 90}) {
      const Refusal refusal = refusal_of(std::string_view(file).substr(0, file.size() * percent / 100));
      EXPECT_EQ(refusal.code, ErrorCode::kMalformed) << refusal.message;
    }
  }
}

// The decoder would write a line about such a text to standard error.
TEST(Image, TextsLongerThanAnyTiffAreRefusedInSilence) {
  using namespace std::string_literals;
  const auto entry = [](std::string_view count) { return "\x00\x01\x02\x00"s + std::string(count); };
  const std::string classic = "II*\0\x08\0\0\0\x01\0"s + entry("\0\0\0\x40"s) + "\x08\0\0\0\0\0\0\0"s;
  const std::string big = "II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"s +
                          entry("\0\0\0\0\x01\0\0\0"s) + std::string(16, '\0');
  for (const std::string& file : {classic, big}) {
    testing::internal::CaptureStderr();
    const Refusal refusal = refusal_of(file);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(refusal.code, ErrorCode::kMalformed);
    EXPECT_NE(refusal.message.find("a text is longer than the file"), std::string::npos) << refusal.message;
  }
}

// Nothing is decoded: the dimensions in the header decide.
TEST(Image, HugePicturesAreRefusedFromTheHeader) {
  expect_file_refused("bomb.png", ErrorCode::kLimit, "got 40000 x 40000 = 1600000000 pixels");
  expect_file_refused("bomb.png", ErrorCode::kLimit, "at most 64000000 pixels, sides of at most 65535");
  expect_file_refused("lying.png", ErrorCode::kMalformed, "too short for the 6000 x 6000 pixels");

  std::string jpeg = read_file(kPictures / "444.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  jpeg.replace(frame + 5, 4, "\xFF\xFF\xFF\xFF");
  expect_refused(jpeg, ErrorCode::kLimit, "got 65535 x 65535");
  jpeg.replace(frame + 5, 4, "\x1F\x40\x1F\x40");
  expect_refused(jpeg, ErrorCode::kMalformed, "too short for the 8000 x 8000 pixels");

  std::string gif = read_file(kPictures / "still.gif");
  gif.replace(6, 4, "\xFF\xFF\xFF\xFF");
  expect_refused(gif, ErrorCode::kLimit, "got 65535 x 65535");

  std::string webp = read_file(kPictures / "lossless.webp");
  webp.replace(webp.find("VP8L") + 9, 4, "\xFE\xBF\xFF\x0F");
  expect_refused(webp, ErrorCode::kLimit, "got 16383 x 16383");

  std::string bmp = read_file(kPictures / "rgb.bmp");
  bmp.replace(18, 8, std::string("\x00\x00\x01\x00\x00\x00\x01\x00", 8));
  expect_refused(bmp, ErrorCode::kLimit, "got 65536 x 65536");
  bmp.replace(18, 8, std::string("\x40\x1F\x00\x00\x40\x1F\x00\x00", 8));
  expect_refused(bmp, ErrorCode::kMalformed, "too short for the 8000 x 8000 pixels");
  bmp.replace(18, 8, std::string("\xFF\xFF\xFF\x7F\x00\x00\x00\x80", 8));
  expect_refused(bmp, ErrorCode::kLimit, "got 2147483647 x 2147483648");

  // The largest square with fewer than 2^31 pixels.
  bmp.replace(18, 8, std::string("\x04\xB5\x00\x00\x04\xB5\x00\x00", 8));
  expect_refused(bmp, ErrorCode::kLimit, "got 46340 x 46340 = 2147395600 pixels");

  const std::string large(static_cast<size_t>(kMaxImageBytes) + 1, '\xFF');
  expect_refused("\x89PNG\r\n\x1A\n" + large, ErrorCode::kLimit, "the file is too large");
}

// Whatever is cut off, it is an error or the whole picture, never a part of it and never a crash.
TEST(Image, FilesCutAnywhere) {
  for (const auto& entry : std::filesystem::directory_iterator(kPictures)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".npz") || name.ends_with(".py")) continue;
    SCOPED_TRACE(name);
    const std::string file = read_file(entry.path());
    std::vector<uint8_t> whole;
    try {
      whole = decode_image(bytes_of(file), kTarget).pixels;
    } catch (const Error&) {
    }
    for (size_t size = 0; size < file.size(); ++size) {
      try {
        EXPECT_EQ(decode_image(bytes_of(std::string_view(file).substr(0, size)), kTarget).pixels, whole)
            << size;
      } catch (const Error& error) {
        ASSERT_NE(error.code(), ErrorCode::kInternal) << size;
        ASSERT_EQ(std::string_view(error.what()).find("stopped unexpectedly"), std::string_view::npos)
            << size << ": " << error.what();
      }
    }
  }
}

TEST(Image, TargetsAreChecked) {
  const std::string file = read_file(kPictures / "rgb8.png");
  for (const auto& [height, width] :
       {std::pair<int64_t, int64_t>{0, 8}, {8, 0}, {-1, 8}, {8193, 8}, {8, 8193}}) {
    try {
      decode_image(bytes_of(file), {ResizeMode::kStretch, height, width, Filter::kBicubic});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
    }
  }
}

TEST(Image, DataUrls) {
  constexpr std::string_view kGif = "R0lGODlhAQABAIAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==";
  const std::vector<uint8_t> red = {255, 0, 0};
  const ImageTarget target{ResizeMode::kStretch, 1, 1, Filter::kBilinear};
  EXPECT_EQ(decode_image_base64(kGif, target).pixels, red);
  EXPECT_EQ(decode_image_base64("data:image/png;base64," + std::string(kGif), target).pixels, red);
  EXPECT_THROW(decode_image_base64("data:audio/wav;base64," + std::string(kGif), target), Error);
}

}  // namespace
}  // namespace dovetail::media
