// What a file is, told from its first bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dovetail::media {

enum class Format { kWav, kFlac, kMp3, kOgg, kJpeg, kPng, kWebp, kGif, kBmp, kTiff, kUnsupported };

// Audio includes video: it is worth converting to audio.
enum class Kind { kAudio, kImage, kOther };

struct Sniffed {
  Format format = Format::kUnsupported;
  std::string description;  // "a PNG image", "M4A or MP4 (AAC)", "text", "data of an unknown kind"
  Kind kind = Kind::kOther;
};

Sniffed sniff(std::span<const std::byte> bytes);

}  // namespace dovetail::media
