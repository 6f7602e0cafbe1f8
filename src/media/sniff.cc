#include "media/sniff.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace dovetail::media {
namespace {

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view description;
  Kind kind;
  Format format = Format::kUnsupported;
};

using namespace std::string_view_literals;

constexpr Signature kSignatures[] = {
    {0, "RIFX"sv, "RIFX (WAV with big-endian samples)", Kind::kAudio},
    {0, "RF64"sv, "RF64 (WAV with 64-bit sizes)", Kind::kAudio},
    {0, "BW64"sv, "BW64 (WAV with 64-bit sizes)", Kind::kAudio},
    {0, "riff\x2E\x91\xCF\x11"sv, "Sony Wave64", Kind::kAudio},
    {8, "AVI "sv, "an AVI video", Kind::kAudio},
    {8, "WEBP"sv, "a WebP image", Kind::kImage, Format::kWebp},
    {8, "AIFF"sv, "AIFF", Kind::kAudio},
    {8, "AIFC"sv, "AIFF-C", Kind::kAudio},
    {4, "ftypM4A"sv, "M4A (AAC or ALAC)", Kind::kAudio},
    {4, "ftypheic"sv, "a HEIC image", Kind::kImage},
    {4, "ftypheix"sv, "a HEIC image", Kind::kImage},
    {4, "ftypmif1"sv, "a HEIF image", Kind::kImage},
    {4, "ftypheim"sv, "a HEIC image", Kind::kImage},
    {4, "ftypheis"sv, "a HEIC image", Kind::kImage},
    {4, "ftyphevc"sv, "a HEIC image", Kind::kImage},
    {4, "ftypmsf1"sv, "a HEIF image", Kind::kImage},
    {4, "ftypavis"sv, "an AVIF image", Kind::kImage},
    {4, "ftypavif"sv, "an AVIF image", Kind::kImage},
    {4, "ftypqt"sv, "a QuickTime video", Kind::kAudio},
    {4, "ftyp"sv, "MP4 or M4A (AAC)", Kind::kAudio},
    {0, "\x1A\x45\xDF\xA3"sv, "WebM or Matroska (often Opus)", Kind::kAudio},
    {0, "\x30\x26\xB2\x75\x8E\x66\xCF\x11"sv, "WMA or ASF", Kind::kAudio},
    {0, ".snd"sv, "Sun AU", Kind::kAudio},
    {0, "#!AMR"sv, "AMR", Kind::kAudio},
    {0, "#!SILK"sv, "SILK", Kind::kAudio},
    {0, "caff"sv, "Apple CAF", Kind::kAudio},
    {0, "wvpk"sv, "WavPack", Kind::kAudio},
    {0, "MAC "sv, "Monkey's Audio", Kind::kAudio},
    {0, "TTA1"sv, "True Audio", Kind::kAudio},
    {0, "MPCK"sv, "Musepack", Kind::kAudio},
    {0, "MThd"sv, "MIDI (notes, not sound)", Kind::kOther},
    {0, "ADIF"sv, "AAC (ADIF)", Kind::kAudio},
    {0, "\x89PNG"sv, "a PNG image", Kind::kImage, Format::kPng},
    {0, "\xFF\xD8\xFF"sv, "a JPEG image", Kind::kImage, Format::kJpeg},
    {0, "GIF8"sv, "a GIF image", Kind::kImage, Format::kGif},
    {0, "II*\0"sv, "a TIFF image", Kind::kImage, Format::kTiff},
    {0, "II+\0"sv, "a TIFF image", Kind::kImage, Format::kTiff},
    {0, "MM\0+"sv, "a TIFF image", Kind::kImage, Format::kTiff},
    {0, "MM\0*"sv, "a TIFF image", Kind::kImage, Format::kTiff},
    {0, "\0\0\0\x0CJXL \r\n\x87\n"sv, "a JPEG XL image", Kind::kImage},
    {0, "\xFF\x0A"sv, "a JPEG XL image", Kind::kImage},
    {0, "\0\0\0\x0CjP  \r\n\x87\n"sv, "a JPEG 2000 image", Kind::kImage},
    {0, "\xFF\x4F\xFF\x51"sv, "a JPEG 2000 image", Kind::kImage},
    {0, "8BPS"sv, "a Photoshop image", Kind::kImage},
    {0, "\x76\x2F\x31\x01"sv, "an OpenEXR image", Kind::kImage},
    {0, "#?RADIANCE"sv, "a Radiance HDR image", Kind::kImage},
    {0, "qoif"sv, "a QOI image", Kind::kImage},
    {0, "DDS "sv, "a DDS image", Kind::kImage},
    {0, "P4\n"sv, "a PBM image", Kind::kImage},
    {0, "P5\n"sv, "a PGM image", Kind::kImage},
    {0, "P6\n"sv, "a PPM image", Kind::kImage},
    {0, "%!PS"sv, "a PostScript document", Kind::kOther},
    {0, "%PDF"sv, "a PDF document", Kind::kOther},
    {0, "PK\x03\x04"sv, "a ZIP archive", Kind::kOther},
    {0, "\x1F\x8B"sv, "gzip data", Kind::kOther},
    {0, "version https://git-lfs"sv, "a Git LFS pointer, not the file itself (run git lfs pull)",
     Kind::kOther},
};

constexpr Signature kOggCodecs[] = {
    {0, "\x01vorbis"sv, "Ogg Vorbis", Kind::kAudio},
    {0,
     "\x7F"
     "FLAC"sv,
     "Ogg FLAC", Kind::kAudio},
    {0, "OpusHead"sv, "Opus in Ogg", Kind::kAudio},
    {0, "Speex   "sv, "Speex in Ogg", Kind::kAudio},
    {0, "\x80theora"sv, "an Ogg Theora video", Kind::kAudio},
};

bool has(std::string_view text, const Signature& signature) {
  return text.size() >= signature.offset && text.substr(signature.offset).starts_with(signature.bytes);
}

// Size in bytes of the MPEG audio frame whose header starts `text`, 0 when there is none. `layer` is 1, 2
// or 3.
size_t mpeg_frame_size(std::string_view text, int& layer) {
  if (text.size() < 4) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) != 0xFF || (byte(1) & 0xE0) != 0xE0) return 0;
  const int version = byte(1) >> 3 & 3;  // 0: 2.5, 2: 2, 3: 1
  layer = 4 - (byte(1) >> 1 & 3);
  const int bitrate_index = byte(2) >> 4;
  const int rate_index = byte(2) >> 2 & 3;
  if (version == 1 || layer == 4 || bitrate_index == 0 || bitrate_index == 15 || rate_index == 3) return 0;
  if (layer != 3) return 4;
  constexpr int kBitrates[2][15] = {{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
                                    {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}};
  constexpr int kRates[3] = {44100, 48000, 32000};
  const bool mpeg1 = version == 3;
  const int rate = kRates[rate_index] >> (mpeg1 ? 0 : version == 2 ? 1 : 2);
  const int bitrate = kBitrates[mpeg1 ? 1 : 0][bitrate_index] * 1000;
  return static_cast<size_t>((mpeg1 ? 144 : 72) * bitrate / rate + (byte(2) >> 1 & 1));
}

bool is_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return byte >= 32 ? byte != 127 : byte == '\t' || byte == '\n' || byte == '\r';
  });
}

Sniffed sniff_ogg(std::string_view text) {
  // The first packet follows the page header, whose last fields are the number of segments and their sizes.
  const size_t packet = text.size() > 26 ? 27 + static_cast<uint8_t>(text[26]) : text.size();
  const std::string_view codec = packet < text.size() ? text.substr(packet) : "";
  for (const Signature& signature : kOggCodecs) {
    if (!has(codec, signature)) continue;
    const bool supported = signature.description == "Ogg Vorbis" || signature.description == "Ogg FLAC";
    return {supported ? Format::kOgg : Format::kUnsupported, std::string(signature.description),
            Kind::kAudio};
  }
  return {Format::kUnsupported, "Ogg with an unknown codec", Kind::kAudio};
}

}  // namespace

Sniffed sniff(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) return {Format::kUnsupported, "empty", Kind::kOther};
  if (text.starts_with("RIFF") && (text.size() < 12 || text.substr(8, 4) == "WAVE")) {
    return {Format::kWav, "WAV", Kind::kAudio};
  }
  if (text.starts_with("fLaC")) return {Format::kFlac, "FLAC", Kind::kAudio};
  if (text.starts_with("OggS")) return sniff_ogg(text);
  if (text.size() >= 4 && text.starts_with("\xFF\xFE") && text[3] == '\0') {
    return {Format::kUnsupported, "UTF-16 text", Kind::kOther};
  }
  std::string_view body = text;
  if (text.starts_with("ID3") && text.size() >= 10) {
    size_t size = 10;
    for (size_t i = 6, shift = 21; i < 10; ++i, shift -= 7) {
      size += static_cast<size_t>(static_cast<uint8_t>(text[i]) & 0x7F) << shift;
    }
    body = text.substr(std::min(size, text.size()));
    if (body.starts_with("fLaC")) return {Format::kFlac, "FLAC", Kind::kAudio};
  }
  for (const Signature& signature : kSignatures) {
    if (has(text, signature)) return {signature.format, std::string(signature.description), signature.kind};
  }
  if (body.size() >= 2 && static_cast<uint8_t>(body[0]) == 0xFF &&
      (static_cast<uint8_t>(body[1]) & 0xF6) == 0xF0) {
    return {Format::kUnsupported, "AAC (ADTS)", Kind::kAudio};
  }
  int layer = 0;
  int next_layer = 0;
  const size_t frame = mpeg_frame_size(body, layer);
  if (frame > 0 && layer != 3) return {Format::kUnsupported, "MPEG audio layer I or II", Kind::kAudio};
  // Two frame headers in a row, or a single frame: two bytes alone would be met in arbitrary data.
  if (frame > 0 && (frame + 4 > body.size() || mpeg_frame_size(body.substr(frame), next_layer) > 0)) {
    return {Format::kMp3, "MP3", Kind::kAudio};
  }
  if (body.size() < text.size() || text.starts_with("ID3")) return {Format::kMp3, "MP3", Kind::kAudio};
  if (text.starts_with("BM") && text.size() > 14 && text.substr(6, 4) == std::string_view("\0\0\0\0", 4)) {
    return {Format::kBmp, "a BMP image", Kind::kImage};
  }
  const std::string_view start = text.substr(0, 512);
  const auto mentions = [start](std::string_view part) { return start.find(part) != std::string_view::npos; };
  if (mentions("<html") || mentions("<!DOCTYPE html")) {
    return {Format::kUnsupported, "an HTML page", Kind::kOther};
  }
  if (mentions("<svg")) return {Format::kUnsupported, "an SVG image", Kind::kImage};
  if (is_text(start)) return {Format::kUnsupported, "text", Kind::kOther};
  return {Format::kUnsupported, "data of an unknown kind", Kind::kOther};
}

}  // namespace dovetail::media
