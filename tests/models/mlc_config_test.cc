#include "models/mlc_config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/plan.h"

namespace dovetail::models {
namespace {

Json chat_config(const std::string& package) {
  return read_json(std::string(DOVETAIL_TEST_DATA) + "/mlc-packages/" + package + "/mlc-chat-config.json");
}

ModelPlan plan_of(const std::string& package) {
  const Json config = chat_config(package);
  return plan_without_manifest(config["model_type"], config["model_config"],
                               find_quantization(config["quantization"].get<std::string>()), "model_config");
}

std::string refusal(const std::string& type, const Json& config) {
  try {
    plan_without_manifest(type, config, find_quantization("q0f16"), "model_config");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MlcConfig, IsReadWithItsOwnNames) {
  const ModelPlan llama = plan_of("llama_tiny/q4f16_1");
  EXPECT_EQ(llama.model_type, "llama");
  EXPECT_FALSE(llama.has_manifest);
  EXPECT_EQ(llama.context_window_size, 256);
  EXPECT_EQ(llama.prefill_chunk_size, 64);
  EXPECT_NE(llama.config_literal.find(".theta = 10000.0"), std::string::npos) << llama.config_literal;

  const ModelPlan gemma = plan_of("gemma3_tiny/q0f32");
  EXPECT_EQ(gemma.model_type, "gemma3_text");
  EXPECT_EQ(gemma.context_window_size, 8192);
  for (const char* part : {".sliding_window = 8", ".head_dim = 16", ".theta = 10000.0", ".theta = 1000000.0"})
    EXPECT_NE(gemma.config_literal.find(part), std::string::npos) << part << "\n" << gemma.config_literal;
}

TEST(MlcConfig, TakesTextAlone) {
  const ModelPlan plan = plan_of("llava_tiny/q4f16_1");
  EXPECT_EQ(plan.model_type, "llava");
  EXPECT_EQ(plan.tasks[0].second.inputs.size(), 1u);
  EXPECT_TRUE(plan.programs[0].second.adapters.empty());
  ASSERT_FALSE(plan.parameters.empty());
  for (const Parameter& parameter : plan.parameters)
    EXPECT_EQ(parameter.name.rfind("language_model.", 0), 0u) << parameter.name;
  EXPECT_EQ(plan.decode_bytes > 0, true);
}

TEST(MlcConfig, ScalingIsRead) {
  Json config = chat_config("llama_tiny/q0f16")["model_config"];
  config["rope_scaling"] = Json::parse(R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
                                           "high_freq_factor":4.0,"original_max_position_embeddings":128})");
  const ModelPlan plan = plan_without_manifest("llama", config, find_quantization("q0f16"), "c");
  EXPECT_NE(plan.config_literal.find("kLlama3"), std::string::npos) << plan.config_literal;
  // What it writes reads back the same.
  EXPECT_EQ(plan.mlc_config["rope_scaling"]["factor"], 8.0);
  EXPECT_EQ(plan_without_manifest("llama", plan.mlc_config, find_quantization("q0f16"), "c").config_literal,
            plan.config_literal);
}

TEST(MlcConfig, WhatCannotBeReadIsNamed) {
  const Json llama = chat_config("llama_tiny/q0f16")["model_config"];
  EXPECT_NE(refusal("phi3", llama).find("\"phi3\""), std::string::npos);
  EXPECT_NE(refusal("phi3", llama).find("llama, llava, gemma3_text, gemma3"), std::string::npos);
  EXPECT_NE(refusal("llava", llama).find("text_config"), std::string::npos);
  EXPECT_NE(refusal("llama", Json::array()), "");
  Json config = llama;
  config["tensor_parallel_shards"] = 2;
  EXPECT_NE(refusal("llama", config).find("tensor_parallel_shards"), std::string::npos);
  config = llama;
  config["hidden_size"] = "64";
  EXPECT_NE(refusal("llama", config).find("hidden_size"), std::string::npos);
  config = chat_config("llava_tiny/q0f32")["model_config"];
  config["text_architecture"] = "MistralForCausalLM";
  EXPECT_NE(refusal("llava", config).find("MistralForCausalLM"), std::string::npos);
}

// The form of config.json is read too: packages that were made with a manifest hold it.
TEST(MlcConfig, OriginalFormIsReadToo) {
  const Json config = read_json(DOVETAIL_TEST_DATA "/mlc-packages/llama_tiny/hf/config.json");
  const ModelPlan plan = plan_without_manifest("llama", config, find_quantization("q0f16"), "c");
  EXPECT_FALSE(plan.has_manifest);
  EXPECT_EQ(plan.parameters.size(), plan_of("llama_tiny/q0f16").parameters.size());
}

// Members that a caller of MLC's tools chose, or that name the tools' defaults.
Json without_choices(Json config) {
  // MLC has another default than the original implementation.
  if (config.contains("vision_config")) config["vision_config"].erase("layer_norm_eps");
  for (const char* key : {"prefill_chunk_size", "max_batch_size", "context_window_size"}) {
    config.erase(key);
    for (const char* part : {"text_config"}) {
      if (config.contains(part)) config[part].erase(key);
    }
  }
  return config;
}

TEST(MlcConfig, IsWrittenAsMlcsToolsWriteIt) {
  for (const char* model : {"llama_tiny/q0f16", "gemma3_tiny/q0f32", "llava_tiny/q0f32"}) {
    const std::string folder = std::string(model).substr(0, std::string(model).find('/'));
    const Json config =
        read_json(std::string(DOVETAIL_TEST_DATA) + "/mlc-packages/" + folder + "/hf/config.json");
    const ModelPlan plan = plan_model(config, find_quantization("q0f16"), "config.json");
    EXPECT_TRUE(plan.has_manifest);
    const Json expected = without_choices(chat_config(model)["model_config"]);
    const Json actual = without_choices(plan.mlc_config);
    EXPECT_EQ(actual, expected) << model << actual.dump(1) << expected.dump(1);
  }
}

TEST(Shortest, IsTheNumberThatWasMeant) {
  EXPECT_EQ(shortest(1e-5f), 1e-5);
  EXPECT_EQ(shortest(0.1f), 0.1);
  EXPECT_EQ(shortest(3.0f), 3.0);
}

}  // namespace
}  // namespace dovetail::models
