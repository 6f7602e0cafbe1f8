// The shared vectors of decoded and refused recordings, and what the front door adds to them.
#include "media/audio.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "media/base64.h"
#include "wav_builder.h"

namespace dovetail::media {
namespace {

constexpr AudioTarget kTarget{16000, 161, 480000};

AudioTarget target_of(const Json& vector) {
  const Json& processor = vector["processor"];
  return {processor["sample_rate_hz"].get<int32_t>(), processor["min_samples"].get<int64_t>(),
          processor["max_samples"].get<int64_t>()};
}

Audio decode(const Json& vector) {
  const Json& input = vector["input"];
  if (input["format"] == "wav")
    return decode_audio_base64(input["data"].get<std::string>(), target_of(vector));
  std::vector<float> samples;
  if (input["data"].is_array()) {
    samples = input["data"].get<std::vector<float>>();
  } else {
    const std::vector<std::byte> bytes =
        decode_base64_or_data_url(input["data"].get<std::string>(), "audio", "pcm");
    samples.resize(bytes.size() / 4);
    if (!samples.empty()) std::memcpy(samples.data(), bytes.data(), samples.size() * 4);
  }
  return canonical_audio(samples, input["sample_rate"].get<int32_t>(), target_of(vector));
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

TEST(AudioVectors, AllVerdictsAndSamples) {
  const Json vectors = read_json(DOVETAIL_TEST_DATA "/media/audio.json")["vectors"];
  ASSERT_EQ(vectors.size(), 62u);
  // Ours names the format that was found, or leaves out the name of a request's field.
  const std::map<std::string, std::string> worded = {
      {"384001 Hz", "sample rate must not exceed 384000"},
      {"RIFX", "this is RIFX"},
      {"11 bytes", "truncated"},
      {"data URL with codec parameter", "data URLs must contain base64-encoded"},
      {"base64url alphabet", "not valid base64"},
  };
  int refused = 0;
  for (const Json& vector : vectors) {
    const std::string name = vector["name"].get<std::string>();
    SCOPED_TRACE(name);
    const Json& result = vector["result"];
    if (!result["ok"].get<bool>()) {
      ++refused;
      try {
        decode(vector);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        const auto own = worded.find(name);
        EXPECT_HAS(std::string(error.what()),
                   own == worded.end() ? result["error"].get<std::string>() : own->second);
      }
      continue;
    }
    const Audio audio = decode(vector);
    ASSERT_EQ(audio.samples.size(), result["samples"].get<size_t>());
    if (audio.source.sample_rate_hz != target_of(vector).sample_rate_hz) continue;
    EXPECT_EQ(sha256_hex({reinterpret_cast<const char*>(audio.samples.data()),
                          audio.samples.size() * sizeof(float)}),
              result["sha256_f32le"].get<std::string>());
    const auto first = result["first"].get<std::vector<float>>();
    EXPECT_TRUE(std::equal(first.begin(), first.end(), audio.samples.begin()));
  }
  EXPECT_EQ(refused, 26);
}

TEST(AudioVectors, ResampledConstantStaysConstant) {
  const Json vectors = read_json(DOVETAIL_TEST_DATA "/media/audio.json")["vectors"];
  for (const Json& vector : vectors) {
    if (vector["name"] != "48 kHz constant stays constant") continue;
    for (float sample : decode(vector).samples) EXPECT_NEAR(sample, 0.25f, 1e-6f);
  }
}

TEST(Audio, LengthLimitsNameBothNumbers) {
  for (size_t count : {0, 1, 159, 160}) {
    const std::string text = message_of(wav({}, std::vector<double>(count)));
    EXPECT_HAS(text, "must contain 161..480000 samples; got " + std::to_string(count));
    EXPECT_HAS(text, "at least 161 samples (0.010 s)");
  }
  for (size_t count : {161, 320, 479999, 480000}) {
    EXPECT_EQ(decode_audio(bytes_of(wav({}, std::vector<double>(count))), kTarget).samples.size(), count);
  }
  for (size_t count : {480001, 496000, 9600000}) {
    const std::string text = message_of(wav({}, std::vector<double>(count)));
    EXPECT_HAS(text, "got " + std::to_string(count));
    EXPECT_HAS(text, "at most 480000 samples (30.000 s)");
  }
}

TEST(Audio, LengthLimitsHoldAfterResampling) {
  const WavFormat format{.rate = 44100};
  EXPECT_EQ(decode_audio(bytes_of(wav(format, std::vector<double>(1323001))), kTarget).samples.size(),
            480000u);
  EXPECT_HAS(message_of(wav(format, std::vector<double>(1323002))), "got 480001");
}

TEST(Audio, ChannelsAreAveragedBeforeResampling) {
  for (uint32_t rate : {16000u, 48000u}) {
    const std::vector<double> left = sine(440, rate, rate / 4);
    std::vector<double> opposed, one_side;
    for (double x : left) {
      opposed.insert(opposed.end(), {x, -x});
      one_side.insert(one_side.end(), {x, 0.0});
    }
    const WavFormat format{.codec = 3, .channels = 2, .rate = rate, .bits = 32};
    for (float x : decode_audio(bytes_of(wav(format, opposed)), kTarget).samples) ASSERT_EQ(x, 0.0f);
    const Audio half = decode_audio(bytes_of(wav(format, one_side)), kTarget);
    const float peak = *std::max_element(half.samples.begin(), half.samples.end());
    EXPECT_NEAR(peak, 0.25f, 0.002f);
    EXPECT_EQ(half.source.channels, 2);
  }
}

TEST(Audio, OtherFilesAreRefusedByName) {
  using namespace std::string_literals;
  const std::map<std::string, std::string> files = {
      {""s, "this is empty"},
      {"hello, this is no recording\n"s, "this is text"},
      {"<svg xmlns='http://www.w3.org/2000/svg'/>"s, "SVG"},
      {"\xFF\xFEh\0i\0"s, "UTF-16"},
      {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s, "PNG"},
      {"\xFF\xD8\xFF\xE0\0\x10JFIF"s, "JPEG"},
      {"GIF89a"s, "GIF"},
      {"RIFF\0\0\0\0WEBPVP8 "s, "WebP"},
      {"RIFF\0\0\0\0AVI LIST"s, "AVI"},
      {"%PDF-1.7\n"s, "PDF"},
      {"\0\0\0\x1C"
       "ftypheic"s,
       "HEIC"},
      {"\0\0\0\x1C"
       "ftypM4A \0\0\2\0"s,
       "M4A"},
      {"\0\0\0\x1C"
       "ftypisom\0\0\2\0"s,
       "MP4"},
      {"\x1A\x45\xDF\xA3\x01\0\0\0"s, "WebM"},
      {"\xFF\xF1\x50\x80\x02\x1F\xFC"s, "AAC"},
      {"RIFX\0\0\0\0WAVEfmt "s, "RIFX"},
      {"RF64\xFF\xFF\xFF\xFFWAVEds64"s, "RF64"},
      {"FORM\0\0\0\x80"
       "AIFFCOMM"s,
       "AIFF"},
      {".snd\0\0\0\x18"s, "AU"},
      {"#!AMR\n"s, "AMR"},
      {"version https://git-lfs.github.com/spec/v1\n"s, "Git LFS"},
      {"OggS\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\x13OpusHead\1\1"s, "Opus"},
      {"OggS"s, "Ogg with an unknown codec"},
  };
  for (const auto& [file, name] : files) {
    const std::string text = message_of(file);
    EXPECT_HAS(text, name);
    EXPECT_HAS(text, "WAV, FLAC, MP3, Ogg Vorbis and Ogg FLAC are supported");
  }
  // Raw samples: no header, so the hint says how to give them one.
  const std::string raw = message_of(encode({}, sine(440, 16000, 1000)));
  EXPECT_HAS(raw, "unknown kind");
  EXPECT_HAS(raw, "ffmpeg -f s16le -ar 16000 -ac 1 -i INPUT speech.wav");
  EXPECT_HAS(message_of(".snd\0\0\0\x18"s), "ffmpeg -i INPUT -ac 1 -ar 16000 speech.wav");
}

TEST(Audio, TargetsOutOfBounds) {
  const std::string file = wav({}, std::vector<double>(1000));
  for (const AudioTarget& target :
       {AudioTarget{0, 1, 10}, AudioTarget{16000, 0, 10}, AudioTarget{16000, 11, 10},
        AudioTarget{384001, 1, 10}, AudioTarget{16000, 1, INT64_MAX}}) {
    EXPECT_HAS(message_of(file, target), "out of bounds");
  }
}

TEST(Audio, SamplesThatAreAlreadyDecoded) {
  std::vector<float> samples(1000, 0.25f);
  EXPECT_EQ(canonical_audio(samples, 16000, kTarget).samples, samples);
  EXPECT_EQ(canonical_audio(samples, 8000, kTarget).samples.size(), 2000u);
  EXPECT_THROW(canonical_audio(samples, 0, kTarget), Error);
  EXPECT_THROW(canonical_audio(samples, 384001, kTarget), Error);
  samples[500] = std::nanf("");
  EXPECT_THROW(canonical_audio(samples, 16000, kTarget), Error);
  EXPECT_THROW(canonical_audio(samples, 8000, kTarget), Error);
}

TEST(Base64, Malformed) {
  for (const char* text : {"A", "AA=A", "AAAA=", "AA===", "AA*A", "data:audio/wav,AAAA",
                           "data:audio/wav;base64", "data:image/png;base64,AAAA", "data:;base64,AAAA"}) {
    EXPECT_THROW(decode_base64_or_data_url(text, "audio", "x"), Error) << text;
  }
  EXPECT_EQ(decode_base64_or_data_url("AQ ID\nBA==", "audio", "x"),
            (std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}));
  EXPECT_EQ(decode_base64_or_data_url("/+8", "audio", "x"),
            (std::vector<std::byte>{std::byte{255}, std::byte{239}}));
}

}  // namespace
}  // namespace dovetail::media
