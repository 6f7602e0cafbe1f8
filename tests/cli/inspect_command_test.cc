// 'dovetail inspect' of everything that it knows, and of what it does not.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "../temp_dir.h"
#include "base/json.h"
#include "cli/app.h"
#include "convert/checkpoint_fixture.h"
#include "convert/convert.h"
#include "convert/gguf_writer.h"
#include "library/fake_package.h"
#include "models/quantization.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;
using namespace dovetail::testing;

const fs::path kExamples = fs::path(DOVETAIL_TEST_DATA) / "../../examples";
const fs::path kLlama = kMlcPackages / "llama_tiny";

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Inspect : public ::testing::Test {
 protected:
  int run_with(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "inspect");
    std::vector<const char*> argv = {"dovetail"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = run(static_cast<int>(argv.size()), argv.data());
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  Json json(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    EXPECT_EQ(run_with(std::move(arguments)), 0) << err_;
    return parse_json(out_, "output");
  }
  std::string text(const fs::path& path) {
    EXPECT_EQ(run_with({path.string()}), 0) << err_;
    return out_;
  }
  std::string error(const fs::path& path) {
    EXPECT_EQ(run_with({path.string()}), 1) << out_;
    return err_;
  }
  std::string write(const std::string& name, const std::string& bytes) {
    write_text(dir_ / name, bytes);
    return (dir_ / name).string();
  }
  fs::path copy_llama() {
    fs::create_directories(dir_ / "hf");
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
      fs::copy_file(kLlama / "hf" / name, dir_ / "hf" / name, fs::copy_options::overwrite_existing);
    return dir_ / "hf";
  }

  TempDir dir_;
  std::string out_, err_;
};

int64_t bytes_in(const fs::path& folder) {
  int64_t out = 0;
  for (const auto& entry : fs::directory_iterator(folder)) out += static_cast<int64_t>(entry.file_size());
  return out;
}

TEST_F(Inspect, AFolderAndHowLargeEveryPackageOfItIs) {
  const fs::path example = kExamples / "gemma4-tiny-speech";
  const Json out = json({example.string()});
  EXPECT_EQ(out["kind"], "checkpoint");
  EXPECT_EQ(out["architectures"], Json::array({"Gemma4ForConditionalGeneration"}));
  EXPECT_EQ(out["inputs"], Json::array({"text", "audio"}));
  EXPECT_EQ(out["vocabulary"], (Json{{"rows", 512}, {"tokens", 512}}));
  EXPECT_EQ(out["weights"]["tensors"], 308);
  EXPECT_EQ(out["weights"]["types"]["BF16"]["tensors"], 308);
  int64_t parts = 0;
  for (const char* part : {"text", "audio", "vision", "embedding"})
    parts += out["weights"]["parts"][part]["bytes"].get<int64_t>();
  EXPECT_EQ(parts, out["weights"]["bytes"]);
  EXPECT_EQ(out["conv_template_origin"], "derived from the chat template of tokenizer_config.json");
  EXPECT_EQ(out["conv_template"]["roles"]["user"], "<|turn>user");
  EXPECT_FALSE(out.contains("problems"));
  ASSERT_EQ(out["conversions"].size(), models::quantizations().size());
  for (size_t i = 0; i < out["conversions"].size(); ++i) {
    const Json& one = out["conversions"][i];
    const models::Quantization& quantization = models::quantizations()[i];
    ASSERT_EQ(one["quantization"], quantization.name);
    const fs::path package = dir_ / one["quantization"].get<std::string>();
    convert::convert({.checkpoint = example, .output = package, .quantization = &quantization});
    const auto actual = static_cast<double>(bytes_in(package));
    EXPECT_NEAR(one["package_bytes"].get<double>() / actual, 1, 0.01) << one;
  }
  EXPECT_HAS(text(example), "q4f16_1                2.2");
  EXPECT_HAS(out_, " of weights in 381 tensors, ");
}

TEST_F(Inspect, WhatCannotBeConvertedAndWhy) {
  const fs::path folder = copy_llama();
  Json config = read_json(folder / "config.json");
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  write_text(folder / "config.json", config.dump());
  EXPECT_HAS(text(folder), "weights");
  EXPECT_HAS(out_,
             "can't be converted     config.json: quantization_config: the weights are already quantized, by "
             "GPTQ, 4 bits");
  config.erase("quantization_config");
  config["intermediate_size"] = 100;
  write_text(folder / "config.json", config.dump());
  const Json out = json({folder.string()});
  EXPECT_EQ(out["weights"]["types"]["BF16"]["tensors"], out["weights"]["tensors"]);
  EXPECT_EQ(out["problems"].size(), 4u) << out["problems"];  // gate with up, and down, of both layers
  EXPECT_HAS(out["problems"][0].get<std::string>(), "wrong shape");
  EXPECT_FALSE(out.contains("conversions"));
  config["architectures"] = {"BertModel"};
  write_text(folder / "config.json", config.dump());
  EXPECT_HAS(text(folder),
             "can't be converted     config.json: architectures: unknown architecture BertModel");
  fs::remove(folder / "tokenizer.json");
  EXPECT_HAS(text(folder), "weights");
  EXPECT_HAS(out_, "tokenizer.json: file is missing, and tokenizer.model too");
  fs::remove(folder / "config.json");
  write_text(folder / "adapter_config.json", R"({"peft_type":"LORA"})");
  EXPECT_HAS(error(folder), "holds an adapter (LORA)");
}

TEST_F(Inspect, AModelOfTheHubsCache) {
  const fs::path snapshot = dir_ / "hub/models--some--model/snapshots/abc";
  fs::create_directories(snapshot);
  for (const auto& entry : fs::directory_iterator(copy_llama()))
    fs::create_symlink(entry.path(), snapshot / entry.path().filename());
  const Json out = json({(dir_ / "hub/models--some--model").string()});
  EXPECT_EQ(out["kind"], "checkpoint");
  EXPECT_EQ(out["conversions"].size(), models::quantizations().size());
  EXPECT_EQ(out["notes"][0], "snapshot abc of the cache folder is taken");
  EXPECT_HAS(error(dir_ / "hub"),
             "the cache of the hub, not a model (expected one of its models, got models--some--model)");
}

TEST_F(Inspect, TheTemplateOfTheFamilyAndWhy) {
  const fs::path folder = copy_llama();
  EXPECT_EQ(json({folder.string()})["conv_template_origin"],
            "that of the model's family: the checkpoint has no chat template");
  write_text(folder / "chat_template.jinja", "{{ messages[-1].content }}");
  EXPECT_HAS(text(folder),
             "llama_default, that of the model's family: the chat template of chat_template.jinja can't be "
             "taken apart (it leaves out or changes a message)");
}

TEST_F(Inspect, AGgufFileWithAndWithoutItsEncoder) {
  CheckpointWriter writer(kExamples / "llava-tiny-shapes", "llama");
  common(writer, "llama");
  writer.write_tokenizer("llama", nullptr);
  vision(writer, "mlp");
  writer.write_tensors();
  const std::string model = write("model.gguf", writer.text.text()),
                    encoder = write("mmproj.gguf", writer.encoder.text());
  const Json alone = json({model});
  EXPECT_EQ(alone["kind"], "gguf");
  EXPECT_EQ(alone["architecture"], "llama");
  EXPECT_EQ(alone["inputs"], Json::array({"text"}));
  EXPECT_FALSE(alone["weights"]["parts"].contains("vision"));
  EXPECT_TRUE(alone["weights"]["types"].contains("F32"));
  EXPECT_EQ(alone["conversions"].size(), models::quantizations().size());
  const Json both = json({model, "--mmproj", encoder});
  EXPECT_EQ(both["inputs"], Json::array({"text", "image"}));
  EXPECT_TRUE(both["weights"]["parts"].contains("vision"));
  EXPECT_GT(both["conversions"][0]["package_bytes"], alone["conversions"][0]["package_bytes"]);
  EXPECT_EQ(both["weights"]["files"], 2);
  // The encoder is no model.
  EXPECT_HAS(text(encoder), "can't be converted");
  EXPECT_HAS(out_, "give the text model's file, and this one with --mmproj");
  EXPECT_HAS(text(write("mamba.gguf", GgufFile().set("general.architecture", "mamba").text())),
             "expected llama, gemma3, gemma4, got mamba");
  EXPECT_EQ(run_with({kLlama.string(), "--mmproj", encoder}), 2);
}

TEST_F(Inspect, APackageWithAndWithoutItsManifest) {
  convert::convert({.checkpoint = kExamples / "llava-tiny-shapes",
                    .output = dir_ / "p",
                    .quantization = &models::find_quantization("q4f16_1")});
  const Json with = json({(dir_ / "p").string()});
  EXPECT_EQ(with["kind"], "package");
  EXPECT_EQ(with["model_type"], "llava");
  EXPECT_EQ(with["manifest"], read_json(dir_ / "p/mlc-model-manifest.json"));
  EXPECT_TRUE(with["weights"]["parts"].contains("vision"));
  EXPECT_EQ(with["libraries"], Json::array());
  const Json without = json({(kLlama / "q4f16_1").string()});
  EXPECT_TRUE(without["manifest"].is_null());
  EXPECT_EQ(without["weights"]["shards"], 1);
  EXPECT_HAS(text(kLlama / "q4f16_1"), "has no mlc-model-manifest.json and takes text only");
}

TEST_F(Inspect, ALibrary) {
  dovetail::test::write_fake_package(dir_ / "fake");
  const Json out = json({(dir_ / "fake/lib/fake.so").string()});
  EXPECT_EQ(out["kind"], "library");
  EXPECT_EQ(out["runs_here"], true);
  EXPECT_TRUE(out.contains("artifact"));
  EXPECT_GT(out["functions"].size(), 3u);
}

TEST_F(Inspect, Documents) {
  const fs::path example = kExamples / "llava-tiny-shapes";
  convert::convert(
      {.checkpoint = example, .output = dir_ / "p", .quantization = &models::find_quantization("q0f16")});
  EXPECT_EQ(json({(dir_ / "p/mlc-model-manifest.json").string()})["kind"], "manifest");
  EXPECT_EQ(json({(dir_ / "p/mlc-chat-config.json").string()})["kind"], "chat_config");
  EXPECT_EQ(json({(dir_ / "p/tensor-cache.json").string()})["kind"], "tensor_cache");
  EXPECT_EQ(json({(example / "tokenizer.json").string()})["kind"], "tokenizer");
  const Json hashes = json({(dir_ / "p/dovetail-hashes.json").string()});
  EXPECT_EQ(hashes["kind"], "content_hashes");
  EXPECT_EQ(hashes["files"].size(), read_json(dir_ / "p/dovetail-hashes.json")["files"].size());
  EXPECT_EQ(hashes["files"][0]["path"], "mlc-chat-config.json");
  EXPECT_EQ(hashes["bytes"],
            bytes_in(dir_ / "p") - static_cast<int64_t>(fs::file_size(dir_ / "p/dovetail-hashes.json")));
  EXPECT_HAS(text(dir_ / "p/dovetail-hashes.json"), "verify --deep");
  EXPECT_HAS(error(write("dovetail-hashes.json", R"({"schema": "dovetail.content-hashes", "files": 1})")),
             "dovetail-hashes.json: schema_version: is missing");
  Json huge = read_json(dir_ / "p/dovetail-hashes.json");
  for (Json& file : huge["files"]) file["nbytes"] = std::numeric_limits<int64_t>::max();
  EXPECT_HAS(error(write("dovetail-hashes.json", huge.dump())),
             "dovetail-hashes.json: files: the sizes of the files add up to more than 63 bits hold");
  const Json config = json({(example / "config.json").string()});
  EXPECT_EQ(config["kind"], "config");
  EXPECT_EQ(config["conversions"].size(), models::quantizations().size());
  EXPECT_FALSE(config["conversions"][0].contains("package_bytes"));
  EXPECT_EQ(json({(kLlama / "hf/model.safetensors").string()})["kind"], "safetensors");
  const Json pieces = json({DOVETAIL_TEST_DATA "/sentencepiece/bpe.model"});
  EXPECT_EQ(pieces["kind"], "sentencepiece");
  EXPECT_EQ(pieces["vocabulary"]["tokens"], 700);
  EXPECT_HAS(error(write("other.json", R"({"one": 1, "two": 2})")), "got an object with one, two");
}

TEST_F(Inspect, ASafetensorsFileIsKnownByTheLengthOfItsHeader) {
  std::string header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  header.resize('{', ' ');  // so that the file begins with this character
  write("a.safetensors", "{" + std::string(7, '\0') + header + "1234");
  EXPECT_EQ(json({(dir_ / "a.safetensors").string()})["kind"], "safetensors");
  write("config.json", "\n       " + read_text(kLlama / "hf/config.json"));
  EXPECT_EQ(json({(dir_ / "config.json").string()})["kind"], "config");
}

TEST_F(Inspect, AnEncoderBelongsToAGgufFile) {
  for (const fs::path& path : {kLlama / "hf", kLlama / "hf/model.safetensors"}) {
    EXPECT_EQ(run_with({path.string(), "--mmproj", "encoder.gguf"}), 2) << path;
    EXPECT_HAS(err_, "--mmproj belongs to a GGUF file");
  }
}

TEST_F(Inspect, NamesFromFilesReachNoTerminal) {
  write("a.safetensors", testing::safetensors_text({{"a\x1b[31m", "F\x1b[32m", {1}, "1234"}}));
  const std::string shown = text(dir_ / "a.safetensors");
  EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
  EXPECT_HAS(shown, "F\\x1b[32m");
}

TEST_F(Inspect, UnknownFilesAreSaidToBeWhatTheyLookLike) {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> cases[] = {
      {"", "empty"},
      {"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"},
      {"<!DOCTYPE html><html>", "an HTML page"},
      {"PK\3\4rest", "a zip archive, as PyTorch's .bin and .pt files are"},
      {"\x80\2}q", "a Python pickle"},
      {"tjgg\1\0\0\0"s, "a GGML file from before GGUF"},
      {std::string(100, '\0'), "zeros alone"},
      {"\x89PNG\r\n\x1a\n", "a PNG image"},
      {"hello", "text"},
      {"\xde\xad\xbe\xef\x01\x02", "data of an unknown kind"},
  };
  for (const auto& [bytes, name] : cases)
    EXPECT_HAS(error(write("file", bytes)), "got what looks like "s + name);
}

TEST_F(Inspect, ADamagedSentencePieceModelIsSaidToBeThat) {
  std::string model = read_text(fs::path(DOVETAIL_TEST_DATA) / "sentencepiece/bpe.model");
  EXPECT_HAS(error(write("cut", model.substr(0, 1000))),
             "cut: is a damaged SentencePiece model: a field of 15 bytes where");
  EXPECT_HAS(err_, ", at byte ");
  EXPECT_HAS(err_, "not completely downloaded");
  model[0] = '\x7f';
  EXPECT_HAS(
      error(write("tokenizer.model", model)),
      "tokenizer.model: is no SentencePiece model: a field has an unknown type (7), at byte 0 (expected a "
      "SentencePiece model, got what looks like data of an unknown kind)");
  EXPECT_HAS(error(write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n")),
             "got what looks like a Git LFS pointer");
  EXPECT_HAS(error(write("tokenizer.model", "IQ== 0\nIg== 1\n")),
             "tokenizer.model: is a vocabulary of tiktoken");
  EXPECT_EQ(err_.find("damaged"), std::string::npos) << err_;
}

TEST_F(Inspect, DamagedFilesAreErrors) {
  CheckpointWriter writer(kLlama / "hf", "llama");
  common(writer, "llama");
  writer.write_tokenizer("gpt2", "gpt-2");
  writer.write_tensors();
  const std::string gguf = writer.text.text(), weights = read_text(kLlama / "hf/model.safetensors"),
                    model = read_text(fs::path(DOVETAIL_TEST_DATA) / "sentencepiece/bpe.model");
  for (const std::string* file : {&gguf, &weights}) {
    for (size_t size = 1; size < file->size(); size += 1 + file->size() / 40)
      error(write("cut", file->substr(0, size)));
  }
  for (size_t size = 1; size < model.size(); size += 1 + model.size() / 40)
    EXPECT_LE(run_with({write("cut", model.substr(0, size))}), 1);
}

}  // namespace
}  // namespace dovetail::cli
