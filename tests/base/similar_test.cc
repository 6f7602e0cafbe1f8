#include "base/similar.h"

#include <gtest/gtest.h>

#include <vector>

namespace dovetail {
namespace {

TEST(Similar, FindsTheNearestName) {
  const std::vector<std::string> names = {"model.norm.weight", "lm_head.weight", "model.layers.0.mlp.weight"};
  EXPECT_EQ(most_similar("model.norms.weight", names), &names[0]);
  EXPECT_EQ(most_similar("lm_heads.weight", names), &names[1]);
  EXPECT_EQ(most_similar("model.layers.0.mlp.weight", names), &names[2]);
  EXPECT_EQ(most_similar("audio_tower.something.else", names), nullptr);
  EXPECT_EQ(most_similar("", names), nullptr);
}

}  // namespace
}  // namespace dovetail
