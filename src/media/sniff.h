// What a file is, told from its first bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dovetail::media {

enum class Format { kWav, kFlac, kMp3, kOgg, kUnsupported };

struct Sniffed {
  Format format = Format::kUnsupported;
  std::string description;  // "a PNG image", "M4A or MP4 (AAC)", "text", "data of an unknown kind"
  bool is_audio = false;    // an unsupported audio or video file, worth converting
};

Sniffed sniff_audio(std::span<const std::byte> bytes);

}  // namespace dovetail::media
