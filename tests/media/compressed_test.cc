// FLAC, MP3 and Ogg. tests/data/media/make.sh says what the recordings hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "media/audio.h"
#include "wav_builder.h"

namespace dovetail::media {
namespace {

constexpr AudioTarget kTarget{16000, 161, 480000};

std::string load(const std::string& name) {
  return read_file(std::filesystem::path(DOVETAIL_TEST_DATA "/media") / name);
}

std::string message_of(const std::string& file, const AudioTarget& target = kTarget) {
  try {
    decode_audio(bytes_of(file), target);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// What the recordings hold, averaged over the channels, at `rate`.
std::vector<double> recording(size_t channels, double rate, double seconds) {
  std::vector<double> samples(static_cast<size_t>(std::lround(rate * seconds)));
  for (size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / rate;
    samples[i] = 0.4 * std::sin(2 * std::numbers::pi * 440 * t);
    if (channels == 1) continue;
    samples[i] += 0.3 * std::sin(2 * std::numbers::pi * (300 * t + 750 / seconds * t * t));
    samples[i] /= 2;
  }
  return samples;
}

// Root mean square of the difference, in decibels below that of `expected`, without 20 ms at each end.
double error_db(const std::vector<float>& samples, const std::vector<double>& expected) {
  double difference = 0;
  double signal = 0;
  for (size_t i = 320; i + 320 < expected.size(); ++i) {
    difference += (samples[i] - expected[i]) * (samples[i] - expected[i]);
    signal += expected[i] * expected[i];
  }
  return 10 * std::log10(difference / signal);
}

struct Case {
  const char* file;
  const char* format;
  int32_t rate;
  int32_t channels;
  double seconds;
  double max_error_db;
};

constexpr Case kCases[] = {
    {"mono-16k.flac", "FLAC", 16000, 1, 0.25, -80},
    {"stereo-44k.flac", "FLAC", 44100, 2, 0.25, -70},
    {"mono-16k-flac.oga", "Ogg FLAC", 16000, 1, 0.25, -80},
    {"stereo-44k.mp3", "MP3", 44100, 2, 0.25, -25},
    {"mono-48k-id3.mp3", "MP3", 48000, 1, 0.2, -25},
    {"mono-16k.ogg", "Ogg Vorbis", 16000, 1, 0.25, -20},
    {"stereo-44k.ogg", "Ogg Vorbis", 44100, 2, 0.25, -20},
};

TEST(Compressed, LengthAndSound) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.file);
    const Audio audio = decode_audio(bytes_of(load(c.file)), kTarget);
    EXPECT_EQ(audio.source.format, c.format);
    EXPECT_EQ(audio.source.sample_rate_hz, c.rate);
    EXPECT_EQ(audio.source.channels, c.channels);
    EXPECT_EQ(audio.source.frames, std::lround(c.rate * c.seconds));
    EXPECT_TRUE(audio.source.notes.empty());
    const std::vector<double> expected = recording(static_cast<size_t>(c.channels), 16000, c.seconds);
    ASSERT_EQ(audio.samples.size(), expected.size());
    EXPECT_LT(error_db(audio.samples, expected), c.max_error_db);
  }
}

TEST(Compressed, FlacIsTheWavBitForBit) {
  const std::vector<double> tone = recording(1, 16000, 0.25);
  std::string data;
  for (double x : tone) append(data, static_cast<int16_t>(std::lround(x * 32767)));
  const Audio audio = decode_audio(bytes_of(load("mono-16k.flac")), kTarget);
  EXPECT_EQ(audio.samples,
            decode_audio(bytes_of(riff(fmt_chunk({}) + chunk("data", data))), kTarget).samples);
}

TEST(Compressed, Mp3WithoutALengthHeader) {
  const Audio audio = decode_audio(bytes_of(load("mono-16k-without-header.mp3")), kTarget);
  // Whole MPEG frames with the encoder's delay and padding, which only the header could tell.
  EXPECT_EQ(audio.source.frames % 576, 0);
  EXPECT_GE(audio.source.frames, 4000);
  EXPECT_LE(audio.source.frames, 4000 + 3 * 576);
  EXPECT_TRUE(audio.source.notes.empty());
  const std::string junk = load("mono-16k-without-header.mp3") + std::string(50, 'x');
  EXPECT_HAS(decode_audio(bytes_of(junk), kTarget).source.notes.at(0), "50 bytes");
}

TEST(Compressed, Mp3WithoutFrames) {
  const std::string tag("ID3\x04\0\0\0\0\0\x0A", 10);
  const std::string padding(10, '\0');
  const std::string none = "MP3 can't be decoded: expected frames of MP3 audio";
  EXPECT_HAS(message_of(tag), none + " besides its tags of 20 bytes, found none (the file has 10 bytes)");
  EXPECT_HAS(message_of(tag + padding), none + " besides its tags of 20 bytes, found none (the file has 20");
  EXPECT_HAS(message_of(tag + padding + std::string(3000, 'x')), none + ", found none");
}

TEST(Compressed, OtherCodecsAreRefusedByName) {
  EXPECT_HAS(message_of(load("mono-48k.opus")), "this is Opus in Ogg");
  EXPECT_HAS(message_of(load("mono-16k.m4a")), "this is M4A");
  EXPECT_HAS(message_of(load("mono-16k.aac")), "this is AAC");
  EXPECT_HAS(message_of(load("mono-16k.mp2")), "this is MPEG audio layer I or II");
}

TEST(Compressed, TooLong) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.file);
    const auto length = static_cast<int64_t>(16000 * c.seconds);
    EXPECT_EQ(message_of(load(c.file), {16000, 1, length}), "accepted");
    const std::string text = message_of(load(c.file), {16000, 1, length - 1});
    EXPECT_HAS(text, "at most " + std::to_string(length - 1) + " samples");
    EXPECT_HAS(text, "got at least ");
  }
}

TEST(Compressed, TooShort) {
  EXPECT_HAS(message_of(load("mono-16k.flac"), {16000, 4001, 480000}),
             "must contain 4001..480000 samples; got 4000");
}

TEST(Compressed, CutAtEveryLength) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.file);
    const std::string file = load(c.file);
    for (size_t size = 0; size < file.size(); ++size) {
      // An MP3 whose last frame alone is missing is heard to its end; everything else is an error.
      const std::string text = message_of(file.substr(0, size));
      const bool mp3_tail = std::string(c.format) == "MP3" && size + 420 > file.size();
      if (!mp3_tail) {
        ASSERT_NE(text, "accepted") << size;
      }
    }
  }
  const std::string plain = load("mono-16k-without-header.mp3");
  for (size_t size = 0; size < plain.size(); ++size) message_of(plain.substr(0, size));
}

TEST(Compressed, DamageIsNeverACrash) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.file);
    const std::string file = load(c.file);
    int refused = 0;
    int tried = 0;
    for (size_t at = 0; at < file.size(); at += 7, ++tried) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ 0x55);
      refused += message_of(changed) != "accepted";
    }
    // FLAC and Ogg carry checksums over everything that is heard.
    if (std::string(c.format) != "MP3") {
      EXPECT_GT(refused, tried * 8 / 10);
    }
  }
}

}  // namespace
}  // namespace dovetail::media
