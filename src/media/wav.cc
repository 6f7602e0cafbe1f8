#include "media/wav.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace dovetail::media {
namespace {

constexpr uint16_t kCodecPcm = 1;
constexpr uint16_t kCodecFloat = 3;
constexpr uint16_t kCodecExtensible = 0xFFFE;
constexpr int32_t kMaxSampleRate = 384000;
// Programs that write to a pipe can't know the length and declare 0xFFFFFFFF, 0x80000000 or 0x7FFFF000.
constexpr uint32_t kUnknownSize = 0x7FFF0000;
// Bytes 2…15 of the sub-format GUID that wraps a plain codec number.
constexpr uint8_t kGuidTail[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};

using Bytes = std::span<const std::byte>;

template <typename T>
T load(const std::byte* bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

std::string_view codec_name(uint16_t codec) {
  switch (codec) {
    case 0x0002:
      return "Microsoft ADPCM";
    case 0x0006:
      return "A-law";
    case 0x0007:
      return "mu-law";
    case 0x0011:
      return "IMA ADPCM";
    case 0x0031:
      return "GSM 6.10";
    case 0x0050:
      return "MPEG layer I or II";
    case 0x0055:
      return "MP3 inside WAV";
    case 0x00FF:
      return "AAC inside WAV";
    case 0x0161:
      return "Windows Media Audio";
    case 0x2000:
      return "AC-3";
    case 0xFFFE:
      return "WAVE_FORMAT_EXTENSIBLE with an unknown sub-format";
    default:
      return "an unknown codec";
  }
}

struct Reader {
  std::string_view name;
  const std::string& hint;

  [[noreturn]] void malformed(std::string message, std::string field = "", std::string expected = "",
                              std::string actual = "") const {
    fail(ErrorCode::kMalformed, std::move(message), std::move(field), std::move(expected), std::move(actual));
  }
  [[noreturn]] void unsupported(std::string message, std::string expected, std::string actual) const {
    fail(ErrorCode::kUnsupported, std::move(message), "fmt chunk", std::move(expected), std::move(actual));
  }
  [[noreturn]] void fail(ErrorCode code, std::string message, std::string field, std::string expected,
                         std::string actual) const {
    throw Error(code, Problem{.message = std::move(message),
                              .source = std::string(name),
                              .field = std::move(field),
                              .expected = std::move(expected),
                              .actual = std::move(actual),
                              .hint = hint});
  }
};

struct Chunks {
  std::optional<Bytes> fmt;
  std::optional<Bytes> data;
  bool unknown_length = false;
};

// True when `rest` is a sequence of whole chunks, as it is behind a data chunk that is really empty.
bool is_chunk_sequence(Bytes rest) {
  size_t at = 0;
  while (at + 8 <= rest.size()) {
    const uint64_t size = load<uint32_t>(rest.data() + at + 4);
    if (size > rest.size() - at - 8) return false;
    at += 8 + size + (size & 1);
  }
  return at >= rest.size();
}

Chunks walk(Bytes bytes, const Reader& reader) {
  Chunks chunks;
  size_t at = 12;
  while (at + 8 <= bytes.size()) {
    const std::string_view id(reinterpret_cast<const char*>(bytes.data()) + at, 4);
    const uint32_t declared = load<uint32_t>(bytes.data() + at + 4);
    const Bytes rest = bytes.subspan(at + 8);
    uint64_t size = declared;
    if (id == "data" && ((declared >= kUnknownSize && declared > rest.size()) ||
                         (declared == 0 && !is_chunk_sequence(rest)))) {
      chunks.unknown_length = true;
      size = rest.size();
    }
    if (size > rest.size()) {
      reader.malformed("WAV " + printable(id) + " chunk is truncated", printable(id) + " chunk",
                       std::to_string(size) + " bytes", std::to_string(rest.size()) + " bytes");
    }
    if (id == "fmt " && size < 16) {
      reader.malformed("WAV fmt chunk is truncated", "fmt chunk", "at least 16 bytes",
                       std::to_string(size) + " bytes");
    }
    if (id == "fmt ") chunks.fmt = rest.first(size);
    if (id == "data") chunks.data = rest.first(size);
    at += 8 + size + (size & 1);
  }
  return chunks;
}

// The codec inside WAVE_FORMAT_EXTENSIBLE, or kCodecExtensible when the sub-format is not a plain codec.
uint16_t extensible_codec(Bytes fmt, const Reader& reader) {
  if (fmt.size() < 40 || load<uint16_t>(fmt.data() + 16) < 22) {
    reader.malformed("WAV extensible fmt chunk is truncated", "fmt chunk", "at least 40 bytes",
                     std::to_string(fmt.size()) + " bytes");
  }
  const int bits = load<uint16_t>(fmt.data() + 14);
  const int valid_bits = load<uint16_t>(fmt.data() + 18);
  if (valid_bits < 1 || valid_bits > bits) {
    reader.malformed("WAV valid bits per sample must fit the container bit depth", "fmt chunk",
                     "1.." + std::to_string(bits), std::to_string(valid_bits));
  }
  if (std::memcmp(fmt.data() + 26, kGuidTail, sizeof kGuidTail) != 0) return kCodecExtensible;
  return load<uint16_t>(fmt.data() + 24);
}

double sample_at(const std::byte* bytes, int32_t bits, bool is_float) {
  if (is_float) return bits == 32 ? static_cast<double>(load<float>(bytes)) : load<double>(bytes);
  switch (bits) {
    case 8:
      return (load<uint8_t>(bytes) - 128) / 128.0;
    case 16:
      return load<int16_t>(bytes) / 32768.0;
    case 24: {
      const uint32_t value = load<uint16_t>(bytes) | static_cast<uint32_t>(load<uint8_t>(bytes + 2)) << 16;
      return (static_cast<int32_t>(value << 8) >> 8) / 8388608.0;
    }
    default:
      return load<int32_t>(bytes) / 2147483648.0;
  }
}

}  // namespace

Wav parse_wav(std::span<const std::byte> bytes, std::string_view name, const std::string& hint) {
  const Reader reader{name, hint};
  if (bytes.size() < 12) {
    reader.malformed("WAV input is truncated", "RIFF header", "at least 12 bytes",
                     std::to_string(bytes.size()) + " bytes");
  }
  Chunks chunks = walk(bytes, reader);
  if (!chunks.fmt || !chunks.data) {
    reader.malformed("WAV input requires fmt and data chunks", "", "both",
                     chunks.fmt    ? "no data chunk"
                     : chunks.data ? "no fmt chunk"
                                   : "neither");
  }

  const Bytes fmt = *chunks.fmt;
  uint16_t codec = load<uint16_t>(fmt.data());
  const uint32_t channels = load<uint16_t>(fmt.data() + 2);
  const uint32_t rate = load<uint32_t>(fmt.data() + 4);
  const uint32_t block = load<uint16_t>(fmt.data() + 12);
  const uint32_t bits = load<uint16_t>(fmt.data() + 14);
  if (codec == kCodecExtensible) codec = extensible_codec(fmt, reader);
  if (channels == 0 || rate == 0 || block == 0) {
    reader.malformed("WAV channel count, sample rate, and block alignment must be positive", "fmt chunk",
                     "all > 0",
                     std::to_string(channels) + ", " + std::to_string(rate) + ", " + std::to_string(block));
  }
  if (codec != kCodecPcm && codec != kCodecFloat) {
    reader.unsupported(
        "WAV codec " + std::to_string(codec) + " is unsupported; use PCM integer or IEEE float WAV",
        "codec 1 or 3", std::string(codec_name(codec)));
  }
  const bool is_float = codec == kCodecFloat;
  const bool known =
      is_float ? bits == 32 || bits == 64 : bits == 8 || bits == 16 || bits == 24 || bits == 32;
  if (!known) {
    reader.unsupported(
        "unsupported WAV sample format: codec=" + std::to_string(codec) + ", bits=" + std::to_string(bits),
        is_float ? "32 or 64 bits" : "8, 16, 24 or 32 bits", std::to_string(bits));
  }
  if (rate > kMaxSampleRate) {
    reader.unsupported("WAV sample rate must not exceed 384000", "1..384000 Hz",
                       std::to_string(rate) + " Hz");
  }

  Wav wav;
  size_t size = chunks.data->size();
  if (chunks.unknown_length) {
    wav.notes.push_back("the WAV header does not know its length; all " + std::to_string(size) +
                        " bytes up to the end of the file were used");
    size -= size % block;
  }
  if (block != channels * (bits / 8) || size % block != 0) {
    reader.malformed("WAV block alignment does not match its sample format", "fmt chunk",
                     std::to_string(channels * (bits / 8)) + " bytes a frame",
                     std::to_string(block) + " bytes a frame, " + std::to_string(size) + " bytes of data");
  }
  wav.data = chunks.data->first(size);
  wav.sample_rate_hz = static_cast<int32_t>(rate);
  wav.channels = static_cast<int32_t>(channels);
  wav.bits = static_cast<int32_t>(bits);
  wav.is_float = is_float;
  wav.frames = static_cast<int64_t>(size / block);
  return wav;
}

std::vector<float> read_mono(const Wav& wav, std::string_view name) {
  const auto stride = static_cast<size_t>(wav.bits / 8);
  std::vector<float> mono(static_cast<size_t>(wav.frames));
  const std::byte* at = wav.data.data();
  for (size_t frame = 0; frame < mono.size(); ++frame) {
    double sum = 0.0;
    for (int32_t channel = 0; channel < wav.channels; ++channel, at += stride) {
      sum += sample_at(at, wav.bits, wav.is_float);
    }
    const double mean = wav.channels == 1 ? sum : sum / wav.channels;
    // Written so that values beyond the range of float32, which would become infinite, are caught too.
    if (!std::isfinite(static_cast<float>(mean))) {
      throw Error(
          ErrorCode::kMalformed,
          Problem{
              .message = "WAV input contains a non-finite sample",
              .source = std::string(name),
              .field = "frame " + std::to_string(frame),
              .expected = "finite float32 values",
              .actual = std::to_string(mean),
              .hint = "the program that wrote the file computed NaN or infinity; record or export it again"});
    }
    mono[frame] = static_cast<float>(mean);
  }
  return mono;
}

}  // namespace dovetail::media
