#include "cli/typed_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace dovetail::cli {
namespace {

class TypedPath : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* home = std::getenv("HOME")) home_ = home;
    folder_ = std::filesystem::path(::testing::TempDir()) / "typed_path_test";
    std::filesystem::create_directories(folder_);
    ::setenv("HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    home_ ? ::setenv("HOME", home_->c_str(), 1) : ::unsetenv("HOME");
  }
  std::string file(const std::string& name) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << "x";
    return path;
  }

  std::filesystem::path folder_;
  std::optional<std::string> home_;
};

TEST_F(TypedPath, AsAShellReadsIt) {
  EXPECT_EQ(typed_path(" plain.png \t"), "plain.png");
  EXPECT_EQ(typed_path("two words.png"), "two words.png");
  EXPECT_EQ(typed_path(R"(two\ words.png )"), "two words.png");
  EXPECT_EQ(typed_path(R"('two words.png' )"), "two words.png");
  EXPECT_EQ(typed_path(R"('it'\''s.png')"), "it's.png");
  EXPECT_EQ(typed_path(R"("it's.png")"), "it's.png");
  EXPECT_EQ(typed_path(R"(it\'s\ \"it\".png)"), R"(it's "it".png)");
  EXPECT_EQ(typed_path(R"("a \"b\" \$c \d".png)"), R"(a "b" $c \d.png)");
  EXPECT_EQ(typed_path(R"('a\b.png')"), R"(a\b.png)");
  EXPECT_EQ(typed_path(R"(name\ )"), "name ");
  EXPECT_EQ(typed_path(R"("name "	)"), "name ");
  EXPECT_EQ(typed_path("  "), "");
  EXPECT_EQ(typed_path("''"), "");
}

TEST_F(TypedPath, WhatIsNotWrittenForAShellStays) {
  EXPECT_EQ(typed_path("it's.png "), "it's.png");
  EXPECT_EQ(typed_path("\"open.png"), "\"open.png");
  EXPECT_EQ(typed_path("end\\"), "end\\");
}

TEST_F(TypedPath, AFileOfTheTypedNameWins) {
  for (const char* name : {"'both'", "\"both\"", "back\\slash", "it'\\''s", "behind ", "a\\ b"})
    EXPECT_EQ(typed_path(file(name)), (folder_ / name).string());
  EXPECT_EQ(typed_path(file("one") + " "), (folder_ / "one").string());
}

TEST_F(TypedPath, TheHomeFolder) {
  EXPECT_EQ(typed_path("~/nowhere.png"), (folder_ / "nowhere.png").string());
  file("back\\slash");
  EXPECT_EQ(typed_path("~/back\\slash"), (folder_ / "back\\slash").string());
  EXPECT_EQ(typed_path("~/two\\ words"), (folder_ / "two words").string());
  EXPECT_EQ(typed_path("~other/x"), "~other/x");
  ::setenv("HOME", "", 1);
  EXPECT_EQ(typed_path("~/x"), "~/x");
  ::unsetenv("HOME");
  EXPECT_EQ(typed_path("~/x"), "~/x");
}

}  // namespace
}  // namespace dovetail::cli
