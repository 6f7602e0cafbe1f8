#include "models/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"
#include "contract/manifest.h"
#include "models/gemma4_plan.h"

namespace dovetail::models {
namespace {

const std::string kContracts = std::string(DOVETAIL_TEST_DATA) + "/contracts/";

Json e2b() { return read_json(kContracts + "gemma-4-E2B-it/config.json"); }

std::string refusal(const Json& config) {
  try {
    plan_model(config, find_quantization("q4f16_1"), "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A model and a quantization.
class Contract : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Contract, IsExactlyTheReference) {
  const std::string folder = kContracts + GetParam().first + "/";
  const Json reference = read_json(folder + GetParam().second + ".json");
  const ModelPlan plan =
      plan_model(read_json(folder + "config.json"), find_quantization(GetParam().second), "config.json");
  ASSERT_EQ(plan.parameters.size(), reference["parameters"].size());
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const Parameter& parameter = plan.parameters[i];
    EXPECT_EQ(Json::array({parameter.name, shape_json(parameter), dtype_name(parameter.dtype)}),
              reference["parameters"][i]);
  }
  EXPECT_EQ(contract::to_json(plan.manifest()).dump(), reference["manifest"].dump());
  EXPECT_EQ(contract::to_json(plan.artifact(Target::kCpu)).dump(), reference["artifact"]["cpu"].dump());
  EXPECT_EQ(contract::to_json(plan.artifact(Target::kWebGpu)).dump(), reference["artifact"]["webgpu"].dump());
}

INSTANTIATE_TEST_SUITE_P(
    Reference, Contract,
    ::testing::Values(std::pair("gemma-4-E2B-it", "q4f16_1"), std::pair("gemma-4-E2B-it", "q4f32_1"),
                      std::pair("gemma-4-E2B-it", "q0f16"), std::pair("llava-1.5-7b-hf", "q4f16_1"),
                      std::pair("llava-1.5-7b-hf", "q0f16"), std::pair("gemma-3-4b-it", "q4f16_1"),
                      std::pair("gemma-3-4b-it", "q0f16"), std::pair("gemma-3-1b-it", "q4f16_1")),
    [](const auto& info) {
      std::string name = std::string(info.param.first) + "_" + info.param.second;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; },
          '_');
      return name;
    });

TEST(Plan, PinnedNumbersOfTheSpecification) {
  const ModelPlan plan = plan_model(e2b(), find_quantization("q4f16_1"), "config.json");
  EXPECT_EQ(plan.parameters.size(), 1716u);
  EXPECT_EQ(plan.artifact(Target::kCpu).resources.estimated_device_memory_bytes, 2797972550);
  EXPECT_EQ(plan.artifact(Target::kCpu).resources.max_storage_buffer_binding_size, 201326592);
  EXPECT_EQ(plan.manifest().interface_id,
            "sha256:6453d39d6c1a05b41e3d10ac1547892e2fde2ae228c6705b122ffde5e4c9c490");
  EXPECT_EQ(plan.sliding_window_size, -1);
  EXPECT_EQ(plan.prefill_chunk_size, 512);
}

TEST(Plan, EveryQuantizationGivesAPlan) {
  for (const Quantization& quantization : quantizations()) {
    EXPECT_GT(plan_model(e2b(), quantization, "config.json").parameters.size(), 1000u) << quantization.name;
  }
}

TEST(Plan, OtherQuantizationsAreRefusedByName) {
  for (const char* name : {"q5f16_1", "q4f16_autoawq", "q4f16_ft", "e4m3_e4m3_f16",
                           "fp8_e4m3fn_bf16_block_scale", "q8f32_1", "q4f16_1 ", ""}) {
    try {
      find_quantization(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("\"" + std::string(name) + "\""), std::string::npos);
      EXPECT_NE(
          std::string(error.what())
              .find("q4f16_1, q4f16_0, q4f16_2, q4bf16_1, q4bf16_0, q4f32_1, q3f16_1, q3f16_0, q8f16_1, "
                    "q0f16, q0f32, q0bf16"),
          std::string::npos)
          << error.what();
    }
  }
}

// "name dtype shape" of the parameters whose names begin so.
std::vector<std::string> stored(const ModelPlan& plan, const std::vector<std::string>& prefixes) {
  std::vector<std::string> out;
  for (const std::string& prefix : prefixes) {
    for (const Parameter& parameter : plan.parameters) {
      if (parameter.name.starts_with(prefix))
        out.push_back(parameter.name + " " + std::string(dtype_name(parameter.dtype)) + " " +
                      shape_json(parameter).dump());
    }
  }
  return out;
}

// Names, shapes and dtypes that MLC's own quantizer gave to layers of these sizes.
TEST(Plan, EveryQuantizationStoresWhatMlcStores) {
  using Lines = std::vector<std::string>;
  const std::string tiny = std::string(DOVETAIL_TEST_DATA) + "/mlc-packages/llama_tiny/hf/config.json";
  const Lines parts = {"model.embed_tokens", "model.layers.1.mlp.down_proj", "lm_head", "model.norm"};
  const auto llama = [&](const char* quantization) {
    return stored(plan_model(read_json(tiny), find_quantization(quantization), "config.json"), parts);
  };
  const std::string down = "model.layers.1.mlp.down_proj.";
  EXPECT_EQ(llama("q4f16_0"),
            (Lines{"model.embed_tokens.q_weight uint32 [\"vocab_size\",8]",
                   "model.embed_tokens.q_scale float16 [\"vocab_size\",2]", down + "q_weight uint32 [16,64]",
                   down + "q_scale float16 [4,64]", "lm_head.q_weight uint32 [8,\"vocab_size\"]",
                   "lm_head.q_scale float16 [2,\"vocab_size\"]", "model.norm.weight float16 [64]"}));
  EXPECT_EQ(llama("q3f16_0"),
            (Lines{"model.embed_tokens.q_weight uint32 [\"vocab_size\",8]",
                   "model.embed_tokens.q_scale float16 [\"vocab_size\",2]", down + "q_weight uint32 [12,64]",
                   down + "q_scale float16 [3,64]", "lm_head.q_weight uint32 [8,\"vocab_size\"]",
                   "lm_head.q_scale float16 [2,\"vocab_size\"]", "model.norm.weight float16 [64]"}));
  EXPECT_EQ(llama("q3f16_1")[2], down + "q_weight uint32 [64,12]");
  EXPECT_EQ(llama("q4f16_2"),
            (Lines{"model.embed_tokens.weight float16 [\"vocab_size\",64]", down + "q_weight uint32 [64,16]",
                   down + "q_scale float16 [64,4]", "lm_head.weight float16 [\"vocab_size\",64]",
                   "model.norm.weight float16 [64]"}));
  EXPECT_EQ(llama("q4bf16_1"),
            (Lines{"model.embed_tokens.q_weight uint32 [\"vocab_size\",8]",
                   "model.embed_tokens.q_scale bfloat16 [\"vocab_size\",2]", down + "q_weight uint32 [64,16]",
                   down + "q_scale bfloat16 [64,4]", "lm_head.q_weight uint32 [\"vocab_size\",8]",
                   "lm_head.q_scale bfloat16 [\"vocab_size\",2]", "model.norm.weight bfloat16 [64]"}));
  EXPECT_EQ(llama("q4bf16_0")[4], "lm_head.q_weight uint32 [8,\"vocab_size\"]");
  EXPECT_EQ(llama("q8f16_1")[2], down + "q_weight uint32 [64,32]");
  EXPECT_EQ(llama("q8f16_1")[3], down + "q_scale float16 [64,4]");
  // MLC knows the head by its whole name: below another model it is a linear layer like others.
  const Json llava = read_json(kContracts + "llava-1.5-7b-hf/config.json");
  EXPECT_EQ(stored(plan_model(llava, find_quantization("q4f16_2"), "config.json"),
                   {"language_model.lm_head", "language_model.model.embed_tokens"}),
            (Lines{"language_model.lm_head.q_weight uint32 [\"vocab_size\",512]",
                   "language_model.lm_head.q_scale float16 [\"vocab_size\",128]",
                   "language_model.model.embed_tokens.weight float16 [\"vocab_size\",4096]"}));
  // Tables are never transposed, gathered ones neither.
  EXPECT_EQ(stored(plan_model(e2b(), find_quantization("q4f16_0"), "config.json"),
                   {"language_model.embed_tokens_per_layer.7.", "language_model.layers.0.self_attn.k_proj"}),
            (Lines{"language_model.embed_tokens_per_layer.7.q_weight uint32 [262144,32]",
                   "language_model.embed_tokens_per_layer.7.q_scale float16 [262144,8]",
                   "language_model.layers.0.self_attn.k_proj.q_weight uint32 [192,256]",
                   "language_model.layers.0.self_attn.k_proj.q_scale float16 [48,256]"}));
}

TEST(Plan, ReadsBackWhatItWritesIntoThePackage) {
  const ModelPlan plan = plan_model(e2b(), find_quantization("q4f16_1"), "config.json");
  const ModelPlan again = plan_model(plan.model_config, find_quantization("q4f16_1"), "mlc-chat-config.json");
  EXPECT_EQ(again.manifest(), plan.manifest());
  EXPECT_EQ(again.config_literal, plan.config_literal);
}

TEST(Plan, WithoutAnAudioTowerOnlyTextIsDeclared) {
  Json config = e2b();
  config.erase("audio_config");
  const ModelPlan plan = plan_model(config, find_quantization("q4f16_1"), "config.json");
  EXPECT_EQ(plan.tasks[0].second.inputs.size(), 1u);
  EXPECT_TRUE(plan.programs[0].second.adapters.empty());
  EXPECT_EQ(plan.manifest().interface_id,
            "sha256:dfcfaf1a1cbdaf603a5855108c7b5c5701c0d5de4c873f38a6971692bddf93bd");
}

TEST(Plan, BothLayoutsOfTheHeadSizesAgree) {
  Json newer = e2b();
  Json& text = newer["text_config"];
  text.erase("global_head_dim");
  for (int i = 4; i < 35; i += 5) text["per_layer_config"][std::to_string(i)] = {{"head_dim", 512}};
  EXPECT_EQ(plan_model(newer, find_quantization("q4f16_1"), "c").config_literal,
            plan_model(e2b(), find_quantization("q4f16_1"), "c").config_literal);
}

TEST(Plan, BothLayoutsOfTensorNamesAgree) {
  const ModelPlan plan = plan_model(e2b(), find_quantization("q0f16"), "c");
  EXPECT_EQ(plan.canonical_name("model.language_model.norm.weight"), "language_model.norm.weight");
  EXPECT_EQ(plan.canonical_name("language_model.model.norm.weight"), "language_model.norm.weight");
  EXPECT_EQ(plan.canonical_name("model.audio_tower.layers.0.norm_out.weight"),
            "audio_tower.layers.0.norm_out.weight");
}

TEST(Plan, UnknownArchitecturesAreRefusedWithTheKnownOnes) {
  Json config = e2b();
  config["architectures"] = {"PhiForCausalLM"};
  const std::string text = refusal(config);
  EXPECT_NE(text.find("PhiForCausalLM"), std::string::npos) << text;
  EXPECT_NE(text.find("Gemma4ForConditionalGeneration"), std::string::npos) << text;
  config.erase("architectures");
  EXPECT_NE(refusal(config), "");
}

// As the config.json of Phi 3.5 Vision says it.
TEST(Plan, FamiliesThatCanNotWorkAreRefusedWithTheReason) {
  const Json phi = {
      {"architectures", {"Phi3VForCausalLM"}},
      {"model_type", "phi3_v"},
      {"hidden_size", 3072},
      {"num_hidden_layers", 32},
      {"img_processor", {{"image_dim_out", 1024}, {"name", "clip_vision_model"}, {"num_img_tokens", 144}}},
      {"embd_layer", {{"hd_transform_order", "sub_glb"}, {"use_hd_transform", true}}}};
  const std::string text = refusal(phi);
  EXPECT_NE(text.find("architectures: Phi3VForCausalLM is not supported: how many positions a picture fills "
                      "depends on its size, with separators"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("num_embeddings"), std::string::npos) << text;
}

TEST(Plan, EveryWrongValueIsNamed) {
  Json config = e2b();
  config["text_config"]["hidden_size"] = -1;
  config["text_config"]["num_attention_heads"] = "eight";
  config["text_config"].erase("vocab_size");
  config["audio_config"]["attention_context_left"] = 20;
  const std::string text = refusal(config);
  for (const char* part : {"text_config.hidden_size", "text_config.num_attention_heads",
                           "text_config.vocab_size", "audio_config.attention_context_left"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Plan, AbsurdConfigurationsAreRefused) {
  const auto with = [](const char* key, Json value) {
    Json config = e2b();
    config["text_config"][key] = std::move(value);
    return config;
  };
  EXPECT_NE(refusal(with("num_hidden_layers", 1'000'000)), "");
  EXPECT_NE(refusal(with("num_hidden_layers", 7)), "");  // layer_types has 35
  EXPECT_NE(refusal(with("num_kv_shared_layers", 34)), "");
  EXPECT_NE(refusal(with("num_key_value_heads", 3)), "");
  EXPECT_NE(refusal(with("layer_types", 3)), "");
  EXPECT_NE(refusal(with("global_head_dim", 511)), "");
  EXPECT_NE(refusal(with("enable_moe_block", true)), "");
  EXPECT_NE(refusal(with("attention_k_eq_v", true)), "");
  EXPECT_NE(refusal(with("per_layer_config", {{"99", {{"head_dim", 512}}}})), "");
  EXPECT_NE(refusal(with("rms_norm_eps", "small")), "");
  EXPECT_NE(refusal(Json::array()), "");
  EXPECT_NE(refusal(Json::object()), "");
}

TEST(Plan, AudioRowsFollowTheFrames) {
  EXPECT_EQ(audio_rows(161), 1);
  EXPECT_EQ(audio_rows(27815), 44);
  EXPECT_EQ(audio_rows(12095), 19);
  EXPECT_EQ(audio_rows(480000), 750);
  EXPECT_EQ(audio_frames(160), 0);
}

}  // namespace
}  // namespace dovetail::models
