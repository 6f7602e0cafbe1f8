#include "contract/match.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "test_documents.h"

namespace dovetail::contract {
namespace {

struct Case {
  PackageManifest manifest = example_manifest();
  LibraryMetadata library = example_library();
  MatchContext context = example_context();

  Program& program() { return library.artifact->programs[0].second; }
  Input& audio() { return manifest.tasks[0].second.inputs[1].second; }

  std::vector<std::string> fields() const {
    std::vector<std::string> fields;
    for (const Problem& problem : match(manifest, library, context)) {
      EXPECT_FALSE(problem.message.empty());
      EXPECT_FALSE(problem.source.empty());
      EXPECT_FALSE(problem.actual.empty()) << problem.text();
      fields.push_back(problem.source + " " + problem.field);
    }
    return fields;
  }
};

using Fields = std::vector<std::string>;

TEST(Match, PartsMadeForEachOtherFit) {
  EXPECT_EQ(Case().fields(), Fields());
  Case unknown;
  unknown.context = {};
  EXPECT_EQ(unknown.fields(), Fields());
}

TEST(Match, ReportsEverythingAtOnce) {
  Case test;
  test.manifest.interface_id = "sha256:" + std::string(64, '0');
  test.library.kv_state_kind = KvStateKind::kRnnState;
  test.program().exports[1].first = "prefill_embeds";
  test.program().adapters[0].first = "image";
  test.context.vocab_size = 258882;
  test.context.device->features->erase("shader-f16");
  test.context.functions->erase("embed");
  EXPECT_EQ(
      test.fields(),
      (Fields{"_metadata artifact.interface_id",
              "_metadata artifact.programs.generation.exports.prefill_tokens",
              "_metadata artifact.programs.generation.exports.decode_embeds",
              "mlc-model-manifest.json tasks[\"chat.completions\"].inputs.audio.prompt.suffix_token_ids[0]",
              "_metadata artifact.resources.required_features[0]",
              "_metadata artifact.programs.generation.adapters", "_metadata kv_state_kind",
              "_metadata artifact.programs.generation.exports.embed_tokens"}));
}

TEST(Match, AnotherQuantizationIsNamed) {
  Case test;
  test.manifest.parameter_schema_id = "sha256:" + std::string(64, '0');
  const auto problems = match(test.manifest, test.library, test.context);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].text().find("compiled for \"gemma4 q4f16_1\""), std::string::npos)
      << problems[0].text();
  EXPECT_FALSE(problems[0].hint.empty());
}

TEST(Match, TheParameterIdentifierIsThatOfTheLibrarysParams) {
  Case test;
  test.library.params->at(1).dtype = "float32";
  EXPECT_EQ(test.fields(), Fields{"_metadata artifact.parameter_schema_id"});
  test.library.params.reset();
  EXPECT_EQ(test.fields(), Fields());
}

TEST(Match, ALibraryWithoutAContractIsNamed) {
  Case test;
  test.library.artifact.reset();
  EXPECT_EQ(test.fields(), Fields{"_metadata artifact"});
  test.library.artifact_problems = {{.message = "m", .source = "s", .field = "f", .actual = "a"}};
  EXPECT_EQ(test.fields(), Fields{"s f"});
}

TEST(Match, AllDeclaredFunctionsMustExist) {
  Case test;
  test.program().exports.emplace_back("prefill_embeds", "prefill");
  test.program().exports.emplace_back("decode_embeds", "decode");
  test.program().adapters.emplace_back("other", "other_embed");
  EXPECT_EQ(test.fields(), (Fields{"_metadata artifact.programs.generation.exports.prefill_embeds",
                                   "_metadata artifact.programs.generation.exports.decode_embeds",
                                   "_metadata artifact.programs.generation.adapters.other"}));
}

TEST(Match, TokensMustFitTheVocabularyOrInt32) {
  Case test;
  test.audio().prompt->placeholder_token_id = 262143;
  EXPECT_EQ(test.fields(), Fields());
  test.audio().prompt->placeholder_token_id = 262144;
  EXPECT_EQ(test.fields().size(), 1u);
  test.context.vocab_size.reset();
  EXPECT_EQ(test.fields(), Fields());
  test.audio().prompt->placeholder_token_id = int64_t{1} << 31;
  EXPECT_EQ(test.fields().size(), 1u);
}

TEST(Match, MediaNeedAnAdapterOfTheirType) {
  Case test;
  test.program().adapter_dtypes = {{"audio", "float32"}};
  EXPECT_EQ(test.fields(), Fields());
  test.program().adapter_dtypes = {{"audio", "uint8"}};
  EXPECT_EQ(test.fields(), Fields{"_metadata artifact.programs.generation.adapter_dtypes.audio"});
  test.audio().processor = ImageDecode{{ResizeMode::kStretch, 8, 8}, 4};
  EXPECT_EQ(test.fields(), Fields());
  test.audio().adapter.reset();
  test.audio().prompt.reset();
  EXPECT_EQ(test.fields(), Fields{"mlc-model-manifest.json tasks[\"chat.completions\"].inputs.audio"});
}

TEST(Match, KvStateFollowsTheRoles) {
  Case test;
  test.program().exports.emplace_back("create_rnn_state", "create_rnn_state");
  test.context.functions->insert("create_rnn_state");
  EXPECT_EQ(test.fields(), Fields{"_metadata kv_state_kind"});
  test.library.kv_state_kind = KvStateKind::kHybrid;
  EXPECT_EQ(test.fields(), Fields());
}

TEST(Match, ABindingMustHoldTheLargestParameterWhateverTheLibrarySays) {
  Case test;
  const int64_t needed = test.library.artifact->resources.max_storage_buffer_binding_size;
  test.context.device->max_storage_buffer_binding_size = needed;
  EXPECT_EQ(test.fields(), Fields());
  test.context.device->max_storage_buffer_binding_size = needed - 1;
  EXPECT_EQ(test.fields(), Fields{"_metadata artifact.resources.max_storage_buffer_binding_size"});
  test.library.artifact->resources.max_storage_buffer_binding_size = 0;
  EXPECT_EQ(test.fields(), Fields{"_metadata artifact.resources.max_storage_buffer_binding_size"});
}

TEST(Review, NamesStatedSizesThatAreNotThoseOfTheParameters) {
  Case test;
  EXPECT_TRUE(review(test.library, test.context).empty());
  test.library.artifact->resources.estimated_device_memory_bytes += 1;
  const auto notes = review(test.library, test.context);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].field, "artifact.resources.estimated_device_memory_bytes");
  EXPECT_EQ(test.fields(), Fields());
  test.context.named_dimensions = {{"hidden_size", 8}};
  EXPECT_NE(review(test.library, test.context).at(0).text().find("vocab_size"), std::string::npos);
  test.context.named_dimensions = {};
  EXPECT_TRUE(review(test.library, test.context).empty());
}

TEST(MatchContext, IsReadFromDocuments) {
  MatchContext context;
  add_chat_config(context, R"({"vocab_size":10,"context_window_size":5,"version":"0.1.0",
                               "model_config":{"vocab_size":12,"hidden_size":8,"rms_norm_eps":1e-6}})");
  EXPECT_EQ(context.vocab_size, 10);
  EXPECT_EQ(context.named_dimensions,
            (NamedDimensions{{"vocab_size", 12}, {"hidden_size", 8}, {"context_window_size", 5}}));
  add_device(context, R"({"features":["shader-f16"],"maxStorageBufferBindingSize":7,"other":1})", "d");
  EXPECT_EQ(context.device->max_storage_buffer_binding_size, 7);
  add_functions(context, R"(["a","b"])", "f");
  EXPECT_TRUE(context.functions->contains("b"));
}

TEST(MatchContext, MalformedDocumentsAreRefused) {
  MatchContext context;
  for (const char* text : {"[]", "{}", R"({"vocab_size":0})", R"({"vocab_size":"1"})", "x"}) {
    EXPECT_THROW(add_chat_config(context, text), Error) << text;
  }
  for (const char* text : {"[]", R"({"features":"x"})", R"({"maxStorageBufferBindingSize":-1})"}) {
    EXPECT_THROW(add_device(context, text, "d"), Error) << text;
  }
  for (const char* text : {"{}", R"(["a",1])", R"([""])"})
    EXPECT_THROW(add_functions(context, text, "f"), Error) << text;
}

}  // namespace
}  // namespace dovetail::contract
