#include "compile/compile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "compile/codegen.h"
#include "compile/toolchain.h"
#include "contract/artifact.h"
#include "convert/convert.h"

namespace dovetail::compile {
namespace {
namespace fs = std::filesystem;

const fs::path kExample = DOVETAIL_EXAMPLE;
const std::vector<ops::Level> kBoth{ops::Level::kAvx2, ops::Level::kAvx512};

models::ModelPlan example_plan(const char* quantization = "q4f16_1") {
  return models::plan_model(read_json(kExample / "config.json"), models::find_quantization(quantization),
                            "config.json");
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class TempFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("compile test 模型 " + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    ::unsetenv("CXX");
    ::unsetenv("DOVETAIL_TOOLCHAIN");
  }
  fs::path folder_;
};

TEST(Levels, AreParsedSortedAndChecked) {
  EXPECT_EQ(parse_levels("x86-64-v4,x86-64-v3"), kBoth);
  EXPECT_EQ(parse_levels("x86-64-v3,x86-64-v3"), std::vector{ops::Level::kAvx2});
  for (const char* text : {"", ",", "x86-64-v2", "x86-64-v3,", "reference"})
    EXPECT_NE(error_of([&] { parse_levels(text); }), "") << text;
}

TEST(Metadata, IsWhatTheContractReads) {
  const models::ModelPlan plan = example_plan();
  const std::string text = library_metadata(plan, kBoth);
  const contract::LibraryMetadata metadata = contract::parse_metadata(text);
  ASSERT_TRUE(metadata.artifact.has_value());
  EXPECT_EQ(metadata.artifact, plan.artifact(models::Target::kCpu));
  EXPECT_EQ(metadata.params->size(), plan.parameters.size());
  EXPECT_EQ(metadata.dovetail["target"]["cpu"], Json::array({"x86-64-v3", "x86-64-v4"}));
  for (const char c : text) ASSERT_TRUE(c >= 0x20 && c < 0x7f);
}

TEST(Source, ExportsEveryFunctionOfTheContract) {
  const models::ModelPlan plan = example_plan();
  const std::string source = library_source(plan, library_metadata(plan, kBoth));
  for (const auto& [role, function] : plan.programs[0].second.exports) {
    EXPECT_NE(source.find("TVM_FFI_DLL_EXPORT_TYPED_FUNC(" + function + ", "), std::string::npos) << function;
  }
  EXPECT_NE(source.find("TVM_FFI_DLL_EXPORT_TYPED_FUNC(audio_embed, "), std::string::npos);
  EXPECT_NE(source.find("TVM_FFI_DLL_EXPORT_TYPED_FUNC(audio_embed_length, "), std::string::npos);
}

TEST_F(TempFolder, AMissingCompilerIsNamed) {
  ::setenv("CXX", "no-such-compiler", 1);
  const std::string text = error_of([] { find_toolchain(); });
  EXPECT_NE(text.find("no-such-compiler"), std::string::npos) << text;
  EXPECT_NE(text.find("install g++"), std::string::npos) << text;
}

TEST_F(TempFolder, AMissingToolchainSaysWhatToDo) {
  ::setenv("DOVETAIL_TOOLCHAIN", (folder_ / "none").c_str(), 1);
  EXPECT_NE(error_of([] { find_toolchain(); }).find("toolchain.json"), std::string::npos);
  write_file_atomic(folder_ / "toolchain.json",
                    R"({"flags": [], "tvm_includes": ["/nowhere"], "tvm_lib": ["/nowhere"]})");
  ::setenv("DOVETAIL_TOOLCHAIN", folder_.c_str(), 1);
  const std::string text = error_of([] { find_toolchain(); });
  EXPECT_NE(text.find("exports.h"), std::string::npos) << text;
  EXPECT_NE(text.find("/nowhere"), std::string::npos) << text;
}

TEST_F(TempFolder, AFailingCompilerLeavesNothingAndShowsItsCommand) {
  // "false" answers --version with exit code 1, so a script stands in for a compiler that breaks later.
  const fs::path compiler = folder_ / "broken";
  write_file_atomic(compiler,
                    "#!/bin/sh\n[ \"$1\" = --version ] && echo broken 1 && exit 0\necho it broke\nexit 3\n");
  fs::permissions(compiler, fs::perms::owner_all);
  ::setenv("CXX", compiler.c_str(), 1);
  const std::string text =
      error_of([&] { compile_library(example_plan(), kBoth, folder_ / "lib" / "x.so"); });
  EXPECT_NE(text.find("exit code 3"), std::string::npos) << text;
  EXPECT_NE(text.find("it broke"), std::string::npos) << text;
  EXPECT_NE(text.find("command: "), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(folder_ / "lib"));
}

TEST_F(TempFolder, AStoppedCompilationEndsTheCompilerAndLeavesNothing) {
  const fs::path compiler = folder_ / "slow", started = folder_ / "started", ended = folder_ / "ended";
  write_file_atomic(compiler, "#!/bin/sh\n[ \"$1\" = --version ] && echo slow 1 && exit 0\n: > '" +
                                  started.string() + "'\nsh -c 'sleep 20'\n: > '" + ended.string() + "'\n");
  fs::permissions(compiler, fs::perms::owner_all);
  ::setenv("CXX", compiler.c_str(), 1);
  std::atomic<bool> cancel{false};
  std::thread stop([&] {
    while (!fs::exists(started)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    cancel = true;
  });
  EXPECT_EQ(error_of([&] { compile_library(example_plan(), kBoth, folder_ / "lib" / "x.so", &cancel); }),
            "compilation stopped; nothing was left behind");
  stop.join();
  EXPECT_FALSE(fs::exists(folder_ / "lib"));
  EXPECT_FALSE(fs::exists(ended));
}

TEST_F(TempFolder, AnOutputThatIsNoFileIsRefusedBeforeTheCompilerRuns) {
  const fs::path compiler = folder_ / "never";
  write_file_atomic(compiler, "#!/bin/sh\n[ \"$1\" = --version ] && echo never 1 && exit 0\nexit 3\n");
  fs::permissions(compiler, fs::perms::owner_all);
  ::setenv("CXX", compiler.c_str(), 1);
  const std::string text = error_of([&] { compile_library(example_plan(), kBoth, folder_); });
  EXPECT_NE(text.find("output is a folder"), std::string::npos) << text;
}

TEST_F(TempFolder, APackageOfAnotherVersionIsRefused) {
  const fs::path package = folder_ / "package";
  convert::convert(
      {.checkpoint = kExample, .output = package, .quantization = &models::find_quantization("q4f16_1")});
  EXPECT_EQ(plan_package(package).manifest(), example_plan().manifest());
  Json manifest = read_json(package / "mlc-model-manifest.json");
  manifest["weights"]["parameter_schema_id"] = "sha256:" + std::string(64, '0');
  write_file_atomic(package / "mlc-model-manifest.json", manifest.dump());
  const std::string text = error_of([&] { plan_package(package); });
  EXPECT_NE(text.find("parameter_schema_id"), std::string::npos) << text;
  EXPECT_NE(text.find("convert the checkpoint again"), std::string::npos) << text;
  EXPECT_NE(error_of([&] { plan_package(folder_ / "nothing"); }), "");
  std::string config = read_file(package / "mlc-chat-config.json");
  config.replace(config.find("\"q4f16_1\""), 9, "\"q4f16_ft\"");
  write_file_atomic(package / "mlc-chat-config.json", config);
  const std::string unknown = error_of([&] { plan_package(package); });
  EXPECT_NE(unknown.find("mlc-chat-config.json: quantization: unknown quantization \"q4f16_ft\""),
            std::string::npos)
      << unknown;
}

TEST_F(TempFolder, CompilesWithinAMinuteAndReplacesTheOldLibrary) {
  const fs::path output = folder_ / "lib" / "x.so";
  fs::create_directories(output.parent_path());
  write_file_atomic(output, "old");
  const CompileResult result = compile_library(example_plan("q0f32"), {ops::Level::kAvx2}, output);
  EXPECT_GT(result.bytes, 100'000);
  EXPECT_EQ(read_file(output).substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(std::distance(fs::directory_iterator(output.parent_path()), fs::directory_iterator{}), 1);
}

}  // namespace
}  // namespace dovetail::compile
