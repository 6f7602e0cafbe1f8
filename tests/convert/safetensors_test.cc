#include "convert/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>

#include "../temp_dir.h"
#include "base/error.h"
#include "checkpoint_fixture.h"
#include "convert/checkpoint.h"

namespace dovetail::convert {
namespace {
using namespace dovetail::testing;

std::vector<SafeTensor> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "test.safetensors");
}

std::string parse_error(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    return error.what();
  }
  return "accepted";
}

std::string with_header(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

TEST(Safetensors, ReadsTensors) {
  const std::vector<SafeTensor> tensors = parse(
      with_header(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}   )",
                  std::string(16, 'x')));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].dtype, DType::kFloat32);
  EXPECT_EQ(tensors[0].bytes, 8);
  EXPECT_EQ(tensors[1].dtype, std::nullopt);
  EXPECT_EQ(tensors[1].dtype_text, "I64");
  EXPECT_EQ(tensors[1].elements(), 1);
}

TEST(Safetensors, RefusesAFileTruncatedAnywhere) {
  const std::string file = safetensors_text({bf16_tensor("a", {3, 4}), bf16_tensor("b", {5})});
  ASSERT_EQ(parse(file).size(), 2u);
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(parse_error(file.substr(0, size)), "accepted") << size;
  EXPECT_NE(parse_error(file + "x").find("longer than its tensors"), std::string::npos);
}

TEST(Safetensors, RefusesHeaderLengths) {
  const std::string file = safetensors_text({bf16_tensor("a", {3, 4})});
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{file.size() - 7},
                                uint64_t{100'000'001}, uint64_t{0}, uint64_t{1}}) {
    std::string changed = file;
    std::memcpy(changed.data(), &length, 8);
    EXPECT_NE(parse_error(changed), "accepted") << length;
  }
}

TEST(Safetensors, RefusesBadHeaders) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  ASSERT_EQ(parse_error(with_header(one("F32", "[2]", "[0,8]"), "12345678")), "accepted");
  const std::pair<std::string, const char*> cases[] = {
      {one("F32", "[2]", "[0,4]"), "expected 8 bytes, got 4"},
      {one("F32", "[2]", "[8,0]"), "is no range"},
      {one("F32", "[2]", "[0,9]"), "out of range"},
      {one("F32", "[2]", "[-1,7]"), "out of range"},
      {one("F32", "[2]", "[0]"), "is no range"},
      {one("F32", "[2]", "[0,18446744073709551615]"), "out of range"},
      {one("F32", "[-2]", "[0,8]"), "out of range"},
      {one("F32", "[2.0]", "[0,8]"), "out of range"},
      {one("F32", "[1e400]", "[0,8]"), "not valid JSON"},
      {one("F32", "[281474976710656,281474976710656]", "[0,8]"), "overflows"},
      {one("F32", "\"2\"", "[0,8]"), "expected an array"},
      {R"({"a":[]})", "expected an object"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "data_offsets: is missing"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "leaves a hole"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "duplicate"},
      {R"({"a":{"dtype":"F32","shape":[[[[[[[[2]]]]]]]],"data_offsets":[0,8]}})", "nested deeper"},
      {R"([])", "no JSON object"},
      {"{\"\xff\":1}", "not valid JSON"},
      {R"({} x)", "not valid JSON"},
  };
  for (const auto& [header, message] : cases) {
    const std::string error = parse_error(with_header(header, "12345678"));
    EXPECT_NE(error.find(message), std::string::npos) << header << "\n" << error;
  }
}

TEST(Safetensors, PlacesCountFromTheBeginningOfTheFile) {
  EXPECT_NE(parse_error(with_header("{\"a\xff\":1}", "")).find("test.safetensors: not valid JSON at byte 11"),
            std::string::npos);
}

TEST(Checkpoint, ReadsFilesOfAnIndex) {
  TempDir temp;
  write_text(temp / "x1.safetensors", safetensors_text({bf16_tensor("a", {2})}));
  write_text(temp / "x2.safetensors", safetensors_text({bf16_tensor("b", {3}), bf16_tensor("c", {1})}));
  const auto index = [&](const std::string& map) {
    write_text(temp / "model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
  };
  index(R"({"a":"x1.safetensors","b":"x2.safetensors","c":"x2.safetensors"})");
  const Checkpoint checkpoint = open_checkpoint(temp.path());
  ASSERT_EQ(checkpoint.tensors.size(), 3u);
  EXPECT_EQ(checkpoint.files[checkpoint.tensors[2].file].name, "x2.safetensors");
  EXPECT_EQ(checkpoint.bytes(checkpoint.tensors[1]).size(), 6u);

  const auto error = [&]() -> std::string {
    try {
      open_checkpoint(temp.path());
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  index(R"({"a":"x1.safetensors","b":"x2.safetensors","d":"x2.safetensors"})");
  EXPECT_NE(error().find("lacks tensor \"d\""), std::string::npos) << error();
  index(R"({"a":"x2.safetensors","b":"x1.safetensors","c":"x2.safetensors"})");
  EXPECT_NE(error().find("in another file than the index says"), std::string::npos) << error();
  index(R"({"a":"x1.safetensors","b":"x3.safetensors"})");
  EXPECT_NE(error().find("x3.safetensors"), std::string::npos) << error();
  index(R"({"a":"../x1.safetensors"})");
  EXPECT_NE(error().find("leaves the package"), std::string::npos) << error();
  index("{}");
  EXPECT_NE(error().find("is empty"), std::string::npos) << error();
  write_text(temp / "x2.safetensors", safetensors_text({bf16_tensor("a", {3})}));
  index(R"({"a":"x1.safetensors","b":"x2.safetensors"})");
  EXPECT_NE(error().find("\"a\" is also in x1.safetensors"), std::string::npos) << error();
}

TEST(Checkpoint, SaysWhichWeightsThereAre) {
  TempDir temp;
  write_text(temp / "model.gguf", "GGUF");
  write_text(temp / "pytorch_model.bin", "x");
  try {
    open_checkpoint(temp.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("got model.gguf, pytorch_model.bin"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace dovetail::convert
