#include "package/tensor_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "../temp_dir.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"

namespace dovetail::package {
namespace {
namespace fs = std::filesystem;
using dovetail::testing::copy_folder;
using dovetail::testing::read_text;
using dovetail::testing::TempDir;
using dovetail::testing::write_text;

const fs::path kPackages = fs::path(DOVETAIL_TEST_DATA) / "mlc-packages";
const fs::path kLlama = kPackages / "llama_tiny/q4f16_1";

// The message of the Error that `body` throws; fails the test when it throws none.
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

std::string open_error(const fs::path& dir) {
  return error_of([&] { TensorCache::open(dir); });
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(TensorCache, ReadsEveryPackageMadeByMlc) {
  int packages = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kPackages)) {
    if (entry.path().filename() != kTensorCacheFile) continue;
    ++packages;
    const TensorCache cache = TensorCache::open(entry.path().parent_path());
    const Json document = read_json(entry.path());
    EXPECT_EQ(static_cast<double>(cache.parameter_bytes()), document["metadata"]["ParamBytes"].get<double>())
        << entry;
    EXPECT_EQ(cache.tensors().size(), document["metadata"]["ParamSize"].get<size_t>());
    for (const Shard& shard : cache.shards()) EXPECT_EQ(md5_hex(shard.mapping->bytes()), shard.md5);
  }
  EXPECT_EQ(packages, 6);
}

TEST(TensorCache, GivesShapeTypeAndBytes) {
  const TensorCache cache = TensorCache::open(kLlama);
  const StoredTensor& weight = cache.get("model.embed_tokens.q_weight");
  EXPECT_EQ(weight.shape, (std::vector<int64_t>{320, 8}));
  EXPECT_EQ(weight.dtype, DType::kUInt32);
  EXPECT_FALSE(weight.stored_as_bf16);
  const std::string shard = read_text(kLlama / "params_shard_0.bin");
  EXPECT_EQ(std::memcmp(cache.bytes(weight).data(), shard.data(), 10240), 0);
  const StoredTensor& scale = cache.get("model.embed_tokens.q_scale");
  EXPECT_EQ(std::memcmp(cache.bytes(scale).data(), shard.data() + 10240, 1280), 0);
  EXPECT_EQ(cache.find("nothing"), nullptr);
  EXPECT_HAS(error_of([&] { cache.get("model.embed_token.q_weight"); }), "model.embed_tokens.q_weight");
}

TEST(TensorCache, WidensFloat32StoredAsBf16) {
  const TensorCache cache = TensorCache::open(kPackages / "llama_tiny/q4f32_1");
  const StoredTensor& norm = cache.get("model.norm.weight");
  ASSERT_TRUE(norm.stored_as_bf16);
  EXPECT_EQ(norm.bytes, 128);
  const std::vector<float> values = cache.materialize(norm);
  ASSERT_EQ(values.size(), 64u);
  uint16_t bits;
  std::memcpy(&bits, cache.bytes(norm).data() + 2 * 5, 2);
  EXPECT_EQ(values[5], bf16_to_f32(bits));
  EXPECT_GT(values[5], 0.0f);
}

TEST(TensorCache, RefusesShardsOfAnotherSize) {
  const std::string shard = read_text(kLlama / "params_shard_0.bin");
  for (const size_t size : {size_t{0}, shard.size() / 2, shard.size() - 1, shard.size() + 1}) {
    TempDir temp;
    copy_folder(kLlama, temp / "p");
    std::string changed = shard;
    changed.resize(size, 'x');
    write_text(temp / "p/params_shard_0.bin", changed);
    const std::string message = open_error(temp / "p");
    EXPECT_HAS(message, "params_shard_0.bin");
    EXPECT_HAS(message, "expected 62848 bytes, got " + std::to_string(size));
  }
}

TEST(TensorCache, RefusesMissingFiles) {
  TempDir temp;
  copy_folder(kLlama, temp / "p");
  fs::remove(temp / "p/params_shard_0.bin");
  EXPECT_HAS(open_error(temp / "p"), "params_shard_0.bin: file is missing");
  fs::remove(temp / "p/tensor-cache.json");
  EXPECT_HAS(open_error(temp / "p"), "tensor-cache.json: file is missing");
}

TEST(TensorCache, RefusesLinksOutOfThePackage) {
  TempDir temp;
  copy_folder(kLlama, temp / "p");
  fs::rename(temp / "p/params_shard_0.bin", temp / "outside.bin");
  fs::create_symlink("../outside.bin", temp / "p/params_shard_0.bin");
  EXPECT_HAS(open_error(temp / "p"), "symbolic link that leaves the package");
  // A link that stays inside is fine, and so is a package reached through a link.
  fs::remove(temp / "p/params_shard_0.bin");
  fs::rename(temp / "outside.bin", temp / "p/real.bin");
  fs::create_symlink("real.bin", temp / "p/params_shard_0.bin");
  fs::create_directory_symlink(temp / "p", temp / "link");
  EXPECT_EQ(TensorCache::open(temp / "link").tensors().size(), 25u);
}

struct Corruption {
  const char* what;
  std::function<void(Json&)> change;
  const char* message;
};

TEST(TensorCache, RefusesBadDocuments) {
  const Json good = read_json(kLlama / "tensor-cache.json");
  const auto tensor = [](Json& d, int i) -> Json& { return d["records"][0]["records"][i]; };
  const std::vector<Corruption> cases = {
      {"no records", [](Json& d) { d.erase("records"); }, "records: is missing"},
      {"records is an object", [](Json& d) { d["records"] = Json::object(); },
       "expected an array, got an object"},
      {"escape", [](Json& d) { d["records"][0]["dataPath"] = "../x.bin"; }, "leaves the package"},
      {"absolute", [](Json& d) { d["records"][0]["dataPath"] = "/etc/passwd"; }, "absolute"},
      {"drive", [](Json& d) { d["records"][0]["dataPath"] = "C:\\x"; }, "contains \":\""},
      {"inner escape", [](Json& d) { d["records"][0]["dataPath"] = "a/../../x"; }, "leaves the package"},
      {"NUL", [](Json& d) { d["records"][0]["dataPath"] = std::string("a\0b", 3); }, "control byte"},
      {"same file twice", [](Json& d) { d["records"].push_back(d["records"][0]); }, "named twice"},
      {"shard format", [](Json& d) { d["records"][0]["format"] = "gzip"; }, "unknown shard format"},
      {"md5 length", [](Json& d) { d["records"][0]["md5sum"] = "00"; }, "is no MD5"},
      {"md5 upper case", [](Json& d) { d["records"][0]["md5sum"] = std::string(32, 'A'); }, "is no MD5"},
      {"negative size", [](Json& d) { d["records"][0]["nbytes"] = -1; }, "out of range"},
      {"size beyond 64 bits", [](Json& d) { d["records"][0]["nbytes"] = uint64_t{1} << 63; }, "out of range"},
      {"fraction", [](Json& d) { d["records"][0]["nbytes"] = 62848.0; }, "out of range"},
      {"duplicate", [&](Json& d) { tensor(d, 1)["name"] = tensor(d, 0)["name"]; }, "appears twice"},
      {"empty name", [&](Json& d) { tensor(d, 1)["name"] = ""; }, "bad length"},
      {"dtype", [&](Json& d) { tensor(d, 0)["dtype"] = "float8_e4m3"; }, "got \"float8_e4m3\""},
      {"format", [&](Json& d) { tensor(d, 0)["format"] = "f16"; }, "unknown format"},
      {"zero dimension", [&](Json& d) { tensor(d, 0)["shape"][0] = 0; }, "shape[0]: out of range"},
      {"negative dimension", [&](Json& d) { tensor(d, 0)["shape"][0] = -320; }, "shape[0]: out of range"},
      {"symbolic dimension", [&](Json& d) { tensor(d, 0)["shape"][0] = "vocab_size"; },
       "shape[0]: out of range"},
      {"overflow",
       [&](Json& d) {
         tensor(d, 0)["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
       },
       "overflows"},
      {"shape and size differ", [&](Json& d) { tensor(d, 0)["shape"][0] = 319; },
       "expected 10208, got 10240"},
      {"float32 raw, half size",
       [&](Json& d) {
         tensor(d, 1)["dtype"] = "float32";
         tensor(d, 1)["format"] = "raw";
       },
       "expected 2560, got 1280"},
      {"negative offset", [&](Json& d) { tensor(d, 0)["byteOffset"] = -1; }, "byteOffset: out of range"},
      {"offset after the end", [&](Json& d) { tensor(d, 0)["byteOffset"] = 62848; }, "ends after its shard"},
      {"offset overflow", [&](Json& d) { tensor(d, 0)["byteOffset"] = INT64_MAX; }, "ends after its shard"},
      {"overlap", [&](Json& d) { tensor(d, 1)["byteOffset"] = 10236; },
       "overlaps \"model.embed_tokens.q_weight\""},
      {"record is a list", [&](Json& d) { tensor(d, 0) = Json::array(); },
       "expected an object, got an array"},
      {"nine dimensions", [&](Json& d) { tensor(d, 0)["shape"] = std::vector<int>(9, 1); },
       "too many dimensions"},
  };
  EXPECT_EQ(TensorCache::parse(good.dump()).tensors().size(), 25u);
  for (const Corruption& item : cases) {
    Json bad = good;
    item.change(bad);
    EXPECT_HAS(error_of([&] { TensorCache::parse(bad.dump()); }), item.message) << item.what;
  }
}

TEST(TensorCache, ListsAllProblems) {
  Json bad = read_json(kLlama / "tensor-cache.json");
  bad["records"][0]["records"][0]["dtype"] = "int4";
  bad["records"][0]["records"][1]["shape"][0] = -1;
  bad["records"][0]["records"][2].erase("name");
  try {
    TensorCache::parse(bad.dump());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_EQ(error.problems().size(), 3u) << error.what();
  }
}

}  // namespace
}  // namespace dovetail::package
