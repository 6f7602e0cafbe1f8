// Folders as people have them: of other tools, in the hub's cache, with one of two tokenizers.
#include "convert/checkpoint_folder.h"

#include "checkpoint_folder_fixture.h"
#include "package/package.h"
#include "package/tokenizer.h"

namespace dovetail::convert {
namespace {

// --- vocabulary ---

TEST_F(CheckpointFolder, RowsBehindTheVocabularyArePaddingAndTokensBehindTheRowsAreRefused) {
  edit_config([](Json& config) { config["vocab_size"] = 314; });
  write_whole();  // with 320 rows
  const ConvertSummary summary = run(hf());
  EXPECT_TRUE(std::any_of(summary.notes.begin(), summary.notes.end(), [](const std::string& note) {
    return note.find("6 padding rows after the vocabulary of 314") != std::string::npos;
  }));
  EXPECT_EQ(package::Package::open(output()).chat_config.active_vocab_size, 314);

  Json tokenizer = read_json(kLlama / "tokenizer.json");
  const auto add_token = [&](int64_t id) {
    Json token = tokenizer["added_tokens"][0];
    token["id"] = id;
    token["content"] = "<more" + std::to_string(id) + ">";
    token["special"] = false;
    tokenizer["added_tokens"].push_back(token);
    write_text(hf() / "tokenizer.json", tokenizer.dump());
  };
  edit_config([](Json&) {});  // 320 rows are 320 tokens
  for (int64_t id = 314; id < 320; ++id) add_token(id);
  run(hf());
  EXPECT_EQ(package::Package::open(output()).chat_config.active_vocab_size, 320);
  add_token(320);
  EXPECT_HAS(
      error(),
      "tokenizer.json: the tokenizer has more tokens than the model's vocabulary (expected at most 320, "
      "got 321)");
  fs::remove(hf() / "tokenizer.json");
  fs::copy_file(fs::path(DOVETAIL_TEST_DATA) / "sentencepiece/bpe.model", hf() / "tokenizer.model");
  EXPECT_HAS(error(), "tokenizer.model: the tokenizer has more tokens than the model's vocabulary");
}

// --- other tools ---

TEST_F(CheckpointFolder, AdaptersAreRefusedWithWhatToDo) {
  fs::remove(hf() / "config.json");
  write_text(hf() / "adapter_model.safetensors",
             safetensors_text({bf16_tensor("base_model.lora_A.weight", {2, 2})}));
  EXPECT_HAS(error(), "adapter_model.safetensors: the folder holds an adapter (LoRA), not a model");
  write_text(hf() / "adapter_config.json",
             R"({"peft_type": "LORA", "base_model_name_or_path": "someone/some-model", "r": 8})");
  const std::string text = error();
  EXPECT_HAS(text, "unsupported: ");
  EXPECT_HAS(text,
             "adapter_config.json: the folder holds an adapter (LORA) for someone/some-model, not a model");
  EXPECT_HAS(text, "merge the adapter into its model first");
  EXPECT_HAS(text, "merge_and_unload");
}

TEST_F(CheckpointFolder, WeightsOfOtherQuantizersAreRefusedByName) {
  write_whole();
  const std::pair<Json, const char*> cases[] = {
      {{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}, "by GPTQ, 4 bits"},
      {{{"quant_method", "awq"}, {"bits", 4}}, "by AWQ, 4 bits"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"load_in_8bit", false}},
       "by bitsandbytes, 4 bits"},
      {{{"load_in_8bit", true}}, "by bitsandbytes, 8 bits"},
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, "by FP8"},
      {{{"quant_method", "compressed-tensors"}}, "by compressed-tensors"},
      {{{"quant_method", "n\x1bw"}}, "by \"n\\x1bw\""},
      {Json(7), "that config.json does not name"},
  };
  for (const auto& [value, name] : cases) {
    edit_config([&](Json& config) { config["quantization_config"] = value; });
    const std::string text = error();
    EXPECT_HAS(text, "unsupported: config.json: quantization_config: the weights are already quantized, ");
    EXPECT_HAS(text, name);
    EXPECT_HAS(text, "take the original checkpoint");
  }
  edit_config([](Json& config) { config["quantization_config"] = nullptr; });
  EXPECT_EQ(error(), "accepted");
  fs::remove_all(output());
  write_text(hf() / "quantize_config.json", R"({"bits": 4, "group_size": 128})");
  EXPECT_HAS(error(), "quantize_config.json: the weights are already quantized, by GPTQ, 4 bits");
  fs::remove(hf() / "quantize_config.json");
  write_text(hf() / "quant_config.json", R"({"w_bit": 4, "q_group_size": 128})");
  EXPECT_HAS(error(), "quant_config.json: the weights are already quantized, by AWQ, 4 bits");
}

TEST_F(CheckpointFolder, WeightsOfOtherQuantizersAreKnownByTheirNames) {
  TestTensor& one = tensor("model.layers.0.mlp.up_proj.weight");
  const std::string base = "model.layers.0.mlp.up_proj";
  for (const auto& [name, tool] : {std::pair{".qweight", "by GPTQ or AWQ"},
                                   {".weight.absmax", "by bitsandbytes"},
                                   {".weight_packed", "by compressed-tensors"},
                                   {".weight_scale_inv", "by an FP8 tool"}}) {
    one = {base + name, "I32", {1}, "1234"};
    write_whole();
    EXPECT_HAS(error(), "unsupported: model.safetensors: " + one.name +
                            ": the weights are already quantized, " + tool);
  }
}

// --- the hub's cache ---

class HubCache : public CheckpointFolder {
 protected:
  HubCache() {
    write_whole();
    fs::create_directories(model() / "blobs");
    fs::create_directories(model() / "refs");
    add_snapshot(kRevision);
  }

  fs::path model() const { return dir_ / "hub" / "models--some--model"; }
  // As huggingface_hub lays files out: links to blobs by hash.
  void add_snapshot(const std::string& revision) {
    const fs::path snapshot = model() / "snapshots" / revision;
    fs::create_directories(snapshot);
    for (const auto& entry : fs::directory_iterator(hf())) {
      const std::string name = entry.path().filename().string();
      fs::copy_file(entry.path(), model() / "blobs" / ("sha-" + name), fs::copy_options::overwrite_existing);
      fs::create_symlink(fs::path("../../blobs") / ("sha-" + name), snapshot / name);
    }
  }
  void refer(const std::string& text) { write_text(model() / "refs/main", text); }

  static constexpr const char* kRevision = "0123456789abcdef0123456789abcdef01234567";
};

TEST_F(HubCache, SnapshotsOfLinksAreCheckpoints) {
  run(hf());
  const std::string expected = weights();
  const ConvertSummary direct = run(model() / "snapshots" / kRevision);
  EXPECT_EQ(weights(), expected);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(output() / "tokenizer.json")));
  EXPECT_EQ(read_text(output() / "tokenizer.json"), read_text(kLlama / "tokenizer.json"));

  for (const char* ref : {"", kRevision}) {
    if (*ref != '\0') refer(ref);
    if (*ref != '\0') add_snapshot("another");
    const ConvertSummary summary = run(model());
    EXPECT_EQ(weights(), expected);
    ASSERT_EQ(summary.notes.size(), direct.notes.size() + 1);
    EXPECT_EQ(summary.notes[0], std::string("snapshot ") + kRevision + " of the cache folder is taken");
  }
}

TEST_F(HubCache, SaysWhatItLacks) {
  add_snapshot("another");
  EXPECT_HAS(error(model()), "several snapshots, and refs/main names none of them");
  EXPECT_HAS(error(model()), std::string(kRevision) + ", another");
  for (const char* ref : {"gone", "../..", "..", "", "a/b", "\n"}) {
    refer(ref);
    EXPECT_HAS(error(model()), "refs/main names none of them");
  }
  EXPECT_HAS(error(dir_ / "hub"), "the cache of the hub, not a model");
  EXPECT_HAS(error(dir_ / "hub"), "models--some--model");
  refer(kRevision);
  fs::remove(model() / "blobs/sha-tokenizer.json");
  EXPECT_HAS(error(model()),
             "tokenizer.json: is a link to a file that is missing: ../../blobs/sha-tokenizer.json");
  fs::copy_file(kLlama / "tokenizer.json", model() / "blobs/sha-tokenizer.json");
  EXPECT_EQ(error(model()), "accepted");
  fs::remove_all(output());
  for (const char* name : {"generation_config.json", "chat_template.jinja"}) {
    const fs::path link = model() / "snapshots" / kRevision / name;
    fs::create_symlink("../../blobs/gone", link);
    EXPECT_HAS(error(model()), std::string(name) + ": is a link to a file that is missing: ../../blobs/gone");
    fs::remove(link);
  }
  fs::remove(model() / "blobs/sha-model.safetensors");
  EXPECT_HAS(error(model()),
             "model.safetensors: is a link to a file that is missing: ../../blobs/sha-model.safetensors");
  write_shards();
  fs::remove(hf() / "model.safetensors");
  add_snapshot("sharded");
  refer("sharded");
  fs::remove(model() / "blobs/sha-model-1.safetensors");
  EXPECT_HAS(error(model()), "model-1.safetensors: is a link to a file that is missing");
  fs::remove_all(model() / "snapshots");
  fs::create_directory(model() / "snapshots");
  EXPECT_HAS(error(model()), "has no snapshot");
}

TEST_F(CheckpointFolder, PointersOfGitLfsAndDamagedTokenizersAreSaidToBeThat) {
  write_whole();
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  // What is not needed, too: it would be copied, or count before another file.
  for (const char* name : {"tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "chat_template.jinja"}) {
    write_text(hf() / name, pointer);
    EXPECT_HAS(error(), std::string(name) + ": is a Git LFS pointer, not the file itself");
    fs::remove(hf() / name);
  }
  write_text(hf() / "tokenizer.json", pointer);
  EXPECT_HAS(error(), "tokenizer.json: is a Git LFS pointer, not the file itself");
  fs::remove(hf() / "tokenizer.json");
  write_text(hf() / "tokenizer.model", pointer);
  EXPECT_HAS(error(), "tokenizer.model: is a Git LFS pointer, not the file itself");
  // The field of the normalization, of two bytes that are none.
  std::string model = read_text(fs::path(DOVETAIL_TEST_DATA) / "sentencepiece/bpe.model");
  model +=
      "\x1a\x04\x12\x02"
      "ab";
  write_text(hf() / "tokenizer.model", model);
  EXPECT_HAS(error(), "tokenizer.model: not a usable tokenizer: ");
}

TEST_F(CheckpointFolder, ATokenizerModelAloneGivesAPackageWithBoth) {
  tensors_.clear();
  for (const CheckpointTensor& t : open_checkpoint(kLlama).tensors) {
    const bool table = t.shape[0] == 320;
    tensors_.push_back(bf16_tensor(t.name, table ? std::vector<int64_t>{704, 64} : t.shape));
  }
  write_whole();
  edit_config([](Json& config) { config["vocab_size"] = 704; });
  fs::remove(hf() / "tokenizer.json");
  const fs::path model = fs::path(DOVETAIL_TEST_DATA) / "sentencepiece/bpe.model";
  fs::copy_file(model, hf() / "tokenizer.model");
  const ConvertSummary summary = run(hf());
  EXPECT_TRUE(std::any_of(summary.notes.begin(), summary.notes.end(), [](const std::string& note) {
    return note.find("tokenizer.json is made from tokenizer.model") == 0;
  }));
  EXPECT_EQ(read_text(output() / "tokenizer.model"), read_text(model));
  const package::Package made = package::Package::open(output());
  EXPECT_EQ(made.chat_config.active_vocab_size, 700);
  EXPECT_EQ(made.chat_config.tokenizer_files,
            (std::vector<std::string>{"tokenizer.model", "tokenizer.json"}));
  EXPECT_TRUE(made.chat_config.tokenizer_info->prepend_space_in_encode);
  EXPECT_EQ(package::Tokenizer::from_file(output() / "tokenizer.json").encode("", true),
            std::vector<int32_t>{1});
}

}  // namespace
}  // namespace dovetail::convert
