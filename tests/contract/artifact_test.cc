#include "contract/artifact.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "test_documents.h"

namespace dovetail::contract {
namespace {

Json example_metadata() {
  Json document = Json::parse(R"({"model_type":"gemma4","quantization":"q4f16_1","context_window_size":4096,
    "sliding_window_size":-1,"attention_sink_size":-1,"prefill_chunk_size":512,"tensor_parallel_shards":1,
    "max_batch_size":4,"kv_state_kind":"kv_cache","memory_usage":{"prefill":1},
    "params":[{"name":"embed.q_weight","shape":["vocab_size",4],"dtype":"uint32","preprocs":[]},
              {"name":"norm.weight","shape":[32],"dtype":"float16"}],
    "dovetail":{"target":{"arch":"x86_64"}}})");
  document["artifact"] = to_json(*example_library().artifact);
  return document;
}

std::vector<Problem> problems_of(const Json& document) {
  try {
    parse_metadata(document.dump());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    return error.problems();
  }
  return {};
}

TEST(Metadata, IsReadWithItsContract) {
  const LibraryMetadata library = parse_metadata(example_metadata().dump());
  EXPECT_EQ(library.model_type, "gemma4");
  EXPECT_EQ(library.context_window_size, 4096);
  EXPECT_EQ(library.sliding_window_size, -1);
  EXPECT_EQ(library.prefill_chunk_size, 512);
  EXPECT_EQ(library.max_batch_size, 4);
  EXPECT_FALSE(library.vocab_size.has_value());
  EXPECT_EQ(library.params, example_params());
  EXPECT_EQ(library.artifact, example_library().artifact);
  EXPECT_EQ(library.dovetail["target"]["arch"], "x86_64");
}

TEST(Metadata, AMalformedContractConcernsOnlyThoseWhoAskForIt) {
  Json document = example_metadata();
  document["artifact"] = Json{{"schema", 7}};
  const LibraryMetadata library = parse_metadata(document.dump());
  EXPECT_FALSE(library.artifact.has_value());
  ASSERT_EQ(library.artifact_problems.size(), 6u);
  EXPECT_EQ(library.artifact_problems[0].text(),
            "_metadata: artifact.schema: wrong value "
            "(expected \"mlc.compiled-program\", got 7)");
  EXPECT_THROW(parse_artifact(document["artifact"]), Error);
}

TEST(Metadata, EverythingWrongIsReportedAtOnce) {
  Json document = example_metadata();
  document["model_type"] = 1;
  document["kv_state_kind"] = "cache";
  document["max_batch_size"] = 1.5;
  document["params"][0]["shape"][1] = -4;
  document["params"][1]["name"] = "embed.q_weight";
  document["params"].push_back(Json{{"name", "x"}});
  document["dovetail"] = "x";
  document["artifact"] = nullptr;
  std::vector<std::string> fields;
  for (const Problem& problem : problems_of(document)) fields.push_back(problem.field);
  EXPECT_EQ(fields, (std::vector<std::string>{"model_type", "max_batch_size", "kv_state_kind",
                                              "params[0].shape[1]", "params[1].name", "params[2].shape",
                                              "params[2].dtype", "dovetail", "artifact"}));
}

TEST(Metadata, AbsentAndNullReadAsUnknown) {
  const LibraryMetadata library = parse_metadata(R"({"kv_state_kind":null,"context_window_size":null})");
  EXPECT_EQ(library.kv_state_kind, KvStateKind::kKvCache);
  EXPECT_FALSE(library.context_window_size.has_value());
  EXPECT_FALSE(library.params.has_value());
  EXPECT_FALSE(library.artifact.has_value());
  EXPECT_TRUE(library.artifact_problems.empty());
  EXPECT_TRUE(library.dovetail.is_null());
}

TEST(Metadata, EveryKvStateKindIsRead) {
  for (const KvStateKind kind :
       {KvStateKind::kKvCache, KvStateKind::kRnnState, KvStateKind::kHybrid, KvStateKind::kNone}) {
    Json document = Json::object();
    document["kv_state_kind"] = kv_state_kind_name(kind);
    EXPECT_EQ(parse_metadata(document.dump()).kv_state_kind, kind);
  }
}

TEST(Artifact, IsWrittenInTheSpecifiedOrderWithoutEmptyFields) {
  CompiledProgram artifact{.interface_id = "i", .parameter_schema_id = "p"};
  artifact.programs = {{"g", Program{.kind = "token_generation", .exports = {{"embed_tokens", "embed"}}}}};
  EXPECT_EQ(
      to_json(artifact).dump(),
      R"({"schema":"mlc.compiled-program","schema_version":1,"interface_id":"i","parameter_schema_id":"p",)"
      R"("programs":{"g":{"kind":"token_generation","exports":{"embed_tokens":"embed"}}},)"
      R"("resources":{"required_features":[],"max_storage_buffer_binding_size":0,)"
      R"("estimated_device_memory_bytes":0}})");
}

TEST(Artifact, SurvivesARoundTripThroughJson) {
  CompiledProgram artifact = *example_library().artifact;
  artifact.programs[0].second.adapter_dtypes = {{"audio", "float32"}};
  EXPECT_EQ(parse_artifact(to_json(artifact)), artifact);
}

TEST(Artifact, DtypesNameAdaptersOfTheirProgram) {
  Json document = to_json(*example_library().artifact);
  document["programs"]["generation"]["adapter_dtypes"] = {{"audio_embed", "float32"}};
  try {
    parse_artifact(document);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problems()[0].field, "artifact.programs.generation.adapter_dtypes.audio_embed");
  }
}

}  // namespace
}  // namespace dovetail::contract
