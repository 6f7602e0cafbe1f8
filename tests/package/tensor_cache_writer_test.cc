#include "package/tensor_cache_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "../temp_dir.h"
#include "base/error.h"
#include "base/hash.h"
#include "package/tensor_cache.h"

namespace dovetail::package {
namespace {
namespace fs = std::filesystem;
using dovetail::testing::read_text;
using dovetail::testing::TempDir;

constexpr int64_t kMiB = int64_t{1} << 20;

// Writes tensors of these sizes (uint8), each filled with its index, and returns "shard:offset" of each.
std::vector<std::string> places(const std::vector<int64_t>& sizes) {
  TempDir temp;
  TensorCacheWriter writer(temp.path());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t id = writer.begin("t" + std::to_string(i), std::vector<int64_t>{sizes[i]}, DType::kUInt8);
    writer.write(id, std::vector<std::byte>(static_cast<size_t>(sizes[i]), static_cast<std::byte>(i + 1)));
  }
  writer.finish(1);
  const TensorCache cache = TensorCache::open(temp.path());
  std::vector<std::string> out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const StoredTensor& tensor = cache.get("t" + std::to_string(i));
    out.push_back(cache.shards()[tensor.shard].file.substr(13, 1) + ":" + std::to_string(tensor.offset));
    EXPECT_EQ(tensor.bytes, sizes[i]);
    const auto bytes = cache.bytes(tensor);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                            [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
  for (const Shard& shard : cache.shards()) EXPECT_EQ(md5_hex(shard.mapping->bytes()), shard.md5);
  return out;
}

using Places = std::vector<std::string>;

TEST(TensorCacheWriter, SmallTensorsShareAShard) {
  EXPECT_EQ(places({64, 128, 64}), (Places{"0:0", "0:64", "0:192"}));
}

TEST(TensorCacheWriter, ABigTensorGoesAloneAtOnceAndThePendingShardStaysOpen) {
  // t1 takes number 0 although t0 came before it, and t2 still joins t0.
  EXPECT_EQ(places({kMiB, 40 * kMiB, kMiB}), (Places{"1:0", "0:0", "1:1048576"}));
}

TEST(TensorCacheWriter, ATensorOfAtLeastHalfAShardIsAloneOnlyWhenItDoesNotFit) {
  EXPECT_EQ(places({kMiB, 16 * kMiB, 15 * kMiB}), (Places{"0:0", "0:1048576", "1:0"}));
  EXPECT_EQ(places({16 * kMiB, 16 * kMiB, kMiB}), (Places{"1:0", "0:0", "1:16777216"}));
}

TEST(TensorCacheWriter, ASmallerTensorThatDoesNotFitClosesTheShard) {
  EXPECT_EQ(places({20 * kMiB, 15 * kMiB, kMiB}), (Places{"0:0", "1:0", "1:15728640"}));
}

TEST(TensorCacheWriter, ExactlyFullSplits) {
  EXPECT_EQ(places({17 * kMiB, 15 * kMiB}), (Places{"0:0", "1:0"}));
  EXPECT_EQ(places({17 * kMiB, 15 * kMiB - 1}), (Places{"0:0", "0:17825792"}));
  EXPECT_EQ(places({32 * kMiB}), (Places{"0:0"}));
}

TEST(TensorCacheWriter, TensorsStayAlignedAfterAScalar) {
  TempDir temp;
  TensorCacheWriter writer(temp.path());
  const size_t scalar = writer.begin("scalar", {}, DType::kFloat16);
  const size_t words = writer.begin("words", std::vector<int64_t>{3}, DType::kUInt32);
  const uint16_t one = 0x3c00;
  writer.write(scalar, std::as_bytes(std::span(&one, 1)));
  const uint32_t values[3] = {1, 2, 3};
  writer.write(words, std::as_bytes(std::span(values)));
  writer.finish(4);
  const TensorCache cache = TensorCache::open(temp.path());
  EXPECT_EQ(cache.get("scalar").shape, std::vector<int64_t>{});
  EXPECT_EQ(cache.get("words").offset, 64);
  EXPECT_EQ(std::memcmp(cache.bytes(cache.get("words")).data(), values, sizeof values), 0);
}

TEST(TensorCacheWriter, TensorsMayArriveInBlocksAndInterleaved) {
  TempDir temp;
  TensorCacheWriter writer(temp.path());
  const size_t a = writer.begin("a", std::vector<int64_t>{18, kMiB}, DType::kUInt8);
  const size_t b = writer.begin("b", std::vector<int64_t>{20, kMiB}, DType::kUInt8);
  const size_t c = writer.begin("c", std::vector<int64_t>{15, kMiB}, DType::kUInt8);  // closes the shard of a
  const std::vector<std::byte> block(static_cast<size_t>(kMiB), std::byte{7});
  for (int i = 0; i < 20; ++i) {
    writer.write(b, block);
    if (i < 18) writer.write(a, block);
    if (i < 15) writer.write(c, block);
  }
  writer.finish(53 * kMiB);
  const TensorCache cache = TensorCache::open(temp.path());
  EXPECT_EQ(cache.shards().size(), 3u);
  for (const char* name : {"a", "b", "c"}) {
    const auto bytes = cache.bytes(cache.get(name));
    EXPECT_TRUE(
        std::all_of(bytes.begin(), bytes.end(), [](std::byte value) { return value == std::byte{7}; }));
  }
  EXPECT_EQ(writer.files().size(), 4u);
  for (const FileHash& file : writer.files()) {
    EXPECT_EQ(file.sha256, sha256_hex(read_text(temp.path() / file.file))) << file.file;
  }
}

TEST(TensorCacheWriter, RefusesIncompleteTensors) {
  TempDir temp;
  TensorCacheWriter writer(temp.path());
  const size_t id = writer.begin("a", std::vector<int64_t>{4}, DType::kUInt8);
  writer.write(id, std::vector<std::byte>(3));
  EXPECT_THROW(writer.write(id, std::vector<std::byte>(2)), Error);
  EXPECT_THROW(writer.finish(4), Error);
}

// The same tensors in the same order give MLC's shard and its document, byte for byte.
TEST(TensorCacheWriter, WritesWhatMlcWrites) {
  const fs::path source = fs::path(DOVETAIL_TEST_DATA) / "mlc-packages/llama_tiny/q4f16_1";
  const TensorCache cache = TensorCache::open(source);
  TempDir temp;
  TensorCacheWriter writer(temp.path());
  int64_t elements = 0;
  for (const StoredTensor& tensor : cache.tensors()) {
    writer.write(writer.begin(tensor.name, tensor.shape, tensor.dtype), cache.bytes(tensor));
    if (tensor.dtype == DType::kFloat16 && tensor.shape.size() == 1) elements += tensor.elements();
  }
  // 4-bit matrices: embedding, head and per layer qkv, o, gate and up, down.
  elements += 2 * 320 * 64 + 2 * (128 * 64 + 64 * 64 + 224 * 64 + 64 * 112);
  writer.finish(elements);
  for (const char* file : {"params_shard_0.bin", "tensor-cache.json"}) {
    EXPECT_EQ(read_text(temp / file), read_text(source / file)) << file;
  }
}

}  // namespace
}  // namespace dovetail::package
