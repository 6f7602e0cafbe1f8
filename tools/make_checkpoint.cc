// Makes a Hugging Face checkpoint with random weights from a config.json: the real sizes of a model, without
// its values. For measuring conversion, memory and speed; what it says is noise.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "models/plan.h"

namespace {

using namespace dovetail;
namespace fs = std::filesystem;

constexpr int64_t kShardBytes = int64_t{2} << 30;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;

  int64_t count() const {
    int64_t out = 1;
    for (int64_t dim : shape) out *= dim;
    return out;
  }
};

// The checkpoint's tensors, undone from the weights that are made of them.
std::vector<Tensor> tensors_of(const models::ModelPlan& plan) {
  std::vector<Tensor> out;
  std::map<std::string, size_t> seen;
  for (const models::Weight& weight : plan.weights) {
    for (const std::string& name : weight.source.tensors) {
      if (!seen.emplace(name, out.size()).second) continue;
      std::vector<int64_t> shape = weight.source.shape.empty() ? weight.shape : weight.source.shape;
      if (weight.source.tensors.size() > 1) shape[0] /= static_cast<int64_t>(weight.source.tensors.size());
      if (weight.source.columns > 0) shape[1] = weight.source.columns;
      out.push_back({name, std::move(shape)});
    }
  }
  return out;
}

// bfloat16 values: matrices small and normal, norms and scalars 1, ranges wide.
class Values {
 public:
  explicit Values(uint64_t seed) : random_(seed), normals_(1 << 20) {
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (uint16_t& value : normals_) value = f32_to_bf16(normal(random_));
  }

  void write(const Tensor& tensor, AtomicFile& file) {
    if (tensor.shape.size() >= 2) {
      // Slices of one table of normal numbers from random places: as good for sizes and speed, and fast to
      // make.
      for (int64_t left = tensor.count(); left > 0;) {
        const size_t at = random_() % (normals_.size() / 2);
        const auto n = std::min<int64_t>(left, static_cast<int64_t>(normals_.size() / 2));
        file.write(std::as_bytes(std::span(normals_).subspan(at, static_cast<size_t>(n))));
        left -= n;
      }
      return;
    }
    float value = 1.0f;
    if (tensor.name.ends_with("_min")) value = -50.0f;
    if (tensor.name.ends_with("_max")) value = 50.0f;
    if (tensor.name.ends_with(".bias") || tensor.name.ends_with("per_dim_scale")) value = 0.0f;
    const std::vector<uint16_t> values(static_cast<size_t>(tensor.count()), f32_to_bf16(value));
    file.write(std::as_bytes(std::span(values)));
  }

 private:
  std::mt19937_64 random_;
  std::vector<uint16_t> normals_;
};

void write_shards(const fs::path& folder, const std::vector<Tensor>& tensors, uint64_t seed) {
  std::vector<std::vector<Tensor>> shards;
  int64_t total = 0, pending = kShardBytes;
  for (const Tensor& tensor : tensors) {
    const int64_t bytes = 2 * tensor.count();
    if (pending + bytes > kShardBytes) {
      shards.emplace_back();
      pending = 0;
    }
    shards.back().push_back(tensor);
    pending += bytes;
    total += bytes;
  }
  Progress progress("writing", total);
  Values values(seed);
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    Json header = Json::object();
    int64_t offset = 0;
    for (const Tensor& tensor : shards[i]) {
      const int64_t end = offset + 2 * tensor.count();
      header[tensor.name] = {{"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
      weight_map[tensor.name] = name;
      offset = end;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    AtomicFile file(folder / name);
    const uint64_t size = text.size();
    file.write(std::as_bytes(std::span(&size, 1)));
    file.write(text);
    for (const Tensor& tensor : shards[i]) {
      values.write(tensor, file);
      progress.advance(2 * tensor.count());
    }
    file.commit();
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file_atomic(folder / "model.safetensors.index.json", index.dump(1));
}

// A tokenizer of bytes that fills the vocabulary and has every token that the prompts need at its place.
void write_tokenizer(const fs::path& folder, const models::ModelPlan& plan) {
  std::map<int64_t, std::string> special{{0, "<pad>"}, {1, "<eos>"},   {2, "<bos>"},
                                         {3, "<unk>"}, {4, "<|turn>"}, {5, "<turn|>"}};
  for (const auto& [name, input] : plan.tasks.front().second.inputs) {
    if (!input.prompt) continue;
    for (int64_t id : input.prompt->prefix_token_ids) special[id] = "<|" + name + ">";
    special[input.prompt->placeholder_token_id] = "<|" + name + "|>";
    for (int64_t id : input.prompt->suffix_token_ids) special[id] = "<" + name + "|>";
  }
  Json vocab = Json::object(), added = Json::array();
  auto& entries = vocab.get_ref<Json::object_t&>();
  int byte = 0;
  for (int64_t id = 0; id < plan.vocab_size; ++id) {
    const auto found = special.find(id);
    char text[32];
    if (found != special.end()) {
      std::snprintf(text, sizeof text, "%s", found->second.c_str());
    } else if (byte < 256) {
      std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte++));
    } else {
      std::snprintf(text, sizeof text, "<unused%ld>", static_cast<long>(id));
    }
    entries.emplace_back(text, id);
    if (found != special.end()) {
      added.push_back({{"id", id},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
  }
  const Json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", Json::array()}}}};
  write_file_atomic(folder / "tokenizer.json", tokenizer.dump());
  write_file_atomic(folder / "generation_config.json",
                    R"({"bos_token_id": 2, "eos_token_id": [1, 5], "pad_token_id": 0})");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Make a Hugging Face checkpoint with random weights from a config.json.", "make_checkpoint"};
  std::string config_path, output;
  uint64_t seed = 1;
  app.add_option("config", config_path, "config.json of the model")->required();
  app.add_option("output", output, "The folder to make")->required();
  app.add_option("--seed", seed, "Of the random numbers")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    const Json config = read_json(config_path);
    const models::ModelPlan plan =
        models::plan_model(config, models::find_quantization("q0bf16"), config_path);
    AtomicDirectory folder(output);
    write_shards(folder.staging(), tensors_of(plan), seed);
    write_tokenizer(folder.staging(), plan);
    write_file_atomic(folder.staging() / "config.json", config.dump(2));
    folder.commit();
    std::printf("wrote %s\n", output.c_str());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
