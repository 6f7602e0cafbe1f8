// Recordings and pictures from their files to the prompt, and which of them are computed.
#include "engine/media.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "contract/canonical.h"
#include "engine/engine.h"
#include "fake_package.h"

namespace dovetail::engine {
namespace {

// A BMP of 3 x 2 pixels; the fake model reads each as the letter. Rows are stored from below.
std::string bmp(const std::string& letters) {
  std::string file = std::string("BM\x4E\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\3\0\0\0\2\0\0\0\1\0\x18\0", 30) +
                     std::string(24, '\0');
  for (const size_t row : {size_t{1}, size_t{0}}) {
    for (size_t column = 0; column < 3; ++column) {
      file += std::string(2, '\0') + static_cast<char>(10 * (letters[row * 3 + column] - 'a') + 5);
    }
    file += std::string(3, '\0');
  }
  return file;
}

class MediaTest : public ::testing::Test {
 protected:
  // A new folder each time: the system's loader knows libraries by their path.
  library::Model open(const test::Edits& edits = {}) {
    package_ = dir_.path() / std::to_string(opened_++);
    test::write_fake_package(package_, edits);
    return library::open_model(package_);
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path package_;
  int opened_ = 0;
};

Reply generate(Engine& engine, const Conversation& conversation, const Callbacks& callbacks = {}) {
  return engine.generate(conversation, {.sampling = {.temperature = 0}}, callbacks);
}

int64_t adapter_calls(const Engine& engine) {
  return engine.model().library.find("adapter_calls")->get<int64_t>();
}

std::string refusal(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "accepted";
}

TEST_F(MediaTest, PicturesAreDecodedForTheirInput) {
  const library::Model model = open();
  const std::shared_ptr<const Media> media = read_image(model, bmp("abcdef"), "p.bmp");
  EXPECT_EQ(media->input, "image");
  EXPECT_EQ(media->adapter, "image");
  EXPECT_EQ(media->source, "p.bmp");
  EXPECT_EQ(media->format, "BMP, 24-bit");
  EXPECT_EQ(media->source_width, 3);
  EXPECT_EQ(media->source_height, 2);
  EXPECT_EQ(media->width, 3);
  EXPECT_EQ(media->height, 2);
  EXPECT_EQ(media->rows, 6);
  EXPECT_EQ(media->pixels, (std::vector<uint8_t>{5, 0, 0, 15, 0, 0, 25, 0, 0, 35, 0, 0, 45, 0, 0, 55, 0, 0}));
  EXPECT_TRUE(media->warnings.empty());
  EXPECT_EQ(media->notes, std::vector<std::string>{"stretched to 3 x 2"});
  EXPECT_EQ(image_from_pixels(model, media->pixels)->sha256, media->sha256);
  EXPECT_NE(
      refusal([&] { read_image(model, "%PDF-1.7", "x.png"); }).find("unsupported: x.png: this is a PDF"),
      std::string::npos);
}

TEST_F(MediaTest, BothKindsKeepTheirOrder) {
  Engine engine(open());
  const auto picture = engine.image(bmp("abcdef"), "p.bmp");
  const auto recording = engine.audio(std::vector<float>(400, 0.2f));
  Prompt seen;
  const Reply reply =
      generate(engine, {.turns = {{.parts = {"x", picture, recording, "y", recording, picture, "z"}}}},
               {.prompt = [&](const Prompt& prompt) { seen = prompt; }});
  EXPECT_EQ(reply.text, "xabcdefCCCCyCCCCabcdefz");
  ASSERT_EQ(seen.media.size(), 4u);
  EXPECT_EQ(seen.size(), reply.usage.prompt_tokens);
  // <bos><|turn>user\n x
  EXPECT_EQ(seen.media[0].begin, 1 + 6 + 1);
  EXPECT_EQ(seen.media[0].rows, 6);
  EXPECT_EQ(seen.media[0].media, picture);
  EXPECT_EQ(seen.media[1].begin, 8 + 6 + 1);
  EXPECT_EQ(seen.media[1].rows, 4);
  EXPECT_EQ(seen.media[3].media, picture);
  EXPECT_EQ(adapter_calls(engine), 2);
}

TEST_F(MediaTest, AnotherTurnAboutAPictureRunsNoAdapter) {
  Engine engine(open());
  Conversation conversation{.turns = {{.parts = {engine.image(bmp("abcdef"), "p.bmp"), "one"}}}};
  const Reply first = generate(engine, conversation);
  EXPECT_EQ(first.text, "abcdefone");
  EXPECT_EQ(adapter_calls(engine), 1);
  conversation.turns.push_back({.role = Role::kAssistant, .parts = {first.text}});
  conversation.turns.push_back({.parts = {"two"}});
  EXPECT_EQ(generate(engine, conversation).text, "two");
  EXPECT_EQ(adapter_calls(engine), 1);
  // The same picture from another file, and in a conversation that shares nothing with the last.
  EXPECT_EQ(generate(engine, {.turns = {{.parts = {engine.image(bmp("abcdef"), "copy.bmp"), "three"}}}}).text,
            "abcdefthree");
  EXPECT_EQ(adapter_calls(engine), 1);
  EXPECT_EQ(generate(engine, {.turns = {{.parts = {engine.image(bmp("abcdeg"), "p.bmp"), "four"}}}}).text,
            "abcdegfour");
  EXPECT_EQ(adapter_calls(engine), 2);
}

TEST_F(MediaTest, EqualBytesOfAnotherShapeAreAnotherMedium) {
  const std::vector<uint8_t> pixels(30 * 150 * 3, 7);
  const contract::ImageDecode wide{.resize = {contract::ResizeMode::kStretch, 30, 150}, .num_embeddings = 6};
  contract::ImageDecode high = wide;
  std::swap(high.resize.height, high.resize.width);
  contract::ImageDecode cropped = wide;
  cropped.resize.mode = contract::ResizeMode::kCenterCrop;
  const std::string hash = media_hash("image", wide, pixels);
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_EQ(hash, media_hash("image", wide, pixels));
  EXPECT_NE(hash, media_hash("image", high, pixels));
  EXPECT_NE(hash, media_hash("image", cropped, pixels));
  EXPECT_NE(hash, media_hash("photo", wide, pixels));
  // Every byte counts, the last one too.
  std::vector<uint8_t> other = pixels;
  other.back() ^= 1;
  EXPECT_NE(hash, media_hash("image", wide, other));

  const std::vector<float> samples(1000, 0.5f);
  const contract::AudioDecode slow{.sample_rate_hz = 8000, .min_samples = 1, .max_samples = 2000};
  contract::AudioDecode fast = slow;
  fast.sample_rate_hz = 16000;
  EXPECT_NE(media_hash("audio", slow, samples), media_hash("audio", fast, samples));
  EXPECT_NE(media_hash("audio", slow, samples), media_hash("audio", slow, std::span(samples).first(999)));
}

TEST_F(MediaTest, AnotherNumberOfRowsThanTheManifestSaysIsRefused) {
  Engine engine(open({{R"("image":"image_embed")", R"("image":"image_extra")"}}));
  const std::string message = refusal([&] {
    generate(engine, {.turns = {{.parts = {engine.image(bmp("abcdef"), "p.bmp"), "hi"}}}});
  });
  EXPECT_NE(message.find("mismatch"), std::string::npos) << message;
  EXPECT_NE(message.find("expected 6, got 7"), std::string::npos) << message;
  // Nothing wrong is kept.
  EXPECT_EQ(generate(engine, {.turns = {{.parts = {"hi"}}}}).text, "hi");
}

// A package that was made for another number of rows, with the right interface_id for it.
TEST_F(MediaTest, PackageWithAnotherNumberOfRowsThanItsLibraryIsRefused) {
  open();
  contract::PackageManifest manifest =
      contract::parse_package_manifest(read_file(package_ / contract::kManifestFile));
  for (auto& [name, input] : manifest.tasks.front().second.inputs) {
    if (auto* image = std::get_if<contract::ImageDecode>(&input.processor)) image->num_embeddings = 5;
  }
  manifest.interface_id = contract::interface_id(manifest.tasks);
  write_file_atomic(package_ / contract::kManifestFile, contract::to_json(manifest).dump());
  const std::string message = refusal([&] { library::open_model(package_); });
  EXPECT_NE(message.find("mismatch"), std::string::npos) << message;
  EXPECT_NE(message.find("interface_id"), std::string::npos) << message;
}

TEST_F(MediaTest, LibraryThatTakesUint32Pixels) {
  Engine engine(open({{R"("image":"uint8" })", R"("image":"uint32"})"}}));
  EXPECT_EQ(generate(engine, {.turns = {{.parts = {engine.image(bmp("abcdef"), "p.bmp"), "hi"}}}}).text,
            "ABCDEFhi");
}

TEST_F(MediaTest, ImpossibleSizesOfAPackageAreRefused) {
  library::Model model = open();
  for (auto& [name, input] : model.task.inputs) {
    if (auto* image = std::get_if<contract::ImageDecode>(&input.processor)) image->resize.width = 8193;
  }
  const std::string message = refusal([&] { read_image(model, bmp("abcdef"), "p.bmp"); });
  EXPECT_NE(message.find("unsupported: mlc-model-manifest.json"), std::string::npos) << message;
  EXPECT_NE(message.find("8193 x 2"), std::string::npos) << message;
}

}  // namespace
}  // namespace dovetail::engine
