// Configurations and checkpoints as they are found, not as they should be.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint_folder_fixture.h"
#include "convert/checkpoint.h"
#include "convert/convert.h"
#include "convert/mapping.h"
#include "convert/preprocessor.h"
#include "package/chat_config.h"
#include "package/package.h"

namespace dovetail::convert {
namespace {
namespace fs = std::filesystem;
using namespace dovetail::testing;

models::ModelPlan plan_of(const Json& config, const char* quantization = "q0f16") {
  return models::plan_model(config, models::find_quantization(quantization), "config.json");
}
models::ModelPlan plan_of(const fs::path& checkpoint) {
  return plan_of(read_json(checkpoint / "config.json"));
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

bool replace_prefix(std::string& name, const std::string& from, const std::string& to) {
  if (!name.starts_with(from)) return false;
  name = to + name.substr(from.size());
  return true;
}

// From the canonical name to the names of transformers before 4.52 ("language_model.model.…") and since
// ("model.language_model.…").
std::string old_name(std::string name, bool gemma4) {
  if (gemma4) replace_prefix(name, "language_model.", "language_model.model.");
  return name;
}
std::string new_name(std::string name, bool gemma4) {
  if (gemma4) return "model." + name;
  if (replace_prefix(name, "language_model.lm_head.", "lm_head.")) return name;
  if (replace_prefix(name, "language_model.model.", "model.language_model.")) return name;
  replace_prefix(name, "vision_tower.vision_model.", "vision_tower.");
  return "model." + name;
}

class Layouts : public ::testing::TestWithParam<const char*> {};

TEST_P(Layouts, OldAndNewNamesAreTheSameWeights) {
  const fs::path folder = kExamples / GetParam();
  const models::ModelPlan plan = plan_of(folder);
  Checkpoint checkpoint = open_checkpoint(folder);
  std::vector<std::string> canonical;
  for (const CheckpointTensor& tensor : checkpoint.tensors)
    canonical.push_back(plan.canonical_name(tensor.name));
  const Mapping expected = map_weights(plan, checkpoint);
  const bool gemma4 = std::string(GetParam()).starts_with("gemma4");
  for (const auto& rename : {old_name, new_name}) {
    for (size_t i = 0; i < canonical.size(); ++i) checkpoint.tensors[i].name = rename(canonical[i], gemma4);
    const Mapping mapping = map_weights(plan, checkpoint);
    ASSERT_EQ(mapping.weights.size(), expected.weights.size());
    for (size_t i = 0; i < expected.weights.size(); ++i) {
      const auto& a = mapping.weights[i].parts;
      const auto& b = expected.weights[i].parts;
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        return x.tensor == y.tensor;
      })) << plan.weights[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Layouts,
                         ::testing::Values("gemma4-tiny-speech", "gemma3-tiny-shapes", "llava-tiny-shapes"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// What each spelling of a configuration comes to.
std::string literal_of(const Json& config) { return plan_of(config).config_literal; }

TEST(Configurations, SlidingPatternsAreNumbersOrLists) {
  Json config = read_json(kMlcPackages / "gemma3_tiny/hf/config.json");
  ASSERT_EQ(config["num_hidden_layers"], 6);
  config["sliding_window_pattern"] = 3;
  const std::string expected = literal_of(config);
  EXPECT_NE(expected.find("{true, true, false, true, true, false}"), std::string::npos) << expected;
  config.erase("sliding_window_pattern");
  config["_sliding_window_pattern"] = 3;
  EXPECT_EQ(literal_of(config), expected);
  config.erase("_sliding_window_pattern");
  Json types = Json::array();
  for (int i = 0; i < 6; ++i) types.push_back(i % 3 == 2 ? "full_attention" : "sliding_attention");
  config["layer_types"] = types;
  EXPECT_EQ(literal_of(config), expected);
  // A list counts where both are given.
  config["sliding_window_pattern"] = 6;
  EXPECT_EQ(literal_of(config), expected);
  config["layer_types"].erase(0);
  EXPECT_NE(error_of([&] { plan_of(config); }).find("layer_types"), std::string::npos);
}

TEST(Configurations, RopeScalingOfBothLayouts) {
  Json old = read_json(kLlama / "config.json"), fresh = old;
  old["rope_theta"] = 500000.0;
  fresh.erase("rope_theta");
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  for (const char* type : {"linear", "llama3"}) {
    Json scaling = std::string(type) == "linear" ? Json{{"factor", 8.0}} : llama3;
    scaling["rope_type"] = type;
    old["rope_scaling"] = scaling;
    const std::string expected = literal_of(old);
    EXPECT_NE(expected.find(std::string(type) == "linear" ? "kLinear" : "kLlama3"), std::string::npos);
    old["rope_scaling"].erase("rope_type");
    old["rope_scaling"]["type"] = type;
    EXPECT_EQ(literal_of(old), expected);
    scaling["rope_theta"] = 500000.0;
    fresh["rope_parameters"] = scaling;
    EXPECT_EQ(literal_of(fresh), expected);
  }
  old["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_NE(error_of([&] { plan_of(old); }).find("yarn"), std::string::npos);
}

TEST(Configurations, MissingValuesAreTheArchitecturesDefaults) {
  const Json bare = {{"architectures", {"LlavaForConditionalGeneration"}}};
  const models::ModelPlan plan = plan_of(bare);
  EXPECT_EQ(plan.vocab_size, 32000);
  EXPECT_EQ(plan.manifest().tasks[0].second.inputs.size(), 2u);
  Json spelled = bare;
  spelled["text_config"] = Json::object();
  spelled["vision_config"] = {{"image_size", 336}, {"patch_size", 14}};
  EXPECT_EQ(plan_of(spelled).config_literal, plan.config_literal);
}

// tensors of llama_tiny with another output head, or none.
std::vector<TestTensor> llama_tensors(const std::string& head) {
  const Checkpoint checkpoint = open_checkpoint(kLlama);
  std::vector<TestTensor> out;
  std::string table;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::span<const std::byte> bytes = checkpoint.bytes(tensor);
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (tensor.name == "model.embed_tokens.weight") table = text;
    if (tensor.name == "lm_head.weight") continue;
    out.push_back({tensor.name, tensor.dtype_text, tensor.shape, std::move(text)});
  }
  if (head == "equal") out.push_back({"lm_head.weight", "BF16", {320, 64}, table});
  if (head == "other") out.push_back(bf16_tensor("lm_head.weight", {320, 64}));
  return out;
}

struct Converted {
  std::string error;
  std::vector<std::string> notes;  // and what was skipped
  bool stores_head = false;
};

Converted converted(const fs::path& checkpoint, const fs::path& output) {
  Converted out;
  out.error = error_of([&] {
    const ConvertSummary summary = convert(
        {.checkpoint = checkpoint, .output = output, .quantization = &models::find_quantization("q0f16")});
    out.notes = summary.notes;
    for (const SkippedTensors& skipped : summary.skipped)
      out.notes.push_back(skipped.name + ": " + skipped.reason);
    const package::Package package = package::Package::open(output);
    out.stores_head = package.tensors.find("lm_head.weight") != nullptr;
    // What was decided is in the package, so that compilation decides the same.
    EXPECT_EQ(plan_of(package.chat_config.model_config).manifest(), *package.manifest);
  });
  return out;
}

Converted convert_llama(const std::string& head, std::optional<bool> tied) {
  const TempDir dir;
  const fs::path checkpoint = dir / "checkpoint";
  fs::create_directories(checkpoint);
  Json config = read_json(kLlama / "config.json");
  config.erase("tie_word_embeddings");
  if (tied) config["tie_word_embeddings"] = *tied;
  write_text(checkpoint / "config.json", config.dump());
  fs::copy_file(kLlama / "tokenizer.json", checkpoint / "tokenizer.json");
  write_text(checkpoint / "model.safetensors", safetensors_text(llama_tensors(head)));
  return converted(checkpoint, dir / "package");
}

bool has_note(const Converted& converted, const std::string& part) {
  return std::any_of(converted.notes.begin(), converted.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST(OutputHead, OfItsOwn) {
  for (const std::optional<bool> tied : {std::optional<bool>(false), std::optional<bool>()}) {
    const Converted other = convert_llama("other", tied);
    EXPECT_EQ(other.error, "");
    EXPECT_TRUE(other.stores_head);
    EXPECT_FALSE(has_note(other, "lm_head"));
    const Converted equal = convert_llama("equal", tied);
    EXPECT_TRUE(equal.stores_head);
  }
}

TEST(OutputHead, MissingThoughNotTied) {
  for (const std::optional<bool> tied : {std::optional<bool>(false), std::optional<bool>()}) {
    const Converted none = convert_llama("none", tied);
    EXPECT_EQ(none.error, "");
    EXPECT_FALSE(none.stores_head);
    EXPECT_TRUE(
        has_note(none, "lm_head.weight is not in the checkpoint: the embedding table is used for both"));
  }
}

TEST(OutputHead, Tied) {
  EXPECT_FALSE(convert_llama("none", true).stores_head);
  const Converted equal = convert_llama("equal", true);
  EXPECT_EQ(equal.error, "");
  EXPECT_FALSE(equal.stores_head);
  EXPECT_TRUE(has_note(equal, "it equals the embedding table, which is used for both"));
  const Converted other = convert_llama("other", true);
  EXPECT_NE(other.error.find("the output head differs from the embedding table"), std::string::npos)
      << other.error;
}

// Families whose output head is always the table: the tensors decide whether a configuration that says
// otherwise is right.
class AlwaysTied : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  // `head`: "none", "equal", "other".
  Converted convert_with(const std::string& head) {
    const TempDir dir;
    const auto& [example, in_text] = GetParam();
    fs::copy(kExamples / example, dir / "checkpoint", fs::copy_options::recursive);
    Json config = read_json(dir / "checkpoint/config.json");
    (in_text ? config["text_config"] : config)["tie_word_embeddings"] = false;
    write_text(dir / "checkpoint/config.json", config.dump());
    std::vector<TestTensor> tensors = tensors_of(kExamples / example);
    const auto table = std::find_if(tensors.begin(), tensors.end(), [](const TestTensor& tensor) {
      return tensor.name.ends_with(".embed_tokens.weight");
    });
    TestTensor copy = *table;
    copy.name = "lm_head.weight";
    if (head == "other") copy.bytes[0] ^= 1;
    if (head != "none") tensors.push_back(copy);
    for (const auto& entry : fs::directory_iterator(dir / "checkpoint"))
      if (entry.path().filename().string().starts_with("model")) fs::remove(entry.path());
    write_text(dir / "checkpoint/model.safetensors", safetensors_text(tensors));
    return converted(dir / "checkpoint", dir / "package");
  }
};

TEST_P(AlwaysTied, AConfigurationThatSaysOtherwiseIsComparedWithTheTensors) {
  const Converted none = convert_with("none");
  EXPECT_EQ(none.error, "");
  EXPECT_TRUE(
      has_note(none, "lm_head.weight is not in the checkpoint: the embedding table is used for both"));
  const Converted equal = convert_with("equal");
  EXPECT_EQ(equal.error, "");
  EXPECT_TRUE(has_note(equal, "lm_head.weight: it equals the embedding table, which is used for both"));
  const Converted other = convert_with("other");
  EXPECT_NE(other.error.find("lm_head.weight: the output head differs from the embedding table"),
            std::string::npos)
      << other.error;
  EXPECT_NE(other.error.find("have no output head of their own"), std::string::npos) << other.error;
}

INSTANTIATE_TEST_SUITE_P(Families, AlwaysTied,
                         ::testing::Combine(::testing::Values("gemma3-tiny-shapes", "gemma4-tiny-speech"),
                                            ::testing::Bool()));

TEST(OutputHead, OfAlwaysTiedFamiliesHasATruthValue) {
  for (const char* example : {"gemma3-tiny-shapes", "gemma4-tiny-speech"}) {
    for (const char* part : {"", "text_config"}) {
      Json config = read_json(kExamples / example / "config.json");
      (*part ? config[part] : config)["tie_word_embeddings"] = "no";
      const std::string field = std::string(part) + (*part ? "." : "") + "tie_word_embeddings";
      EXPECT_NE(error_of([&] { plan_of(config); }).find("config.json: " + field + ": not a boolean"),
                std::string::npos)
          << example << " " << field;
    }
  }
}

// Rows of the table behind the tokenizer's tokens are kept and never sampled: active_vocab_size says so.
TEST(Vocabulary, PaddedRowsAreNotTokens) {
  const TempDir dir;
  convert({.checkpoint = kLlama, .output = dir / "p", .quantization = &models::find_quantization("q0f16")});
  const package::ChatConfig config = package::read_chat_config(dir / "p");
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.active_vocab_size, 314);
}

// preprocessor_config.json against what the package computes.
std::string preprocessor_error(const char* example, const std::function<void(Json&)>& edit,
                               std::vector<std::string>* notes = nullptr) {
  const TempDir dir;
  const fs::path folder = kExamples / example;
  Json document = read_json(folder / "preprocessor_config.json");
  edit(document);
  if (!document.is_null()) write_text(dir / "preprocessor_config.json", document.dump());
  std::vector<std::string> unused;
  return error_of(
      [&] { check_preprocessor(plan_of(folder), dir.path(), notes != nullptr ? *notes : unused); });
}

TEST(Preprocessor, OfTheExamplesFits) {
  for (const char* example : {"llava-tiny-shapes", "gemma3-tiny-shapes"})
    EXPECT_EQ(preprocessor_error(example, [](Json&) {}), "") << example;
}

TEST(Preprocessor, EveryDifferenceIsRefusedWithBothValues) {
  const auto llava = [](const char* key, Json value) {
    return preprocessor_error("llava-tiny-shapes", [&](Json& document) { document[key] = std::move(value); });
  };
  const auto gemma = [](const char* key, Json value) {
    return preprocessor_error("gemma3-tiny-shapes",
                              [&](Json& document) { document[key] = std::move(value); });
  };
  const auto expect = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  };
  expect(llava("image_mean", {0.5, 0.5, 0.5}), {"image_mean", "0.48145467", "[0.5,0.5,0.5]"});
  expect(llava("image_std", {1, 1}), {"image_std", "[1,1]"});
  expect(llava("image_mean", "x"), {"image_mean"});
  expect(llava("resample", 2), {"resample", "3 (bicubic)", "2 (bilinear)"});
  expect(llava("size", {{"shortest_edge", 64}}), {"size", "shortest_edge 56", "64"});
  expect(llava("size", {{"height", 56}, {"width", 56}}), {"size", "shortest_edge 56"});
  expect(llava("crop_size", 64), {"crop_size", "56 × 56", "64"});
  expect(llava("do_center_crop", false), {"do_center_crop", "true", "false"});
  expect(llava("rescale_factor", 1.0), {"rescale_factor", "1 / 255", "1.0"});
  expect(gemma("size", {{"height", 896}, {"width", 112}}), {"size", "112 × 112", "896"});
  expect(gemma("resample", 3), {"resample", "2 (bilinear)", "3 (bicubic)"});
  expect(gemma("do_normalize", false), {"do_normalize"});
  expect(gemma("do_pan_and_scan", true), {"do_pan_and_scan"});
  // All at once.
  const std::string both = preprocessor_error("llava-tiny-shapes", [](Json& document) {
    document["resample"] = 1;
    document["image_std"] = 3;
  });
  expect(both, {"resample", "Lanczos", "image_std"});
}

TEST(Preprocessor, OtherSpellingsAreTheSame) {
  EXPECT_EQ(preprocessor_error("llava-tiny-shapes",
                               [](Json& document) {
                                 document["size"] = 56;
                                 document["crop_size"] = 56;
                                 document.erase("do_center_crop");
                                 document["do_pan_and_scan"] = nullptr;
                               }),
            "");
  std::vector<std::string> notes;
  EXPECT_EQ(preprocessor_error(
                "llava-tiny-shapes", [](Json& document) { document = nullptr; }, &notes),
            "");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(preprocessor_error("llava-tiny-shapes", [](Json& document) { document = Json::array(); }), "");
}

}  // namespace
}  // namespace dovetail::convert
