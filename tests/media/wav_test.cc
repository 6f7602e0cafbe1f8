// Files as programs in the wild write them, and files that nobody should write.
#include "media/wav.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "media/audio.h"
#include "wav_builder.h"

namespace dovetail::media {
namespace {

constexpr AudioTarget kTarget{16000, 1, 480000};

Audio decode(const std::string& file) { return decode_audio(bytes_of(file), kTarget); }

std::string message_of(const std::string& file) {
  try {
    decode(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

void set_size(std::string& file, const std::string& id, uint32_t size) {
  std::memcpy(file.data() + file.find(id) + 4, &size, sizeof size);
}

TEST(Wav, EveryEncodingGivesTheSameTone) {
  const std::vector<double> tone = sine(440, 16000, 1600);
  const std::vector<WavFormat> formats = {
      {.bits = 8},
      {.bits = 16},
      {.bits = 24},
      {.bits = 32},
      {.codec = 3, .bits = 32},
      {.codec = 3, .bits = 64},
      {.bits = 16, .valid_bits = 16},
      {.bits = 24, .valid_bits = 20},
      {.bits = 32, .valid_bits = 24},
      {.codec = 3, .bits = 32, .valid_bits = 32},
      {.codec = 3, .bits = 64, .valid_bits = 64},
  };
  for (const WavFormat& format : formats) {
    const Audio audio = decode(wav(format, tone));
    ASSERT_EQ(audio.samples.size(), tone.size());
    const double step = format.codec == 3 ? 1e-7 : std::max(std::ldexp(1.0, -format.bits), 1e-7);
    for (size_t i = 0; i < tone.size(); ++i) ASSERT_NEAR(audio.samples[i], tone[i], step) << format.bits;
  }
}

TEST(Wav, EveryRate) {
  for (uint32_t rate :
       {8000u, 11025u, 16000u, 22050u, 24000u, 32000u, 44056u, 44100u, 48000u, 88200u, 96000u, 192000u}) {
    const Audio audio = decode(wav({.rate = rate}, sine(440, rate, rate)));
    ASSERT_EQ(audio.samples.size(), 16000u) << rate;
    EXPECT_EQ(audio.source.seconds(), 1.0);
    const std::vector<double> expected = sine(440, 16000, 16000);
    for (size_t i = 200; i < 15800; ++i)
      ASSERT_NEAR(audio.samples[i], expected[i], 1e-3) << rate << " at " << i;
  }
  EXPECT_EQ(decode(wav({.rate = 1}, {0.5, 0.5})).samples.size(), 32000u);
  EXPECT_HAS(message_of(wav({.rate = 0}, {0.5})), "must be positive");
  EXPECT_HAS(message_of(wav({.rate = 4000000000}, {0.5})), "must not exceed 384000");
}

TEST(Wav, CodecsAreRefusedByName) {
  const std::pair<uint16_t, const char*> codecs[] = {
      {2, "Microsoft ADPCM"},   {6, "A-law"},       {7, "mu-law"},      {0x11, "IMA ADPCM"}, {0x31, "GSM"},
      {0x55, "MP3 inside WAV"}, {0x161, "Windows"}, {0x1234, "unknown"}};
  for (const auto& [codec, name] : codecs) {
    for (uint16_t valid_bits : {0, 8}) {
      const std::string file = riff(fmt_chunk({.codec = codec, .bits = 8, .valid_bits = valid_bits}) +
                                    chunk("data", std::string(400, 'x')));
      EXPECT_HAS(message_of(file), name);
      EXPECT_HAS(message_of(file), "ffmpeg -i INPUT");
    }
  }
}

TEST(Wav, ChunksInAnyOrder) {
  const std::string fmt = fmt_chunk({});
  const std::string data = chunk("data", encode({}, sine(440, 16000, 1600)));
  const std::string junk = chunk("JUNK", std::string(33, '\xAA'));
  const std::string list = chunk("LIST", "INFOISFT\x05\0\0\0odd..");
  const std::string fact = chunk("fact", std::string(4, '\0'));
  const std::string bext = chunk("bext", std::string(602, 'b'));
  const std::vector<float> expected = decode(riff(fmt + data)).samples;
  for (const std::string& chunks :
       {junk + fmt + data, list + fmt + data, fmt + fact + data, bext + fmt + junk + data + list, data + fmt,
        fmt + data + "tail", fmt + data + std::string("\0\0\0", 3)}) {
    EXPECT_EQ(decode(riff(chunks)).samples, expected);
  }
  const std::string second = chunk("data", encode({}, {0.5, 0.25}));
  EXPECT_EQ(decode(riff(fmt + data + second)).samples, (std::vector<float>{0.5f, 0.25f}));
  EXPECT_HAS(message_of(riff(fmt)), "requires fmt and data chunks");
  EXPECT_HAS(message_of(riff(data)), "no fmt chunk");
  EXPECT_HAS(message_of(riff("")), "neither");
}

TEST(Wav, LengthsThatStreamingWritersLeaveOpen) {
  const std::vector<double> tone = sine(440, 16000, 1600);
  const std::string whole = wav({}, tone);
  const std::vector<float> expected = decode(whole).samples;
  for (uint32_t size : {0xFFFFFFFFu, 0xFFFFFFD8u, 0x80000000u, 0x7FFFF000u, 0u}) {
    std::string file = whole;
    set_size(file, "data", size);
    set_size(file, "RIFF", size == 0 ? 0 : 0xFFFFFFFF);
    const Audio audio = decode(file);
    EXPECT_EQ(audio.samples, expected) << size;
    ASSERT_EQ(audio.source.notes.size(), 1u);
    EXPECT_HAS(audio.source.notes[0], "does not know its length");
    // The stream was cut inside a frame: the whole frames count.
    EXPECT_EQ(decode(file + "x").samples, expected);
  }
  EXPECT_TRUE(decode(whole).source.notes.empty());
}

TEST(Wav, AnEmptyDataChunkBeforeOtherChunksIsEmpty) {
  const std::string file = riff(fmt_chunk({}) + chunk("data", "") + chunk("LIST", "INFO"));
  EXPECT_HAS(message_of(file), "got 0");
}

TEST(Wav, SizesThatDoNotFit) {
  const std::string whole = wav({}, sine(440, 16000, 100));
  std::string file = whole;
  set_size(file, "data", 1000);
  EXPECT_HAS(message_of(file), "WAV data chunk is truncated");
  EXPECT_HAS(message_of(file), "expected 1000 bytes, got 200 bytes");
  file = riff(chunk("LIST", "INFO") + fmt_chunk({}));
  set_size(file, "LIST", 0xFFFFFFFF);
  EXPECT_HAS(message_of(file), "WAV LIST chunk is truncated");
  for (uint32_t size : {0u, 1u, 0xFFFFFFFFu}) {
    file = whole;
    set_size(file, "RIFF", size);
    EXPECT_EQ(decode(file).samples.size(), 100u);
  }
  file = riff(fmt_chunk({}) + chunk("data", std::string(201, '\0')));
  EXPECT_HAS(message_of(file), "block alignment");
}

TEST(Wav, Values) {
  const WavFormat f32{.codec = 3, .bits = 32};
  const WavFormat f64{.codec = 3, .bits = 64};
  EXPECT_EQ(decode(wav(f32, {0.0, 0.0})).samples, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(decode(wav({}, {-1.0, 1.0})).samples, (std::vector<float>{-1.0f, 32767.0f / 32768}));
  EXPECT_EQ(decode(wav(f32, {2.5, -3.0})).samples, (std::vector<float>{2.5f, -3.0f}));
  EXPECT_EQ(decode(wav(f32, {1e-42})).samples, std::vector<float>{1e-42f});
  const double infinity = std::numeric_limits<double>::infinity();
  for (const WavFormat& format : {f32, f64}) {
    for (double bad : {infinity, -infinity, std::nan("")}) {
      EXPECT_HAS(message_of(wav(format, {0.0, bad})), "non-finite sample");
      EXPECT_HAS(message_of(wav(format, {0.0, bad})), "frame 1");
    }
  }
  EXPECT_HAS(message_of(wav(f64, {1e300})), "non-finite sample");  // beyond float32
}

TEST(Wav, ManyChannels) {
  std::vector<double> samples(65535 * 2, 0.25);
  const WavFormat format{.channels = 65535, .bits = 8};
  std::string file = riff(fmt_chunk(format) + chunk("data", encode(format, samples)));
  EXPECT_EQ(decode(file).samples, (std::vector<float>{0.25f, 0.25f}));
}

TEST(Wav, CutAtEveryLength) {
  const std::string file = riff(chunk("LIST", "abc") + fmt_chunk({.bits = 16, .valid_bits = 16}) +
                                chunk("data", std::string(40, '\1')));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THROW(decode(file.substr(0, size)), Error) << size;
  }
}

TEST(Wav, AnyFlippedByteIsAnErrorOrARecording) {
  const std::string file = wav({.channels = 2, .bits = 24, .valid_bits = 20}, sine(440, 16000, 64));
  for (size_t at = 0; at < 80; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[at] = static_cast<char>(value);
      try {
        EXPECT_GE(decode(changed).samples.size(), 1u);
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::kInternal);
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::media
