#include "media/image.h"

#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "dovetail_rust.h"
#include "media/base64.h"
#include "media/rust_text.h"
#include "media/sniff.h"

namespace dovetail::media {
namespace {

constexpr std::string_view kConversionHint = "convert it: magick INPUT picture.png";

[[noreturn]] void fail(ErrorCode code, std::string_view source, std::string message, std::string_view hint) {
  throw Error(
      code, Problem{.message = std::move(message), .source = std::string(source), .hint = std::string(hint)});
}

std::string size_text(int64_t width, int64_t height) {
  return std::to_string(width) + " x " + std::to_string(height);
}

void check_target(const ImageTarget& target) {
  if (target.height < 1 || target.height > kMaxTargetSide || target.width < 1 ||
      target.width > kMaxTargetSide) {
    throw Error(ErrorCode::kUsage, Problem{.message = "image processor is out of bounds",
                                           .expected = "sides of 1.." + std::to_string(kMaxTargetSide),
                                           .actual = size_text(target.width, target.height)});
  }
}

struct Decoder {
  uint32_t format;
  std::string_view name;
};

std::optional<Decoder> decoder_of(Format format) {
  switch (format) {
    case Format::kJpeg:
      return Decoder{DOVETAIL_IMAGE_JPEG, "JPEG"};
    case Format::kPng:
      return Decoder{DOVETAIL_IMAGE_PNG, "PNG"};
    case Format::kWebp:
      return Decoder{DOVETAIL_IMAGE_WEBP, "WebP"};
    case Format::kGif:
      return Decoder{DOVETAIL_IMAGE_GIF, "GIF"};
    case Format::kBmp:
      return Decoder{DOVETAIL_IMAGE_BMP, "BMP"};
    case Format::kTiff:
      return Decoder{DOVETAIL_IMAGE_TIFF, "TIFF"};
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse_format(const Sniffed& kind, std::string_view source) {
  std::string_view hint = "give the name of a picture";
  if (kind.kind == Kind::kImage) {
    hint = kConversionHint;
  } else if (kind.description.starts_with("a PDF") || kind.description.starts_with("a PostScript")) {
    hint = "make a picture of the page: pdftoppm -png -r 150 INPUT page";
  }
  fail(ErrorCode::kUnsupported, source,
       "this is " + kind.description + "; JPEG, PNG, WebP, GIF, BMP and TIFF are supported", hint);
}

// The decoder has refused the dimensions in the header: too large, or more than the file can hold.
[[noreturn]] void refuse_size(int64_t width, int64_t height, uint64_t least_bytes, size_t file_bytes,
                              std::string_view source) {
  const std::string actual = size_text(width, height);
  if (width > kMaxImageSide || height > kMaxImageSide || width * height > kMaxImagePixels) {
    throw Error(ErrorCode::kLimit,
                Problem{.message = "the picture is too large",
                        .source = std::string(source),
                        .expected = "at most " + std::to_string(kMaxImagePixels) +
                                    " pixels, sides of at most " + std::to_string(kMaxImageSide),
                        .actual = actual + " = " + std::to_string(width * height) + " pixels",
                        .hint = "make it smaller: magick INPUT -resize 4096x4096 picture.png"});
  }
  throw Error(
      ErrorCode::kMalformed,
      Problem{.message = "the file is too short for the " + actual + " pixels that its header tells of",
              .source = std::string(source),
              .expected = "at least " + std::to_string(least_bytes) + " bytes",
              .actual = std::to_string(file_bytes) + " bytes",
              .hint = "the file is damaged or made up; save the picture again"});
}

std::vector<std::string> printable_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(printable(line));
  return lines;
}

// Frees the decoded pixels on every path.
struct Decoded {
  DovetailImage image{};
  Decoded() = default;
  Decoded(const Decoded&) = delete;
  Decoded& operator=(const Decoded&) = delete;
  ~Decoded() { dovetail_rust_free_bytes(image.pixels); }
};

void check_file_size(size_t size, std::string_view source) {
  if (size <= static_cast<size_t>(kMaxImageBytes)) return;
  throw Error(ErrorCode::kLimit,
              Problem{.message = "the file is too large",
                      .source = std::string(source),
                      .expected = "at most " + format_bytes(kMaxImageBytes),
                      .actual = format_bytes(static_cast<int64_t>(size)),
                      .hint = "make it smaller: magick INPUT -resize 4096x4096 picture.png"});
}

}  // namespace

Image decode_image(std::span<const std::byte> bytes, const ImageTarget& target, std::string_view source) {
  check_target(target);
  const Sniffed kind = sniff(bytes);
  const std::optional<Decoder> decoder = decoder_of(kind.format);
  if (!decoder) refuse_format(kind, source);
  check_file_size(bytes.size(), source);

  Decoded decoded;
  DovetailImage& image = decoded.image;
  DovetailRustText error{};
  if (!dovetail_image_decode(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), decoder->format,
                             static_cast<uint32_t>(kMaxImageSide), static_cast<uint64_t>(kMaxImagePixels),
                             &image, &error)) {
    fail(ErrorCode::kMalformed, source, kind.description + " can't be decoded: " + printable(take(error)),
         "open it in a viewer to see whether it is whole; save the picture again");
  }
  const std::string details = printable(take(image.details));
  std::vector<std::string> omissions = printable_lines(take(image.omissions));
  std::vector<std::string> notes = printable_lines(take(image.notes));
  if (image.outcome == DOVETAIL_IMAGE_REFUSED) {
    refuse_size(image.stored_width, image.stored_height, image.least_bytes, bytes.size(), source);
  }
  if (image.outcome == DOVETAIL_IMAGE_UNSUPPORTED) {
    fail(ErrorCode::kUnsupported, source, "this is " + details + ", which is not supported", kConversionHint);
  }

  Image result{.pixels = {},
               .height = target.height,
               .width = target.width,
               .source = {.format = std::string(decoder->name) + (details.empty() ? "" : ", " + details),
                          .width = image.width,
                          .height = image.height,
                          .omissions = std::move(omissions),
                          .notes = std::move(notes)}};
  const ResizePlan plan = plan_resize(target.mode, image.width, image.height, target.width, target.height);
  result.pixels = resize_rgb({image.pixels.data, image.pixels.size}, {image.width, image.height}, plan,
                             {target.width, target.height}, target.filter);
  return result;
}

Image decode_image_base64(std::string_view text, const ImageTarget& target, std::string_view source) {
  const std::vector<std::byte> bytes = decode_base64_or_data_url(text, "image", source);
  return decode_image(bytes, target, source);
}

}  // namespace dovetail::media
