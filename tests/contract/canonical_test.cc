#include "contract/canonical.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "contract/artifact.h"
#include "test_documents.h"

namespace dovetail::contract {
namespace {

TEST(CanonicalJson, SortsNamesAndLeavesArraysAlone) {
  EXPECT_EQ(
      canonical_json(Json::parse(R"( {"b": [2, 1, {"d": null, "c": true}], "a": -0, "10": 1e3, "9": "x"} )")),
      R"({"10":1000,"9":"x","a":0,"b":[2,1,{"c":true,"d":null}]})");
}

TEST(CanonicalJson, SortsByUtf16CodeUnit) {
  // U+1F600 is the pair D83D DE00, which comes before U+E000 and U+FF5E but after U+D7FF.
  const Json value{{"\uFF5E", 1}, {"\U0001F600", 2}, {"\uE000", 3}, {"\uD7FF", 4},
                   {"a", 5},      {"\U0010FFFF", 6}, {"", 7}};
  EXPECT_EQ(canonical_json(value),
            "{\"\":7,\"a\":5,\"\uD7FF\":4,\"\U0001F600\":2,\"\U0010FFFF\":6,\"\uE000\":3,\"\uFF5E\":1}");
}

TEST(CanonicalJson, EscapesOnlyWhatJsonDemands) {
  EXPECT_EQ(canonical_json(Json(std::string("\"\\/\b\f\n\r\t\x01\x1f\0\x7f\xc3\xa9", 14))),
            R"("\"\\/\b\f\n\r\t\u0001\u001f\u0000)"
            "\x7f\xc3\xa9\"");
}

TEST(CanonicalJson, RefusesNumbersThatAreNoIntegers) {
  EXPECT_THROW(canonical_json(Json(1.5)), Error);
  EXPECT_THROW(canonical_json(Json(1e300)), Error);
}

TEST(InterfaceId, IsTheOnePinnedForTheSpecificationsExample) {
  EXPECT_EQ(interface_id(parse_tasks(audio_tasks())),
            "sha256:6453d39d6c1a05b41e3d10ac1547892e2fde2ae228c6705b122ffde5e4c9c490");
}

TEST(InterfaceId, OfTextOnlyDoesNotKnowImages) {
  const Tasks tasks = {
      {"chat.completions", Task{"generation", {{"text", Input{.processor = "tokenizer"}}}, "text"}}};
  EXPECT_EQ(
      to_json(tasks).dump(),
      R"({"chat.completions":{"executor":"generation","inputs":{"text":{"processor":"tokenizer"}},"output":"text"}})");
  EXPECT_EQ(interface_id(tasks), "sha256:dfcfaf1a1cbdaf603a5855108c7b5c5701c0d5de4c873f38a6971692bddf93bd");
}

TEST(ParameterSchemaId, DoesNotDependOnTheOrderOfTheParameters) {
  std::vector<ParameterRecord> params = example_params();
  const std::string id = parameter_schema_id(params);
  std::swap(params[0], params[1]);
  EXPECT_EQ(parameter_schema_id(params), id);
  params[0].dtype = "float32";
  EXPECT_NE(parameter_schema_id(params), id);
}

TEST(Resources, AreTheLargestParameterAndTheSum) {
  const Resources resources =
      compute_resources(example_params(), {{"vocab_size", 100}}, {"subgroups", "shader-f16", "subgroups"});
  EXPECT_EQ(resources.max_storage_buffer_binding_size, 100 * 4 * 4);
  EXPECT_EQ(resources.estimated_device_memory_bytes, 100 * 4 * 4 + 32 * 2);
  EXPECT_EQ(resources.required_features, (std::vector<std::string>{"shader-f16", "subgroups"}));
}

TEST(Resources, NameEveryParameterWithoutASize) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const std::vector<ParameterRecord> params = {{"unnamed", {std::string("hidden_size")}, "float16"},
                                               {"overflow", {kHuge, kHuge}, "uint32"},
                                               {"negative", {int64_t{-1}}, "uint32"},
                                               {"dtype", {int64_t{1}}, "float13"},
                                               {"scalar", {}, "float32"}};
  try {
    compute_resources(params, {}, {});
    FAIL();
  } catch (const Error& error) {
    ASSERT_EQ(error.problems().size(), 4u);
    EXPECT_EQ(error.problems()[0].text(),
              "parameters: \"unnamed\": the dimension \"hidden_size\" has no value");
    EXPECT_EQ(error.problems()[1].field, "\"overflow\"");
  }
  const int64_t half = std::numeric_limits<int64_t>::max() / 4;
  EXPECT_THROW(compute_resources({{"a", {half}, "uint32"}, {"b", {half}, "uint32"}}, {}, {}), Error);
  EXPECT_EQ(dimension_names(params), std::vector<std::string>{"hidden_size"});
}

// The whole contract of a real configuration with a named dimension.
TEST(Contract, OfARealModelIsReproduced) {
  const Json document = Json::parse(read_file(DOVETAIL_TEST_DATA "/contract/gemma-3-1b-it-q4f16_1.json"));
  Json metadata = Json::object();
  metadata["params"] = document["parameters"];
  metadata["artifact"] = document["artifact"]["webgpu"];
  const LibraryMetadata library = parse_metadata(metadata.dump());
  ASSERT_EQ(library.params->size(), 471u);
  const PackageManifest manifest = parse_package_manifest(document["manifest"].dump());
  EXPECT_EQ(to_json(manifest).dump(), document["manifest"].dump());
  EXPECT_EQ(to_json(*library.artifact).dump(), metadata["artifact"].dump());
  EXPECT_EQ(parameter_schema_id(*library.params), manifest.parameter_schema_id);
  EXPECT_EQ(compute_resources(*library.params, {{"vocab_size", 262144}}, {"shader-f16"}),
            library.artifact->resources);
}

}  // namespace
}  // namespace dovetail::contract
