// A checkpoint folder of a small model that tests change before they convert it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint_fixture.h"
#include "convert/checkpoint.h"
#include "convert/convert.h"
#include "package/content_hashes.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
using namespace dovetail::testing;

inline const fs::path kLlama = kMlcPackages / "llama_tiny/hf";
inline const fs::path kExamples = fs::path(DOVETAIL_TEST_DATA) / "../../examples";
inline constexpr const char* kIndex = "model.safetensors.index.json";

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

inline std::vector<TestTensor> tensors_of(const fs::path& folder) {
  const Checkpoint checkpoint = open_checkpoint(folder);
  std::vector<TestTensor> out;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::span<const std::byte> bytes = checkpoint.bytes(tensor);
    out.push_back({tensor.name,
                   tensor.dtype_text,
                   tensor.shape,
                   {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return out;
}

class CheckpointFolder : public ::testing::Test {
 protected:
  CheckpointFolder() : tensors_(tensors_of(kLlama)) {
    fs::create_directories(hf());
    for (const char* name : {"config.json", "tokenizer.json"}) fs::copy_file(kLlama / name, hf() / name);
  }

  fs::path hf() const { return dir_ / "hf"; }
  fs::path output() const { return dir_ / "package"; }
  void write_whole() { write_text(hf() / "model.safetensors", safetensors_text(tensors_)); }
  // The tensors in files of five, and the index of them.
  Json write_shards() {
    Json map = Json::object();
    for (size_t first = 0; first < tensors_.size(); first += 5) {
      const size_t last = std::min(tensors_.size(), first + 5);
      const std::string name = "model-" + std::to_string(first / 5) + ".safetensors";
      const auto begin = tensors_.begin();
      write_text(hf() / name, safetensors_text({begin + static_cast<std::ptrdiff_t>(first),
                                                begin + static_cast<std::ptrdiff_t>(last)}));
      for (size_t i = first; i < last; ++i) map[tensors_[i].name] = name;
    }
    write_index(map);
    return map;
  }
  void write_index(const Json& map) {
    write_text(hf() / kIndex, Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  }
  void edit_config(const std::function<void(Json&)>& edit) {
    Json config = read_json(kLlama / "config.json");
    edit(config);
    write_text(hf() / "config.json", config.dump());
  }
  TestTensor& tensor(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const TestTensor& t) { return t.name == name; });
  }

  ConvertSummary run(const fs::path& folder, const char* quantization = "q0f16") {
    fs::remove_all(output());
    return convert({.checkpoint = folder,
                    .output = output(),
                    .quantization = &models::find_quantization(quantization),
                    .threads = 2});
  }
  // "unsupported: …"; nothing of the package may be left.
  std::string error(const fs::path& folder) {
    try {
      run(folder);
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(output()));
      problems_ = e.problems().size();
      return std::string(error_code_name(e.code())) + ": " + e.what();
    }
    return "accepted";
  }
  std::string error() { return error(hf()); }
  std::string weights() const {
    std::string out;
    for (const package::FileHash& file :
         package::parse_content_hashes(read_text(output() / "dovetail-hashes.json")))
      if (file.file.starts_with("params_")) out += file.file + file.sha256;
    return out;
  }

  TempDir dir_;
  std::vector<TestTensor> tensors_;
  size_t problems_ = 0;
};

}  // namespace dovetail::convert
