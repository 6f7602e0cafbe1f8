#include "contract/manifest.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "contract/canonical.h"
#include "test_documents.h"

namespace dovetail::contract {
namespace {

std::vector<Problem> problems_of(const std::string& bytes) {
  try {
    parse_package_manifest(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    return error.problems();
  }
  return {};
}

std::vector<std::string> fields_of(const std::vector<Problem>& problems) {
  std::vector<std::string> fields;
  for (const Problem& problem : problems) fields.push_back(problem.field);
  return fields;
}

TEST(Manifest, SurvivesARoundTripThroughJson) {
  const PackageManifest manifest = example_manifest();
  EXPECT_EQ(parse_package_manifest(to_json(manifest).dump(2)), manifest);
}

TEST(Manifest, IsWrittenInTheSpecifiedOrderWithoutEmptyFields) {
  PackageManifest manifest;
  manifest.interface_id = "i";
  manifest.parameter_schema_id = "p";
  Input image{.processor = ImageDecode{{ResizeMode::kCenterCrop, 336, 448}, 576},
              .adapter = "image",
              .prompt = Prompt{}};
  image.prompt->placeholder_token_id = 32000;
  manifest.tasks = {
      {"chat.completions",
       Task{"generation", {{"text", Input{.processor = "tokenizer"}}, {"image", image}}, "text"}}};
  EXPECT_EQ(
      to_json(manifest).dump(),
      R"({"schema":"mlc.model-package","schema_version":1,"chat_config":"mlc-chat-config.json",)"
      R"("interface_id":"i","weights":{"manifest":"tensor-cache.json","parameter_schema_id":"p"},)"
      R"("tasks":{"chat.completions":{"executor":"generation","inputs":{"text":{"processor":"tokenizer"},)"
      R"("image":{"processor":{"kind":"image_decode","format":"rgb_u8","layout":"nhwc",)"
      R"("resize":{"mode":"center_crop","height":336,"width":448},"num_embeddings":576},)"
      R"("adapter":"image","prompt":{"placeholder_token_id":32000}}},"output":"text"}}})");
}

TEST(Manifest, TasksKeepTheirFileOrder) {
  const Tasks tasks = parse_tasks(audio_tasks());
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].second.inputs[0].first, "text");
  EXPECT_EQ(tasks[0].second.inputs[1].first, "audio");
  EXPECT_EQ(to_json(tasks).dump(), audio_tasks().dump());
}

TEST(Manifest, DefaultsAreFilledIn) {
  Json tasks = audio_tasks();
  Json& audio = tasks["chat.completions"]["inputs"]["audio"];
  audio["processor"].erase("min_samples");
  audio["prompt"].erase("prefix_token_ids");
  const Input input = *find_named(parse_tasks(tasks)[0].second.inputs, "audio");
  EXPECT_EQ(std::get<AudioDecode>(input.processor).min_samples, 1);
  EXPECT_TRUE(input.prompt->prefix_token_ids.empty());
  EXPECT_EQ(input.prompt->suffix_token_ids, std::vector<int64_t>{258883});
}

TEST(Manifest, EverythingWrongIsReportedAtOnce) {
  Json document = to_json(example_manifest());
  document["schema_version"] = "1";
  document["interface_id"] = nullptr;
  document["weights"].erase("manifest");
  document["extra"] = 1;
  Json& audio = document["tasks"]["chat.completions"]["inputs"]["audio"];
  audio["processor"]["channels"] = 2;
  audio["processor"]["max_samples"] = 100;
  audio["prompt"]["prefix_token_ids"] = {1, -2, "3"};
  EXPECT_EQ(fields_of(problems_of(document.dump())),
            (std::vector<std::string>{"schema_version", "interface_id", "weights.manifest",
                                      R"(tasks["chat.completions"].inputs.audio.processor.channels)",
                                      R"(tasks["chat.completions"].inputs.audio.processor.max_samples)",
                                      R"(tasks["chat.completions"].inputs.audio.prompt.prefix_token_ids[1])",
                                      R"(tasks["chat.completions"].inputs.audio.prompt.prefix_token_ids[2])",
                                      "extra"}));
}

TEST(Manifest, ProblemsSayWhatIsExpectedAndWhatIsThere) {
  Json document = to_json(example_manifest());
  document["tasks"]["chat.completions"]["inputs"]["audio"]["processor"]["sample_rate_hz"] = 0;
  const auto problems = problems_of(document.dump());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text(),
            R"(mlc-model-manifest.json: tasks["chat.completions"].inputs.audio.processor.sample_rate_hz: )"
            "wrong value (expected an integer from 1 to 2^53 - 1, got 0)");
}

TEST(Manifest, AnEditedTaskNoLongerFitsItsIdentifier) {
  Json document = to_json(example_manifest());
  document["tasks"]["chat.completions"]["inputs"]["audio"]["processor"]["max_samples"] = 480001;
  const auto problems = problems_of(document.dump());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].field, "interface_id");
  EXPECT_EQ(problems[0].actual, example_manifest().interface_id);
  EXPECT_NE(problems[0].expected, problems[0].actual);
}

TEST(Manifest, AFloodOfProblemsIsCutAndCounted) {
  Json document = to_json(example_manifest());
  Json& ids = document["tasks"]["chat.completions"]["inputs"]["audio"]["prompt"]["prefix_token_ids"];
  ids = Json(std::vector<int>(100'000, -1));
  const auto problems = problems_of(document.dump());
  ASSERT_EQ(problems.size(), 101u);
  EXPECT_EQ(problems.back().message, "and 99900 more problems");
}

TEST(Manifest, AMillionTokenIdsAreRead) {
  Json tasks = audio_tasks();
  tasks["chat.completions"]["inputs"]["audio"]["prompt"]["prefix_token_ids"] = std::vector<int>(1'000'000, 7);
  EXPECT_EQ(parse_tasks(tasks)[0].second.inputs[1].second.prompt->prefix_token_ids.size(), 1'000'000u);
}

TEST(Manifest, NumbersMayBeSpelledAsAnyInteger) {
  std::string text = to_json(example_manifest()).dump();
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
  };
  replace("\"schema_version\":1", "\"schema_version\":1.0");
  replace("16000", "1.6e4");
  replace("480000", "480000.000");
  EXPECT_EQ(parse_package_manifest(text), example_manifest());
  replace("1.6e4", "16000.0000000000001");
  EXPECT_EQ(problems_of(text).size(), 1u);
}

TEST(Manifest, HostileTextIsRefused) {
  const std::string good = to_json(example_manifest()).dump();
  EXPECT_TRUE(problems_of("\xef\xbb\xbf" + good).empty());
  EXPECT_FALSE(problems_of("\xef\xbb\xbf\xef\xbb\xbf" + good).empty());
  EXPECT_FALSE(problems_of("").empty());
  EXPECT_FALSE(problems_of(good + " {}").empty());
  EXPECT_FALSE(problems_of(std::string(1'000'000, '[')).empty());
  EXPECT_FALSE(problems_of(good.substr(0, good.size() / 2)).empty());
}

}  // namespace
}  // namespace dovetail::contract
