// 'dovetail contract check' as a user runs it: exit codes and what is printed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "cli/app.h"

namespace dovetail::cli {
namespace {

class ContractCheck : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "contract-check-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    const Json real = Json::parse(read_file(DOVETAIL_TEST_DATA "/contract/gemma-3-1b-it-q4f16_1.json"));
    manifest_ = real["manifest"];
    metadata_ = Json{{"model_type", "gemma3_text"}, {"quantization", "q4f16_1"}};
    metadata_["params"] = real["parameters"];
    metadata_["artifact"] = real["artifact"]["webgpu"];
    write("chat.json", R"({"vocab_size": 262144})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    write_file_atomic(folder_ / name, text);
    return (folder_ / name).string();
  }

  int run_with(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"dovetail"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run(static_cast<int>(argv.size()), argv.data());
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  int check(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"contract",   "check",
                                          "--manifest", write("m.json", manifest_.dump()),
                                          "--metadata", write("l.json", metadata_.dump())};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_with(arguments);
  }

  std::filesystem::path folder_;
  Json manifest_;
  Json metadata_;
  std::string out_;
  std::string err_;
};

TEST_F(ContractCheck, ExitsWith0WhenThePartsFit) {
  EXPECT_EQ(check({"--chat-config", (folder_ / "chat.json").string()}), 0) << err_;
  EXPECT_NE(out_.find("package and library fit"), std::string::npos);
  EXPECT_NE(out_.find(manifest_["interface_id"].get<std::string>()), std::string::npos);
  EXPECT_EQ(err_, "");
}

TEST_F(ContractCheck, ExitsWith1AndPrintsEveryReason) {
  metadata_["kv_state_kind"] = "hybrid";
  const int code =
      check({"--device", write("d.json", R"({"features": [], "maxStorageBufferBindingSize": 1000})"),
             "--functions", write("f.json", R"(["embed", "prefill", "create_tir_paged_kv_cache"])"),
             "--chat-config", write("c.json", R"({"vocab_size": -1})")});
  EXPECT_EQ(code, 1);
  EXPECT_EQ(out_, "");
  for (const char* reason :
       {"c.json: vocab_size: wrong value (expected an integer from 1 to 2^53 - 1, got -1)",
        "l.json: artifact.resources.required_features[0]: the device lacks a required feature (expected "
        "\"shader-f16\", "
        "got features none)",
        "(expected at most 1000 bytes, got 150994944 bytes)",
        "exports.decode_embeds: the library does not export",
        "l.json: kv_state_kind: ", "(expected \"kv_cache\", got \"hybrid\")"}) {
    EXPECT_NE(err_.find(reason), std::string::npos) << reason << "\nin:\n" << err_;
  }
  EXPECT_EQ(err_.find('\x1b'), std::string::npos) << "colours only on a terminal";
}

TEST_F(ContractCheck, LooksAtTheLibraryAlsoWhenTheManifestIsMalformed) {
  manifest_["schema_version"] = 2;
  metadata_["artifact"]["schema_version"] = 3;
  EXPECT_EQ(check(), 1);
  EXPECT_NE(err_.find("m.json: schema_version: wrong value (expected the number 1, got 2)"),
            std::string::npos)
      << err_;
  EXPECT_NE(err_.find("l.json: artifact.schema_version: wrong value"), std::string::npos) << err_;
}

// "A model without one loads as before": the artifact is not consulted, whatever is wrong with it.
TEST_F(ContractCheck, WithoutAManifestThereIsNoContract) {
  metadata_["artifact"]["interface_id"] = 3;
  const std::string library = write("l.json", metadata_.dump());
  EXPECT_EQ(run_with({"contract", "check", "--no-manifest", "--metadata", library}), 0) << err_;
  EXPECT_NE(out_.find("without a manifest there is no contract"), std::string::npos) << out_;
  EXPECT_EQ(run_with({"contract", "check", "--metadata", library}), 2);
  EXPECT_EQ(check({"--no-manifest"}), 2);
  // What is not about the contract is still read.
  EXPECT_EQ(run_with({"contract", "check", "--no-manifest", "--metadata", write("l.json", "[")}), 1);
  EXPECT_EQ(run_with({"contract", "check", "--no-manifest", "--metadata", write("l.json", "{}")}), 1);
  EXPECT_NE(err_.find("l.json: params: is not what _metadata returns"), std::string::npos) << err_;
}

TEST_F(ContractCheck, NotesWhatForbidsNothing) {
  metadata_["artifact"]["resources"]["estimated_device_memory_bytes"] = 1;
  EXPECT_EQ(check({"--chat-config", (folder_ / "chat.json").string()}), 0);
  EXPECT_NE(err_.find("note: "), std::string::npos) << err_;
}

TEST_F(ContractCheck, HostileBytesNeverReachTheTerminal) {
  const std::string manifest = write("m2.json", "{\"a\xff\x1b[2J\": 1}");
  EXPECT_EQ(run_with({"contract", "check", "--manifest", manifest, "--metadata", manifest}), 1);
  EXPECT_EQ(err_.find('\x1b'), std::string::npos);
  EXPECT_EQ(err_.find('\xff'), std::string::npos);
}

TEST_F(ContractCheck, ExitsWith2OnAWrongCommandLine) {
  EXPECT_EQ(run_with({"contract", "check"}), 2);
  EXPECT_EQ(run_with({"contract"}), 2);
  EXPECT_EQ(run_with({}), 2);
  EXPECT_EQ(run_with({"nonsense"}), 2);
  EXPECT_EQ(check({"--unknown", "x"}), 2);
  EXPECT_EQ(check({"--device", (folder_ / "missing.json").string()}), 2);
  EXPECT_NE(err_.find("missing.json"), std::string::npos) << err_;
}

TEST_F(ContractCheck, HelpAndVersionSucceed) {
  EXPECT_EQ(run_with({"--help"}), 0);
  EXPECT_NE(out_.find("contract"), std::string::npos);
  EXPECT_EQ(run_with({"--version"}), 0);
  EXPECT_EQ(run_with({"contract", "check", "--help"}), 0);
}

}  // namespace
}  // namespace dovetail::cli
