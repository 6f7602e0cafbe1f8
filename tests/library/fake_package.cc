#include "fake_package.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "contract/canonical.h"
#include "contract/manifest.h"

namespace dovetail::test {
namespace {

const char* const kTasks = R"({"chat.completions":{"executor":"generation","inputs":{
  "text":{"processor":"tokenizer"},
  "audio":{"processor":{"kind":"audio_decode","format":"pcm_f32","sample_rate_hz":16000,"channels":1,
                        "min_samples":161,"max_samples":4000},
           "adapter":"audio",
           "prompt":{"prefix_token_ids":[6],"placeholder_token_id":7,"suffix_token_ids":[8]}},
  "image":{"processor":{"kind":"image_decode","format":"rgb_u8","layout":"nhwc",
                        "resize":{"mode":"stretch","height":2,"width":3},"num_embeddings":6},
           "adapter":"image","prompt":{"placeholder_token_id":3}}},
  "output":"text"}})";

const char* const kChatConfig =
    R"({"version":"0.1.0","model_type":"fake","quantization":"q0f32","model_config":{},
  "vocab_size":368,"active_vocab_size":360,"context_window_size":256,"sliding_window_size":-1,"prefill_chunk_size":16,
  "attention_sink_size":-1,"tensor_parallel_shards":1,"pipeline_parallel_stages":1,"temperature":1.0,"top_p":1.0,
  "tokenizer_files":["tokenizer.json"],"pad_token_id":0,"bos_token_id":2,"eos_token_id":[1,5],
  "conv_template":{"name":"fake","system_template":"<|turn>system\n{system_message}<turn|>\n","system_message":"",
    "system_prefix_token_ids":[2],"add_role_after_system_message":true,
    "roles":{"user":"<|turn>user","assistant":"<|turn>model"},
    "role_templates":{"user":"{user_message}","assistant":"{assistant_message}"},"messages":[],
    "seps":["<turn|>\n"],"role_content_sep":"\n","role_empty_sep":"\n","stop_str":["STOP"],"stop_token_ids":[1,5]}})";

std::vector<contract::ParameterRecord> parameters() {
  return {{.name = "scale", .shape = {int64_t{2}}, .dtype = "float32"},
          {.name = "words", .shape = {int64_t{3}}, .dtype = "uint32"}};
}

contract::PackageManifest manifest() {
  contract::PackageManifest manifest;
  manifest.tasks = contract::parse_tasks(Json::parse(kTasks));
  manifest.interface_id = contract::interface_id(manifest.tasks);
  manifest.parameter_schema_id = contract::parameter_schema_id(parameters());
  return manifest;
}

// Special tokens, the 256 bytes, then printable ASCII: every text has exactly one tokenization.
std::string tokenizer_json() {
  Json vocab = Json::object();
  Json added = Json::array();
  const std::vector<std::string> special = {"<pad>",   "<eos>",    "<bos>",     "<unk>",   "<|turn>",
                                            "<turn|>", "<|audio>", "<|audio|>", "<audio|>"};
  int id = 0;
  for (const std::string& token : special) {
    vocab[token] = id;
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = id++;
  }
  for (char c = ' '; c <= '~'; ++c) vocab[std::string(1, c)] = id++;
  const Json decoder = {{"type", "Sequence"},
                        {"decoders", Json::array({{{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}};
  const Json model = {{"type", "BPE"},          {"dropout", nullptr},    {"unk_token", "<unk>"},
                      {"fuse_unk", true},       {"byte_fallback", true}, {"vocab", vocab},
                      {"merges", Json::array()}};
  const Json document = {{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
                         {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", nullptr},
                         {"post_processor", nullptr}, {"decoder", decoder},    {"model", model}};
  return document.dump();
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (from.size() != to.size()) throw std::logic_error("an edit must keep the length: " + from);
  size_t count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  if (count == 0) throw std::logic_error("not in the library: " + from);
}

}  // namespace

std::filesystem::path fake_library() { return FAKE_LIBRARY; }

void write_fake_library(const std::filesystem::path& path, const Edits& edits) {
  std::string bytes = read_file(fake_library());
  const contract::PackageManifest package = manifest();
  replace_all(bytes, "sha256:" + std::string(64, '1'), package.interface_id);
  replace_all(bytes, "sha256:" + std::string(64, '2'), package.parameter_schema_id);
  for (const auto& [from, to] : edits) replace_all(bytes, from, to);
  write_file_atomic(path, bytes);
}

void write_fake_package(const std::filesystem::path& dir, const Edits& edits) {
  std::filesystem::create_directories(dir / "lib");
  write_file_atomic(dir / "mlc-model-manifest.json", contract::to_json(manifest()).dump(2));
  write_file_atomic(dir / "mlc-chat-config.json", kChatConfig);
  write_file_atomic(dir / "tokenizer.json", tokenizer_json());
  // "scale" is stored as bfloat16, "words" as it is, so that both ways of binding are used.
  std::string shard(16, '\0');
  const uint16_t scale[2] = {f32_to_bf16(1.0f), f32_to_bf16(0.5f)};
  const uint32_t words[3] = {7, 8, 9};
  std::memcpy(shard.data(), scale, sizeof(scale));
  std::memcpy(shard.data() + sizeof(scale), words, sizeof(words));
  write_file_atomic(dir / "params_shard_0.bin", shard);
  const Json records = Json::array({{{"name", "scale"},
                                     {"shape", {2}},
                                     {"dtype", "float32"},
                                     {"format", "f32-to-bf16"},
                                     {"nbytes", 4},
                                     {"byteOffset", 0}},
                                    {{"name", "words"},
                                     {"shape", {3}},
                                     {"dtype", "uint32"},
                                     {"format", "f32-to-bf16"},
                                     {"nbytes", 12},
                                     {"byteOffset", 4}}});
  const Json cache = {{"metadata", {{"ParamSize", 2}, {"ParamBytes", 20.0}, {"BitsPerParam", 32.0}}},
                      {"records", Json::array({{{"dataPath", "params_shard_0.bin"},
                                                {"format", "raw-shard"},
                                                {"nbytes", 16},
                                                {"records", records},
                                                {"md5sum", md5_hex(std::as_bytes(std::span(shard)))}}})}};
  write_file_atomic(dir / "tensor-cache.json", cache.dump(4));
  write_fake_library(dir / "lib" / "fake.so", edits);
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "dovetail-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() { std::filesystem::remove_all(path_); }

void edit_file(const std::filesystem::path& path, const std::string& from, const std::string& to) {
  std::string text = read_file(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " is not in " << path;
  text.replace(at, from.size(), to);
  write_file_atomic(path, text);
}

}  // namespace dovetail::test
