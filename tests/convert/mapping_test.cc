#include "convert/mapping.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "checkpoint_fixture.h"

namespace dovetail::convert {
namespace {
using namespace dovetail::testing;

class MappingTest : public ::testing::Test {
 protected:
  Mapping map(const models::ModelPlan& plan, const std::vector<TestTensor>& tensors) {
    write_text(temp_ / "model.safetensors", safetensors_text(tensors));
    return map_weights(plan, open_checkpoint(temp_.path()));
  }
  std::string error(const models::ModelPlan& plan, const std::vector<TestTensor>& tensors) {
    try {
      map(plan, tensors);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kMismatch);
      problems_ = e.problems().size();
      return e.what();
    }
    return "accepted";
  }

  TempDir temp_;
  size_t problems_ = 0;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(MappingTest, ListsMissingWrongAndExtraTensorsAtOnce) {
  const models::ModelPlan plan =
      make_plan("q0f16", {weight_from("model.norm.weight", {64}, {"model.norm.weight"}),
                          weight_from("model.up.weight", {8, 64}, {"model.up.weight"}),
                          weight_from("a.very.different.one", {64, 8}, {"a.very.different.one"})});
  const std::string message =
      error(plan, {bf16_tensor("model.norms.weight", {64}), bf16_tensor("model.up.weight", {9, 64}),
                   bf16_tensor("something.else.altogether", {2})});
  EXPECT_EQ(problems_, 5u) << message;
  EXPECT_HAS(message, "model.norm.weight: tensor is missing; is it \"model.norms.weight\"?");
  EXPECT_HAS(message, "a.very.different.one: tensor is missing\n");
  EXPECT_HAS(message, "model.up.weight: wrong shape (expected [8, 64], got [9, 64])");
  EXPECT_HAS(message,
             "model.norms.weight: the model has no such weight; the nearest one is \"model.norm.weight\"");
  EXPECT_HAS(message, "something.else.altogether: the model has no such weight (got BF16 [2])");
}

TEST_F(MappingTest, StacksTensorsAndChecksTheirSum) {
  const models::ModelPlan plan = make_plan("q0f16", {weight_from("qkv.weight", {12, 4}, {"q", "k", "v"})});
  const Mapping mapping =
      map(plan, {bf16_tensor("v", {2, 4}), bf16_tensor("q", {8, 4}), bf16_tensor("k", {2, 4})});
  ASSERT_EQ(mapping.weights[0].parts.size(), 3u);
  EXPECT_EQ(mapping.weights[0].parts[0].rows, 8);
  EXPECT_HAS(error(plan, {bf16_tensor("v", {2, 4}), bf16_tensor("q", {8, 4}), bf16_tensor("k", {3, 4})}),
             "wrong shape, together with k, v (expected [12, 4] in all, got [8, 4] + [3, 4] + [2, 4])");
}

TEST_F(MappingTest, ColumnSlicesShareATensor) {
  std::vector<models::Weight> weights;
  for (int i = 0; i < 3; ++i) {
    models::Weight weight = weight_from("table." + std::to_string(i) + ".weight", {5, 4}, {"packed"});
    weight.source.column_begin = 4 * i;
    weight.source.columns = 12;
    weights.push_back(weight);
  }
  const models::ModelPlan plan = make_plan("q0f16", weights);
  const Mapping mapping = map(plan, {bf16_tensor("packed", {5, 12})});
  EXPECT_EQ(mapping.weights[2].column, 8);
  EXPECT_EQ(mapping.weights[2].stride, 12);
  const std::string message = error(plan, {bf16_tensor("packed", {5, 16})});
  EXPECT_EQ(problems_, 1u) << message;  // once, not once per slice
  EXPECT_HAS(message, "expected [5, 12], got [5, 16]");
}

TEST_F(MappingTest, DimensionsOfOneDoNotMatter) {
  const models::ModelPlan plan =
      make_plan("q0f16", {weight_from("a", {}, {"a"}), weight_from("b", {4, 3}, {"b"})});
  EXPECT_EQ(map(plan, {bf16_tensor("a", {1}), bf16_tensor("b", {4, 1, 3})}).weights.size(), 2u);
  EXPECT_HAS(error(plan, {bf16_tensor("a", {2}), bf16_tensor("b", {3, 4})}), "wrong shape");
}

TEST_F(MappingTest, RefusesOtherTypesByName) {
  const models::ModelPlan plan = make_plan("q0f16", {weight_from("a", {4}, {"a"})});
  EXPECT_HAS(error(plan, {{"a", "F8_E4M3", {4}, "1234"}}), "expected BF16, F16 or F32, got F8_E4M3");
  EXPECT_HAS(error(plan, {{"a", "F4_NEW", {4}, "12"}}), "got F4_NEW");
}

TEST_F(MappingTest, CountsWhatIsSkipped) {
  models::ModelPlan plan = make_plan("q0f16", {weight_from("a", {4}, {"a"})});
  plan.skipped = {{"vision.", "not used"}, {"other.", "not used either"}};
  const Mapping mapping = map(plan, {bf16_tensor("a", {4}),
                                     bf16_tensor("vision.x", {4}),
                                     bf16_tensor("vision.y", {6}),
                                     {"vision.ids", "I64", {1}, "12345678"}});
  ASSERT_EQ(mapping.skipped.size(), 1u);
  EXPECT_EQ(mapping.skipped[0].tensors, 3);
  EXPECT_EQ(mapping.skipped[0].bytes, 28);
}

TEST_F(MappingTest, RefusesTwoNamesOfOneWeight) {
  models::ModelPlan plan = make_plan("q0f16", {weight_from("a", {4}, {"a"})});
  plan.canonical_name = [](const std::string& name) {
    return name.starts_with("model.") ? name.substr(6) : name;
  };
  EXPECT_EQ(map(plan, {bf16_tensor("model.a", {4})}).weights.size(), 1u);
  EXPECT_HAS(error(plan, {bf16_tensor("model.a", {4}), bf16_tensor("a", {4})}),
             "means the same weight as \"model.a\"");
}

// The four cases of a tied head, and the one where both exist and differ.
TEST_F(MappingTest, TiedHeads) {
  const models::Weight table =
      weight_from("model.embed_tokens.weight", {320, 4}, {"model.embed_tokens.weight"});
  const models::Weight head = weight_from("lm_head.weight", {320, 4}, {"lm_head.weight"});
  const models::ModelPlan tied = make_plan("q0f16", {table}), untied = make_plan("q0f16", {table, head});
  const TestTensor embedding = bf16_tensor("model.embed_tokens.weight", {320, 4});
  TestTensor same = embedding;
  same.name = "lm_head.weight";
  const TestTensor other = bf16_tensor("lm_head.weight", {320, 4}, 0.25f);

  EXPECT_EQ(map(tied, {embedding}).weights.size(), 1u);
  EXPECT_EQ(map(untied, {embedding, other}).weights.size(), 2u);
  EXPECT_HAS(error(untied, {embedding}), "lm_head.weight: tensor is missing");
  const Mapping mapping = map(tied, {embedding, same});
  ASSERT_EQ(mapping.skipped.size(), 1u);
  EXPECT_HAS(mapping.skipped[0].reason, "equals the embedding table");
  EXPECT_HAS(error(tied, {embedding, other}),
             "differs from the embedding table, which the model uses for both");
  EXPECT_HAS(error(tied, {embedding, other}), "set tie_word_embeddings to false in config.json");
  models::ModelPlan in_part = make_plan("q0f16", {table});
  in_part.model_config["text_config"] = Json::object();
  EXPECT_HAS(error(in_part, {embedding, other}),
             "set text_config.tie_word_embeddings to false in config.json");
}

TEST_F(MappingTest, LimitsAreInOrder) {
  const models::ModelPlan plan =
      make_plan("q0f16", {weight_from("in_min", {}, {"in_min"}), weight_from("in_max", {}, {"in_max"}),
                          weight_from("alone_min", {}, {"alone_min"})});
  const float inf = std::numeric_limits<float>::infinity();
  const auto limits = [&](float low, float high) {
    const auto tensor = [](const char* name, float value) {
      return TestTensor{name, "F32", {}, std::string(reinterpret_cast<const char*>(&value), sizeof value)};
    };
    return error(plan, {tensor("in_min", low), tensor("in_max", high), tensor("alone_min", 3)});
  };
  EXPECT_EQ(limits(-1, 1), "accepted");
  EXPECT_EQ(limits(-inf, inf), "accepted");
  EXPECT_EQ(limits(0, 0), "accepted");
  for (const auto& [low, high] : {std::pair(2.5f, -4.0f), std::pair(inf, 1.0f), std::pair(1.0f, -inf)})
    EXPECT_HAS(limits(low, high), "in_min: the lower limit is above the upper one (expected at most ");
  EXPECT_HAS(limits(2.5f, -4), "expected at most -4, which is in_max, got 2.5)");
}

TEST_F(MappingTest, PaddingRowsOfTheVocabularyAreLeftOut) {
  const models::ModelPlan plan =
      make_plan("q0f16", {weight_from("model.embed_tokens.weight", {320, 4}, {"model.embed_tokens.weight"})});
  const Mapping mapping = map(plan, {bf16_tensor("model.embed_tokens.weight", {384, 4})});
  EXPECT_EQ(mapping.weights[0].parts[0].rows, 320);
  ASSERT_EQ(mapping.notes.size(), 1u);
  EXPECT_HAS(mapping.notes[0], "64 padding rows");
  EXPECT_HAS(error(plan, {bf16_tensor("model.embed_tokens.weight", {319, 4})}),
             "expected [320, 4], got [319, 4]");
  EXPECT_HAS(error(plan, {bf16_tensor("model.embed_tokens.weight", {5000, 4})}),
             "expected [320, 4], got [5000, 4]");
}

}  // namespace
}  // namespace dovetail::convert
