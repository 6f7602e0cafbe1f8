#include "package/verify.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "../temp_dir.h"
#include "base/json.h"
#include "contract/canonical.h"
#include "contract/manifest.h"
#include "package/content_hashes.h"
#include "package/package.h"
#include "package/tensor_cache_writer.h"
#include "package/weight_check.h"

namespace dovetail::package {
namespace {
namespace fs = std::filesystem;
using namespace dovetail::testing;

const fs::path kLlama = fs::path(DOVETAIL_TEST_DATA) / "mlc-packages/llama_tiny/q4f16_1";

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::string text_of(const VerifyReport& report) {
  std::string out;
  for (const Problem& problem : report.problems) out += problem.text() + "\n";
  return out;
}

// A package with two shards (the second tensor has number 0), a manifest and hashes: an audio model of a few
// tensors.
class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write({{"language_model.embed_tokens.weight", 1.0f}, {"audio_tower.conv.weight", 2.0f}}, "audio");
  }

  void write(const std::vector<std::pair<std::string, float>>& tensors, const std::string& claimed) {
    fs::remove_all(dir());
    fs::create_directory(dir());
    TensorCacheWriter writer(dir());
    std::vector<contract::ParameterRecord> records;
    for (const auto& [name, value] : tensors) {
      const std::vector<int64_t> shape{5'000'000};
      const size_t id = writer.begin(name, shape, DType::kFloat32);
      const std::vector<float> values(5'000'000, value);
      writer.write(id, std::as_bytes(std::span(values)));
      records.push_back({name, {int64_t{5'000'000}}, "float32"});
    }
    writer.finish(10'000'000);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(kLlama / file, dir() / file);
    write_text(dir() / kChatConfigFile, read_text(kLlama / kChatConfigFile));
    contract::Task task{.executor = "generation", .output = "text"};
    task.inputs.emplace_back("text", contract::Input{.processor = std::string(contract::kTokenizer)});
    if (claimed == "audio") {
      task.inputs.emplace_back(
          "audio",
          contract::Input{.processor = contract::AudioDecode{.sample_rate_hz = 16000, .max_samples = 32000},
                          .adapter = "audio",
                          .prompt = contract::Prompt{.placeholder_token_id = 5}});
    }
    contract::PackageManifest manifest;
    manifest.tasks = {{std::string(contract::kChatTask), task}};
    manifest.interface_id = contract::interface_id(manifest.tasks);
    manifest.parameter_schema_id = contract::parameter_schema_id(records);
    write_text(dir() / contract::kManifestFile, contract::to_json(manifest).dump(2));
    rehash();
  }

  void rehash() {
    fs::remove(dir() / kHashesFile);
    std::vector<FileHash> files;
    for (const auto& entry : fs::directory_iterator(dir()))
      files.push_back(hash_file(dir(), entry.path().filename().string()));
    write_content_hashes(dir(), files);
  }

  fs::path dir() const { return temp_ / "p"; }
  std::string problems(bool deep) const { return text_of(verify_package(dir(), deep)); }

  TempDir temp_;
};

TEST_F(VerifyTest, AWholePackage) {
  for (const bool deep : {false, true}) {
    const VerifyReport report = verify_package(dir(), deep);
    EXPECT_EQ(text_of(report), "");
    // The template's BOS is that of a larger vocabulary.
    ASSERT_EQ(report.notes.size(), 1u);
    EXPECT_HAS(report.notes.front(), "system_prefix_token_ids");
    EXPECT_EQ(report.files, 7);
    EXPECT_EQ(report.tensors, 2);
    EXPECT_EQ(report.hashed_bytes, deep ? report.bytes : 0);
  }
  EXPECT_EQ(Package::open(dir()).tensors.tensors().size(), 2u);
}

TEST_F(VerifyTest, PackagesOfMlcHaveNoManifestAndNoHashes) {
  const VerifyReport report = verify_package(kLlama, true);
  EXPECT_EQ(text_of(report), "");
  EXPECT_EQ(report.notes.size(), 3u);  // and the template's BOS is that of a larger vocabulary
  EXPECT_FALSE(Package::open(kLlama).manifest.has_value());
}

TEST_F(VerifyTest, EveryMissingFileIsNamed) {
  for (const char* file :
       {"mlc-chat-config.json", "mlc-model-manifest.json", "tensor-cache.json", "params_shard_0.bin",
        "params_shard_1.bin", "tokenizer.json", "tokenizer_config.json"}) {
    const std::string content = read_text(dir() / file);
    fs::remove(dir() / file);
    const std::string found = problems(false);
    EXPECT_HAS(found, std::string(file) + ": file is missing");
    EXPECT_EQ(found.find('\n'), found.size() - 1) << "once: " << found;
    write_text(dir() / file, content);
  }
  for (const char* file : {"params_shard_0.bin", "tokenizer.json", "mlc-chat-config.json"})
    fs::remove(dir() / file);
  try {
    Package::open(dir());
    FAIL();
  } catch (const Error& error) {
    for (const char* file : {"params_shard_0.bin", "mlc-chat-config.json"})
      EXPECT_HAS(std::string(error.what()), std::string(file) + ": file is missing");
  }
}

TEST_F(VerifyTest, EveryChangedSizeIsNamed) {
  for (const auto& entry : fs::directory_iterator(dir())) {
    const std::string file = entry.path().filename().string();
    if (file == kHashesFile) continue;
    const std::string content = read_text(entry.path());
    for (const size_t size : {content.size() - 1, content.size() / 2, size_t{0}, content.size() + 1}) {
      std::string changed = content;
      changed.resize(size, ' ');
      write_text(entry.path(), changed);
      EXPECT_HAS(problems(false), file + ": ") << size;
    }
    write_text(entry.path(), content);
  }
  EXPECT_EQ(problems(true), "");
}

TEST_F(VerifyTest, ChangedWeightsAreNotLoaded) {
  const auto damage = [&] {
    try {
      check_weights(dir(), TensorCache::open(dir()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(damage(), "");
  for (const char* file : {"params_shard_0.bin", "params_shard_1.bin"}) {
    std::string changed = read_text(dir() / file);
    changed[changed.size() / 3] = static_cast<char>(changed[changed.size() / 3] ^ 1);
    write_text(dir() / file, changed);
    EXPECT_HAS(damage(), std::string(file) + ": the weights have changed: SHA-256");
  }
  EXPECT_HAS(damage(), "params_shard_0.bin");
  fs::remove(dir() / kHashesFile);
  for (const char* file : {"params_shard_0.bin", "params_shard_1.bin"})
    EXPECT_HAS(damage(), std::string(file) + ": the weights have changed: MD5");
}

TEST_F(VerifyTest, OneChangedBitIsFoundByDeepAlone) {
  for (const char* file : {"params_shard_0.bin", "tokenizer.json"}) {
    const std::string content = read_text(dir() / file);
    std::string changed = content;
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
    write_text(dir() / file, changed);
    EXPECT_EQ(problems(false), "");
    EXPECT_HAS(
        problems(true),
        std::string(file) + ": the content has changed: SHA-256 is not the one in dovetail-hashes.json");
    write_text(dir() / file, content);
  }
}

// Values of another checkpoint with the same shapes: the schema id can't tell, the hashes can.
TEST_F(VerifyTest, SwappedValues) {
  const std::string manifest = read_text(dir() / contract::kManifestFile),
                    hashes = read_text(dir() / kHashesFile);
  write({{"language_model.embed_tokens.weight", 1.0f}, {"audio_tower.conv.weight", 3.0f}}, "audio");
  EXPECT_EQ(read_text(dir() / contract::kManifestFile), manifest);
  write_text(dir() / kHashesFile, hashes);
  EXPECT_EQ(problems(false), "");
  EXPECT_HAS(problems(true), "params_shard_0.bin: the content has changed");
}

TEST_F(VerifyTest, TensorsThatAreNotTheManifests) {
  Json manifest = read_json(dir() / contract::kManifestFile);
  manifest["weights"]["parameter_schema_id"] = "sha256:" + std::string(64, '0');
  write_text(dir() / contract::kManifestFile, manifest.dump());
  rehash();
  EXPECT_HAS(problems(false), "weights.parameter_schema_id: the stored tensors are not those");
}

// The size of the dimension that the manifest names is in the chat config.
TEST_F(VerifyTest, TensorsAreNotComparedWithoutTheChatConfig) {
  Json manifest = read_json(dir() / contract::kManifestFile);
  manifest["weights"]["parameter_schema_id"] = "sha256:" + std::string(64, '0');
  write_text(dir() / contract::kManifestFile, manifest.dump());
  rehash();
  fs::remove(dir() / kChatConfigFile);
  const std::string found = problems(false);
  EXPECT_HAS(found, "mlc-chat-config.json: file is missing");
  EXPECT_EQ(found.find("stored tensors"), std::string::npos) << found;
}

// Larger than a manifest may be, as a file that can't be read is no obstacle for root.
TEST_F(VerifyTest, AManifestThatCantBeReadIsNotMissing) {
  fs::resize_file(dir() / contract::kManifestFile, 17 << 20);
  const VerifyReport report = verify_package(dir(), true);
  EXPECT_HAS(text_of(report), "mlc-model-manifest.json");
  EXPECT_EQ(report.problems.size(), 1u) << text_of(report);
  for (const std::string& note : report.notes)
    EXPECT_EQ(note.find("mlc-model-manifest.json"), std::string::npos) << note;
}

TEST_F(VerifyTest, AClaimedInputWithoutItsAdapter) {
  write({{"language_model.embed_tokens.weight", 1.0f}, {"language_model.norm.weight", 2.0f}}, "audio");
  EXPECT_HAS(problems(false), "inputs.audio: the package takes this input but has no weights of its adapter");
  write({{"language_model.embed_tokens.weight", 1.0f}, {"language_model.norm.weight", 2.0f}}, "text");
  EXPECT_EQ(problems(false), "");
}

TEST_F(VerifyTest, AMalformedManifestIsAnError) {
  write_text(dir() / contract::kManifestFile, "{}");
  EXPECT_HAS(problems(false), "mlc-model-manifest.json: ");
  EXPECT_THROW(Package::open(dir()), Error);
}

TEST_F(VerifyTest, ValuesThatAreNotFinite) {
  write({{"language_model.embed_tokens.weight", 1.0f},
         {"audio_tower.conv.weight", std::numeric_limits<float>::quiet_NaN()}},
        "audio");
  EXPECT_EQ(problems(false), "");
  EXPECT_HAS(problems(true), "params_shard_0.bin: audio_tower.conv.weight: value 0 is NaN");
}

TEST(Verify, ALimitMayBeInfiniteAScaleMayNot) {
  const TempDir temp;
  TensorCacheWriter writer(temp.path());
  const float infinite = std::numeric_limits<float>::infinity();
  for (const auto& [name, shape] : {std::pair{"limit", std::vector<int64_t>{}}, {"scale", {1}}})
    writer.write(writer.begin(name, shape, DType::kFloat32), std::as_bytes(std::span(&infinite, 1)));
  writer.finish(2);
  const std::string text = text_of(verify_package(temp.path(), true));
  EXPECT_HAS(text, "params_shard_0.bin: scale: value 0 is infinite");
  EXPECT_EQ(text.find("limit"), std::string::npos) << text;
}

TEST_F(VerifyTest, HashListsThatAreNotTheirs) {
  Json list = read_json(dir() / kHashesFile);
  list["files"][0]["path"] = "../outside";
  write_text(dir() / kHashesFile, list.dump());
  EXPECT_HAS(problems(false), "leaves the package");
  list = Json{{"schema", "dovetail.content-hashes"}, {"schema_version", 1}, {"files", Json::array()}};
  write_text(dir() / kHashesFile, list.dump());
  EXPECT_HAS(problems(false), "params_shard_0.bin: is not listed in dovetail-hashes.json");
}

TEST(Verify, NoSuchFolder) {
  TempDir temp;
  EXPECT_THROW(verify_package(temp / "nothing", false), Error);
}

}  // namespace
}  // namespace dovetail::package
