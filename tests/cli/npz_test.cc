#include "cli/npz.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/npz.h"
#include "temp_dir.h"

namespace dovetail::cli {
namespace {

TEST(NpzFile, IsReadBack) {
  const testing::TempDir dir;
  const std::vector<float> floats = {1.5f, -2.0f, 0.0f, 4.0f, 5.0f, 6.0f};
  const std::vector<int64_t> integers = {int64_t{1} << 40, -3};
  NpzFile file;
  file.add("logits", std::span(floats), {2, 3});
  file.add("ids", std::span(integers), {2});
  file.write(dir / "out.npz");
  const auto arrays = test::read_npz(dir / "out.npz");
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays.at("logits").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(arrays.at("logits").values, floats);
  EXPECT_EQ(arrays.at("ids").shape, std::vector<int64_t>{2});
  EXPECT_EQ(arrays.at("ids").integers, integers);
}

TEST(NpzFile, EqualArraysMakeEqualFiles) {
  const testing::TempDir dir;
  const std::vector<float> values = {1, 2};
  for (const char* name : {"a.npz", "b.npz"}) {
    NpzFile file;
    file.add("x", std::span(values), {2});
    file.write(dir / name);
  }
  EXPECT_EQ(testing::read_text(dir / "a.npz"), testing::read_text(dir / "b.npz"));
}

TEST(NpzFile, FoldersThatDoNotExistAreAnError) {
  NpzFile file;
  EXPECT_THROW(file.write("/nonexistent-folder/out.npz"), Error);
}

}  // namespace
}  // namespace dovetail::cli
