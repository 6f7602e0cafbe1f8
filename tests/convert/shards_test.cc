// Weights as people have them: in shards, of mixed types, incomplete, damaged.
#include "checkpoint_folder_fixture.h"

namespace dovetail::convert {
namespace {

TEST_F(CheckpointFolder, ShardsGiveTheBytesOfTheWholeFile) {
  run(kLlama, "q4f16_1");
  const std::string expected = weights();
  write_shards();
  run(hf(), "q4f16_1");
  EXPECT_EQ(weights(), expected);
}

TEST_F(CheckpointFolder, EveryFaultOfAnIndexIsNamed) {
  const Json map = write_shards();
  const std::string some = map.items().begin().key();
  fs::rename(hf() / "model-1.safetensors", hf() / "away");
  fs::rename(hf() / "model-2.safetensors", hf() / "away2");
  EXPECT_HAS(error(), "model-1.safetensors: file is missing, though model.safetensors.index.json names it");
  EXPECT_EQ(problems_, 2u);
  fs::rename(hf() / "away", hf() / "model-1.safetensors");
  fs::rename(hf() / "away2", hf() / "model-2.safetensors");

  // In two shards; the index places it in one.
  write_text(hf() / "model-9.safetensors", safetensors_text({tensors_[0], bf16_tensor("more", {1})}));
  Json changed = map;
  changed["more"] = "model-9.safetensors";
  write_index(changed);
  EXPECT_HAS(error(),
             "model-9.safetensors: tensor \"" + tensors_[0].name + "\" is also in model-0.safetensors");
  // The index places it twice.
  write_text(hf() / kIndex, "{\"weight_map\":{\"" + some + "\":\"model-0.safetensors\",\"" + some +
                                "\":\"model-9.safetensors\"}}");
  EXPECT_HAS(error(), "duplicate member");

  changed = map;
  changed["model.layers.7.absent"] = "model-0.safetensors";
  write_index(changed);
  EXPECT_HAS(error(), "model-0.safetensors: the file lacks tensor \"model.layers.7.absent\"");
  write_index(map);
  EXPECT_EQ(error(), "accepted");
}

TEST_F(CheckpointFolder, MixedTypesOfTheSameValuesGiveTheSameBytes) {
  tensors_.clear();
  for (const CheckpointTensor& t : open_checkpoint(kLlama).tensors)
    tensors_.push_back(bf16_tensor(t.name, t.shape));
  write_whole();
  run(hf(), "q4f16_1");
  const std::string expected = weights();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const size_t count = tensors_[i].bytes.size() / 2;
    std::string out;
    for (size_t k = 0; k < count; ++k) {
      uint16_t bits;
      std::memcpy(&bits, tensors_[i].bytes.data() + 2 * k, 2);
      const float value = bf16_to_f32(bits);
      const uint16_t half = f32_to_f16(value);
      ASSERT_EQ(f16_to_f32(half), value);
      if (i % 3 == 1) out.append(reinterpret_cast<const char*>(&half), 2);
      if (i % 3 == 2) out.append(reinterpret_cast<const char*>(&value), 4);
    }
    if (i % 3 == 0) continue;
    tensors_[i].dtype = i % 3 == 1 ? "F16" : "F32";
    tensors_[i].bytes = out;
  }
  write_shards();
  run(hf(), "q4f16_1");
  EXPECT_EQ(weights(), expected);
}

TEST_F(CheckpointFolder, TypesThatAModelCannotHaveAreRefusedWhereItNeedsThem) {
  size_t i = 1;
  for (const char* type : {"F8_E4M3", "F8_E5M2", "I64", "BOOL"}) {
    TestTensor& one = tensors_[++i];
    one.dtype = type;
    one.bytes.resize(one.bytes.size() / 2 * (type == std::string("I64") ? 8 : 1));
  }
  write_whole();
  const std::string text = error();
  EXPECT_EQ(problems_, 4u) << text;
  i = 1;
  for (const char* type : {"F8_E4M3", "F8_E5M2", "I64", "BOOL"})
    EXPECT_HAS(text, tensors_[++i].name +
                         ": dtype is not one that can be converted (expected BF16, F16 or F32, got " + type);
}

TEST_F(CheckpointFolder, WhatNoWeightCanBeIsLeftOutAndSaid) {
  write_whole();
  run(hf());
  const std::string expected = weights();
  tensors_.push_back({"model.layers.0.attn.scale", "F8_E4M3", {3}, "abc"});
  tensors_.push_back({"model.layers.0.attn.bias", "BOOL", {2, 2}, "\1\1\1\1"});
  tensors_.push_back({"model.embeddings.position_ids", "I64", {1}, "12345678"});
  tensors_.push_back(bf16_tensor("model.empty", {0, 64}));
  tensors_.push_back(bf16_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {8}));
  write_whole();
  const ConvertSummary summary = run(hf());
  EXPECT_EQ(weights(), expected);
  std::string said;
  for (const SkippedTensors& part : summary.skipped) said += part.name + ": " + part.reason + "\n";
  EXPECT_HAS(said, "model.layers.0.attn.scale: the model has no such weight, nor any of the type F8_E4M3");
  EXPECT_HAS(said, "model.layers.0.attn.bias: the model has no such weight, nor any of the type BOOL");
  EXPECT_HAS(said, "model.embeddings.position_ids: the model has no such weight, nor any of the type I64");
  EXPECT_HAS(said, "model.empty: it holds no values");
  EXPECT_HAS(said, "rotary_emb.inv_freq: computed from the configuration");
  // A weight that the model needs is not left out.
  tensor("model.norm.weight") = bf16_tensor("model.norm.weight", {0});
  write_whole();
  EXPECT_HAS(error(), "model.norm.weight: wrong shape (expected [64], got [0])");
}

TEST_F(CheckpointFolder, MissingUnknownAndRenamedTensorsAreListedTogether) {
  tensor("model.norm.weight").name = "model.morn.weight";
  std::erase_if(tensors_, [](const TestTensor& t) {
    return t.name == "model.layers.0.mlp.up_proj.weight" || t.name == "model.layers.1.input_layernorm.weight";
  });
  tensors_.push_back(bf16_tensor("quant.zeros", {4}));
  tensors_.push_back(bf16_tensor("quant.scales", {4}));
  write_whole();
  const std::string text = error();
  EXPECT_EQ(problems_, 6u) << text;
  EXPECT_HAS(text, "mismatch: ");
  EXPECT_HAS(text, "model.norm.weight: tensor is missing; is it \"model.morn.weight\"?");
  EXPECT_HAS(text, "model.layers.0.mlp.up_proj.weight: tensor is missing");
  EXPECT_HAS(text, "model.layers.1.input_layernorm.weight: tensor is missing");
  EXPECT_HAS(text,
             "model.morn.weight: the model has no such weight; the nearest one is \"model.norm.weight\"");
  EXPECT_HAS(text, "quant.zeros: the model has no such weight");
  EXPECT_HAS(text, "quant.scales: the model has no such weight");
}

TEST_F(CheckpointFolder, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string file = safetensors_text(tensors_);
  uint64_t header;
  std::memcpy(&header, file.data(), 8);
  for (const size_t size : {size_t{0}, size_t{5}, size_t{8}, static_cast<size_t>(8 + header / 2),
                            static_cast<size_t>(8 + header), file.size() / 2, file.size() - 1}) {
    write_text(hf() / "model.safetensors", file.substr(0, size));
    EXPECT_HAS(error(), "malformed: model.safetensors: ") << size;
  }
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{file.size()}}) {
    std::string changed = file;
    std::memcpy(changed.data(), &length, 8);
    write_text(hf() / "model.safetensors", changed);
    EXPECT_HAS(error(), "the header is longer than the file") << length;
  }
  write_text(hf() / "model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n");
  EXPECT_HAS(error(), "is a Git LFS pointer, not the file itself");
}

TEST_F(CheckpointFolder, ACheckpointWithoutTheEncoderThatItNamesIsRefused) {
  const fs::path example = kExamples / "gemma4-tiny-speech";
  tensors_ = tensors_of(example);
  std::erase_if(tensors_,
                [](const TestTensor& t) { return t.name.find("audio_tower") != std::string::npos; });
  fs::remove_all(hf());
  fs::create_directory(hf());
  for (const char* name : {"config.json", "tokenizer.json"}) fs::copy_file(example / name, hf() / name);
  write_whole();
  EXPECT_HAS(error(), "audio_tower.output_proj.weight: tensor is missing");
}

}  // namespace
}  // namespace dovetail::convert
