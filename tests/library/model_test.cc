#include "library/model.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "fake_package.h"
#include "package/content_hashes.h"

namespace dovetail::library {
namespace {

class ModelTest : public ::testing::Test {
 protected:
  ModelTest() { test::write_fake_package(package()); }

  std::filesystem::path package() const { return dir_.path() / "package"; }

  std::string refusal() const {
    try {
      open_model(package());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryDirectory dir_;
};

void expect_all(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
}

TEST_F(ModelTest, OpensWhatFits) {
  const Model model = open_model(package());
  EXPECT_EQ(model.chat_config.vocab_size, 368);
  EXPECT_EQ(model.metadata().model_type, "fake");
  EXPECT_EQ(model.task.executor, "generation");
  // Both parameters arrive with their values, in the library's order, whatever the order of the cache.
  EXPECT_EQ(model.program.embed(std::vector<int32_t>{3}).row(0)[0], 3.0f);
}

TEST_F(ModelTest, TakesTheLibraryItIsGiven) {
  test::write_fake_library(dir_.path() / "other.so", {{R"("model_type":"fake")", R"("model_type":"mine")"}});
  EXPECT_EQ(open_model(package(), dir_.path() / "other.so").metadata().model_type, "mine");
}

TEST_F(ModelTest, TakesTheBestFittingLibrary) {
  test::write_fake_library(package() / "lib" / "a.so",
                           {{R"("model_type":"fake")", R"("model_type":"base")"},
                            {R"("cpu":["x86-64-v2"])", R"("cpu":["x86-64"]   )"}});
  test::write_fake_library(package() / "lib" / "z.so", {{R"("model_type":"fake")", R"("model_type":"next")"},
                                                        {"x86-64-v2", "x86-64-v9"}});
  EXPECT_EQ(open_model(package()).metadata().model_type, "fake");
  std::filesystem::remove(package() / "lib" / "fake.so");
  EXPECT_EQ(open_model(package()).metadata().model_type, "base");
}

TEST_F(ModelTest, FindsLibrariesBesideTheWeights) {
  std::filesystem::rename(package() / "lib" / "fake.so", package() / "fake.so");
  EXPECT_EQ(open_model(package()).metadata().model_type, "fake");
  std::filesystem::remove(package() / "fake.so");
  expect_all(refusal(), {"no compiled library", "dovetail compile"});
}

TEST_F(ModelTest, LibraryOfAnotherInterface) {
  test::write_fake_package(package(), {{R"("interface_id":"sha256:)", R"("interface_id":"sha256:)"}});
  std::string bytes = read_file(package() / "lib" / "fake.so");
  const size_t at = bytes.find(R"("interface_id":"sha256:)") + 23;
  const std::string id = bytes.substr(at, 64);
  test::write_fake_library(package() / "lib" / "fake.so", {{id, std::string(64, 'a')}});
  expect_all(refusal(), {"interface_id", "aaaaaaaa", id.substr(0, 8).c_str(), "dovetail compile"});
}

TEST_F(ModelTest, LibraryOfAnotherQuantization) {
  test::write_fake_library(package() / "lib" / "fake.so",
                           {{R"({"name":"words","shape":[3],"dtype":"uint32"})",
                             R"({"name":"words","shape":[6],"dtype":"int8"}  )"}});
  expect_all(refusal(), {"words", "int8 [6]", "uint32 [3]"});
}

TEST_F(ModelTest, PackageThatContradictsItselfIsToBeConvertedAgain) {
  test::edit_file(package() / "tensor-cache.json", R"("dtype": "uint32")", R"("dtype": "int32")");
  expect_all(refusal(),
             {"words", "uint32 [3] by the library", "int32 [3] in the package", "dovetail convert"});
}

TEST_F(ModelTest, PackageWithoutAParameter) {
  test::edit_file(package() / "tensor-cache.json", R"("name": "words")", R"("name": "other")");
  expect_all(refusal(), {"words", "lacks a parameter", "dovetail convert"});
}

TEST_F(ModelTest, LibraryOfAnotherModel) {
  test::write_fake_library(package() / "lib" / "fake.so", {{R"({"name":"scale")", R"({"name":"scalE")"},
                                                           {R"({"name":"words")", R"({"name":"wordS")"}});
  const std::string text = refusal();
  expect_all(text, {"the package lacks 2 of the library's 2 parameters", "dovetail compile"});
  EXPECT_EQ(text.find("dovetail convert"), std::string::npos) << text;
}

TEST_F(ModelTest, LibraryOfAnyName) {
  std::filesystem::rename(package() / "lib" / "fake.so", dir_.path() / "model.so.6");
  EXPECT_EQ(open_model(package(), dir_.path() / "model.so.6").metadata().model_type, "fake");
  std::filesystem::rename(dir_.path() / "model.so.6", dir_.path() / "model");
  EXPECT_EQ(open_model(package(), dir_.path() / "model").metadata().model_type, "fake");
}

TEST_F(ModelTest, WhatIsNoModelIsNotLoaded) {
  test::write_fake_library(package() / "lib" / "fake.so", {{"__tvm_ffi__metadata", "__tvm_ffi__metadatA"}});
  expect_all(refusal(), {"fake.so", "not a compiled model", "dovetail compile"});
  std::filesystem::remove(package() / "lib" / "fake.so");
  std::filesystem::create_directory(package() / "lib" / "fake.so");
  expect_all(refusal(), {"fake.so", "is a directory"});
  std::filesystem::remove_all(package() / "lib");
  std::filesystem::create_symlink("lib", package() / "lib");
  expect_all(refusal(), {"lib: opening failed", "symbolic links"});
}

TEST_F(ModelTest, OtherKvStateKind) {
  test::write_fake_library(package() / "lib" / "fake.so",
                           {{R"("kv_state_kind":"kv_cache")", R"("kv_state_kind":"hybrid"  )"}});
  expect_all(refusal(), {"kv_state_kind"});
}

TEST_F(ModelTest, DividedLibrary) {
  test::write_fake_library(package() / "lib" / "fake.so",
                           {{R"("tensor_parallel_shards":1,"pipeline_parallel_stages":1)",
                             R"("tensor_parallel_shards":2,"pipeline_parallel_stages":4)"}});
  expect_all(refusal(),
             {"tensor_parallel_shards", "pipeline_parallel_stages", "divided over several devices"});
}

TEST_F(ModelTest, MissingFunction) {
  test::write_fake_library(package() / "lib" / "fake.so",
                           {{"__tvm_ffi_decode_tokens", "__tvm_ffi_decode_tokenX"}});
  expect_all(refusal(), {"decode_tokens", "dovetail compile"});
}

TEST_F(ModelTest, OtherNumberOfArguments) {
  test::write_fake_library(package() / "lib" / "fake.so",
                           {{R"("decode_tokens":"decode_tokens")", R"("decode_tokens":"decode_tokenx")"}});
  expect_all(refusal(), {"decode_tokenx", "expected 3", "got 4"});
}

TEST_F(ModelTest, OtherMachine) {
  test::write_fake_library(package() / "lib" / "fake.so", {{"x86-64-v2", "x86-64-v9"}});
  expect_all(refusal(), {"built for x86-64-v9", "dovetail compile"});
}

TEST_F(ModelTest, TruncatedLibrary) {
  const std::string bytes = read_file(package() / "lib" / "fake.so");
  write_file_atomic(package() / "lib" / "fake.so", bytes.substr(0, bytes.size() / 2));
  expect_all(refusal(), {"truncated", "dovetail compile"});
}

TEST_F(ModelTest, TruncatedShard) {
  write_file_atomic(package() / "params_shard_0.bin", std::string(15, 'x'));
  expect_all(refusal(), {"params_shard_0.bin", "16", "15"});
}

TEST_F(ModelTest, MissingFiles) {
  for (const char* file :
       {"mlc-chat-config.json", "tensor-cache.json", "tokenizer.json", "params_shard_0.bin"}) {
    test::write_fake_package(package());
    std::filesystem::remove(package() / file);
    expect_all(refusal(), {file});
  }
  std::filesystem::remove_all(package());
  expect_all(refusal(), {"no such package"});
}

TEST_F(ModelTest, AllMissingDocumentsAreNamedAtOnce) {
  std::filesystem::remove(package() / "mlc-chat-config.json");
  std::filesystem::remove(package() / "tensor-cache.json");
  expect_all(refusal(), {"mlc-chat-config.json", "tensor-cache.json"});
  test::write_fake_package(package());
  std::filesystem::remove(package() / "tokenizer.json");
  std::filesystem::remove(package() / "params_shard_0.bin");
  expect_all(refusal(), {"tokenizer.json", "params_shard_0.bin", "fetch or convert the package again"});
}

// The specification: "A model without a manifest loads as before", "a manifest that is malformed or does not
// match the library is an error".
class ManifestTest : public ModelTest {
 protected:
  static constexpr const char* kManifest = "mlc-model-manifest.json";
  void remove_manifest() { std::filesystem::remove(package() / kManifest); }
  // The artifact's name and its content, in bytes of the same length.
  void write_library(const test::Edits& edits) {
    test::write_fake_library(package() / "lib" / "fake.so", edits);
  }
  const test::Edits without_artifact_{{R"("artifact":)", R"("artifacX":)"}};
  const test::Edits malformed_artifact_{
      {R"("schema":"mlc.compiled-program")", R"("schema":"mlc.compiled-nothing")"}};
};

TEST_F(ManifestTest, NoneAndALibraryWithoutArtifactLoadAsBefore) {
  remove_manifest();
  write_library(without_artifact_);
  const Model model = open_model(package());
  EXPECT_FALSE(model.manifest.has_value());
  ASSERT_EQ(model.task.inputs.size(), 1u);
  EXPECT_EQ(model.task.inputs[0].first, "text");
  EXPECT_EQ(model.program.embed(std::vector<int32_t>{3}).row(0)[0], 3.0f);
}

TEST_F(ManifestTest, NoneDoesNotLookAtTheLibrarysArtifact) {
  remove_manifest();
  EXPECT_EQ(open_model(package()).task.inputs.size(), 1u);
  write_library(malformed_artifact_);
  EXPECT_EQ(open_model(package()).task.inputs.size(), 1u);
}

TEST_F(ManifestTest, NoneStillComparesParametersAndFunctions) {
  remove_manifest();
  write_library({{R"({"name":"words","shape":[3],"dtype":"uint32"})",
                  R"({"name":"words","shape":[6],"dtype":"int8"}  )"}});
  expect_all(refusal(), {"words", "int8 [6]", "uint32 [3]", "dovetail compile"});
  write_library({{"__tvm_ffi_decode_tokens", "__tvm_ffi_decode_tokenX"}});
  expect_all(refusal(), {"lacks a function that a package without a manifest needs", "prefill", "decode"});
}

TEST_F(ManifestTest, OneNeedsTheLibrarysArtifact) {
  write_library(without_artifact_);
  expect_all(refusal(), {"artifact"});
  write_library(malformed_artifact_);
  expect_all(refusal(), {"artifact", "mlc.compiled-nothing"});
}

TEST_F(ManifestTest, OneThatIsWrongIsNeverIgnored) {
  for (const test::Edits& edits : {test::Edits{}, without_artifact_}) {
    write_library(edits);
    write_file_atomic(package() / kManifest, "");
    expect_all(refusal(), {kManifest});
    write_file_atomic(package() / kManifest, "{}");
    expect_all(refusal(), {kManifest, "interface_id", "tasks"});
    remove_manifest();
    std::filesystem::create_directory(package() / kManifest);
    expect_all(refusal(), {kManifest});
    remove_manifest();
    std::filesystem::create_symlink("nowhere", package() / kManifest);
    expect_all(refusal(), {kManifest});
    remove_manifest();
  }
}

// A package that was made with one and lost it must not lose its inputs silently.
TEST_F(ManifestTest, OneThatTheHashesListIsMissed) {
  remove_manifest();
  EXPECT_EQ(refusal(), "");
  package::write_content_hashes(package(), {{.file = kManifest, .bytes = 1, .sha256 = std::string(64, 'a')}});
  expect_all(refusal(), {kManifest, "missing", "dovetail-hashes.json"});
}

TEST_F(ManifestTest, NoneAllowsTheOldNameOfTheTensorCache) {
  std::filesystem::rename(package() / "tensor-cache.json", package() / "ndarray-cache.json");
  expect_all(refusal(), {"tensor-cache.json"});
  remove_manifest();
  EXPECT_EQ(open_model(package()).weights.tensors().size(), 2u);
}

}  // namespace
}  // namespace dovetail::library
