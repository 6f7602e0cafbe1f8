#include "convert/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>

#include "base/error.h"
#include "gguf_fixture.h"
#include "support/npz.h"

namespace dovetail::convert {
namespace {
using namespace dovetail::testing;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string parse_error(const std::string& file, ErrorCode code = ErrorCode::kMalformed) {
  try {
    Gguf::parse(bytes_of(file), "test.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "accepted";
}

GgufFile example() {
  GgufFile file;
  file.set("general.architecture", "llama").set("llama.block_count", uint32_t{2});
  file.set("llama.rope.freq_base", 10000.0f).set("flag", true);
  file.set("tokens", std::vector<std::string>{"a", "", "longer"});
  file.set("types", std::vector<int32_t>{1, -3});
  file.set("scores", std::vector<float>{0.5f, -1.0f});
  file.f32("norm", {3}, {1, 2, 3});
  file.tensor("matrix", {2, 32}, GgmlType::kQ8_0, std::string(2 * 34, '\1'));
  return file;
}

TEST(Gguf, ReadsMetadataAndTensors) {
  for (const uint32_t version : {2u, 3u}) {
    GgufFile file = example();
    file.version = version;
    const std::string text = file.text();
    const Gguf gguf = Gguf::parse(bytes_of(text), "test.gguf");
    EXPECT_EQ(gguf.version(), version);
    ASSERT_EQ(gguf.keys().size(), 7u);
    EXPECT_EQ(gguf.keys()[0], "general.architecture");
    EXPECT_EQ(std::get<std::string_view>(*gguf.find("general.architecture")), "llama");
    EXPECT_EQ(std::get<int64_t>(*gguf.find("llama.block_count")), 2);
    EXPECT_EQ(std::get<double>(*gguf.find("llama.rope.freq_base")), 10000.0);
    EXPECT_TRUE(std::get<bool>(*gguf.find("flag")));
    const auto& tokens = std::get<GgufArray>(*gguf.find("tokens"));
    ASSERT_EQ(tokens.strings.size(), 3u);
    EXPECT_EQ(tokens.strings[2], "longer");
    EXPECT_EQ(std::get<GgufArray>(*gguf.find("types")).integers(), (std::vector<int64_t>{1, -3}));
    EXPECT_EQ(std::get<GgufArray>(*gguf.find("scores")).floats(), (std::vector<float>{0.5f, -1.0f}));
    EXPECT_EQ(std::get<GgufArray>(*gguf.find("scores")).integers(), std::nullopt);
    EXPECT_EQ(gguf.find("none"), nullptr);
    const GgufTensor* matrix = gguf.find_tensor("matrix");
    ASSERT_NE(matrix, nullptr);
    EXPECT_EQ(matrix->shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(matrix->type_name(), "Q8_0");
    EXPECT_EQ(matrix->bytes, 68);
    EXPECT_EQ(matrix->offset, static_cast<int64_t>(text.size()) - 68);
    EXPECT_EQ(gguf.find_tensor("norm")->bytes, 12);
  }
}

TEST(Gguf, ReadsEveryTypeOfNumber) {
  GgufFile file;
  file.pair("u8", GgufType::kUInt8, raw(uint8_t{255})).pair("i8", GgufType::kInt8, raw(int8_t{-1}));
  file.pair("u16", GgufType::kUInt16, raw(uint16_t{65535})).pair("i16", GgufType::kInt16, raw(int16_t{-2}));
  file.pair("i32", GgufType::kInt32, raw(int32_t{-3})).pair("i64", GgufType::kInt64, raw(int64_t{-4}));
  file.pair("u64", GgufType::kUInt64, raw(~uint64_t{0})).pair("f64", GgufType::kFloat64, raw(0.25));
  const std::string text = file.text();
  const Gguf gguf = Gguf::parse(bytes_of(text), "test.gguf");
  EXPECT_EQ(std::get<int64_t>(*gguf.find("u8")), 255);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("i8")), -1);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("u16")), 65535);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("i16")), -2);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("i32")), -3);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("i64")), -4);
  EXPECT_EQ(std::get<uint64_t>(*gguf.find("u64")), ~uint64_t{0});
  EXPECT_EQ(std::get<double>(*gguf.find("f64")), 0.25);
}

TEST(Gguf, RefusesAFileTruncatedAnywhere) {
  const std::string file = example().text();
  ASSERT_EQ(parse_error(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(parse_error(file.substr(0, size)), "accepted") << size;
}

TEST(Gguf, RefusesHeaders) {
  std::string file = example().text();
  EXPECT_NE(parse_error("GGML" + file.substr(4)).find("is no GGUF file"), std::string::npos);
  file[4] = 1;
  EXPECT_NE(parse_error(file, ErrorCode::kUnsupported).find("expected 2 or 3, got 1"), std::string::npos);
  file[4] = 0, file[7] = 3;
  EXPECT_NE(parse_error(file, ErrorCode::kUnsupported).find("big-endian"), std::string::npos);
}

TEST(Gguf, RefusesCountsThatTheFileCanNotHold) {
  const std::string head = "GGUF" + raw(uint32_t{3});
  EXPECT_NE(parse_error(head + raw(~uint64_t{0}) + raw(uint64_t{0})).find("tensor_count"), std::string::npos);
  EXPECT_NE(parse_error(head + raw(uint64_t{0}) + raw(~uint64_t{0})).find("metadata_kv_count"),
            std::string::npos);
  const std::string pair = head + raw(uint64_t{0}) + raw(uint64_t{1}) + gguf_text("key");
  const auto array = [&](uint32_t type, uint64_t count) {
    return parse_error(pair + raw(uint32_t{9}) + raw(type) + raw(count) + std::string(64, '\0'));
  };
  EXPECT_NE(array(10, uint64_t{1} << 61).find("larger than the file can hold"), std::string::npos);
  EXPECT_NE(array(8, uint64_t{1} << 61).find("larger than the file can hold"), std::string::npos);
  EXPECT_NE(array(9, uint64_t{1} << 61).find("larger than the file can hold"), std::string::npos);
  EXPECT_NE(array(13, 0).find("unknown type of metadata"), std::string::npos);
  EXPECT_NE(parse_error(pair + raw(uint32_t{8}) + raw(~uint64_t{0})).find("length of the text"),
            std::string::npos);
  EXPECT_NE(parse_error(pair + raw(uint32_t{7}) + "\2").find("truth value"), std::string::npos);
}

TEST(Gguf, RefusesDeepArrays) {
  std::string value;
  for (int i = 0; i < 100; ++i) value += raw(uint32_t{9}) + raw(uint64_t{1});
  value += raw(uint32_t{4}) + raw(uint64_t{0});
  EXPECT_NE(parse_error(GgufFile().pair("key", GgufType::kArray, value).text()).find("nested too deeply"),
            std::string::npos);
}

TEST(Gguf, RefusesNamesAndKeysThatAreThereTwice) {
  EXPECT_NE(parse_error(GgufFile().set("a", 1u).set("a", 2u).text()).find("\"a\": the key is there twice"),
            std::string::npos);
  EXPECT_NE(parse_error(GgufFile().f32("t", {1}, {1}).f32("t", {1}, {1}).text()).find("there twice"),
            std::string::npos);
  EXPECT_NE(parse_error(GgufFile().f32("", {1}, {1}).text()).find("wrong length"), std::string::npos);
}

TEST(Gguf, RefusesTensors) {
  const auto error = [](std::vector<int64_t> shape, uint32_t type, const std::string& data) {
    return parse_error(GgufFile().tensor("t", std::move(shape), type, data).text());
  };
  EXPECT_NE(error({1, 1, 1, 1, 1}, 0, "1234").find("too many dimensions"), std::string::npos);
  EXPECT_NE(error({int64_t{1} << 50}, 0, "1234").find("dimension 0 is too large"), std::string::npos);
  EXPECT_NE(error({int64_t{1} << 40, int64_t{1} << 40}, 0, "1234").find("number of values"),
            std::string::npos);
  EXPECT_NE(error({2, 33}, 2, std::string(64, '\0')).find("no whole number of Q4_0 blocks"),
            std::string::npos);
  EXPECT_NE(error({4}, 0, std::string(15, '\0')).find("ends behind the end of the file"), std::string::npos);
  EXPECT_EQ(error({4}, 99, std::string(15, '\0')), "accepted");  // refused by name when it is needed
  std::string file =
      GgufFile().f32("a", {8}, std::vector<float>(8)).f32("b", {8}, std::vector<float>(8)).text();
  const size_t offset = file.find("b", 60) + 1 + 4 + 8 + 4;
  file[offset] = 1;
  EXPECT_NE(parse_error(file).find("unaligned"), std::string::npos);
  file[offset] = 0;
  EXPECT_NE(parse_error(file).find("overlaps the tensor before it"), std::string::npos);
  file.replace(offset, 8, raw(~uint64_t{0}));
  EXPECT_NE(parse_error(file).find("begins behind the end"), std::string::npos);
}

TEST(Gguf, HonoursTheAlignment) {
  GgufFile file;
  file.alignment = 64;
  file.set("general.alignment", uint32_t{64}).f32("a", {1}, {1}).f32("b", {1}, {2});
  const std::string text = file.text();
  EXPECT_EQ(Gguf::parse(bytes_of(text), "test.gguf").find_tensor("b")->offset % 64, 0);
  for (const uint32_t bad : {0u, 48u, 1u << 30})
    EXPECT_NE(parse_error(GgufFile().set("general.alignment", bad).text()).find("no alignment"),
              std::string::npos);
  EXPECT_NE(parse_error(GgufFile().set("general.alignment", "x").text()).find("no alignment"),
            std::string::npos);
}

TEST(GgmlTypes, ValuesAreThoseOfTheReference) {
  const auto arrays = test::read_npz(std::string(DOVETAIL_TEST_DATA) + "/gguf/types.npz");
  int types = 0;
  for (uint32_t number = 0; number < 64; ++number) {
    const GgmlTypeInfo* info = find_ggml_type(number);
    if (info == nullptr || !info->readable) continue;
    SCOPED_TRACE(info->name);
    ++types;
    const auto& blocks = arrays.at(std::string(info->name) + "_blocks").bytes;
    const auto& expected = arrays.at(std::string(info->name) + "_values").values;
    ASSERT_EQ(static_cast<int64_t>(blocks.size()) / info->block_bytes * info->block_values,
              static_cast<int64_t>(expected.size()));
    std::vector<float> values(expected.size(), NAN);
    dequantize(static_cast<GgmlType>(number), reinterpret_cast<const std::byte*>(blocks.data()), values);
    EXPECT_EQ(values, expected);
  }
  EXPECT_EQ(types, 15);
  EXPECT_EQ(readable_ggml_types(),
            "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16");
}

}  // namespace
}  // namespace dovetail::convert
