#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace dovetail {
namespace {
namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / ("dovetail-file-test 模型 é " + std::to_string(::getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  int entries() const {
    return static_cast<int>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator{}));
  }
  fs::path dir_;
};

TEST_F(FileTest, AtomicFileAppearsOnlyOnCommit) {
  {
    AtomicFile file(dir_ / "a");
    file.write("half");
    EXPECT_FALSE(fs::exists(dir_ / "a"));
  }
  EXPECT_EQ(entries(), 0);
  write_file_atomic(dir_ / "a", "whole");
  EXPECT_EQ(read_file(dir_ / "a"), "whole");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, AtomicFileFollowsLinks) {
  write_file_atomic(dir_ / "target", "old");
  fs::create_symlink("target", dir_ / "link");
  write_file_atomic(dir_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_file(dir_ / "target"), "new");
  fs::remove(dir_ / "target");
  EXPECT_THROW(AtomicFile(dir_ / "link"), Error);
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
}

TEST_F(FileTest, OutputsTakeThePlaceOfFilesOnly) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", dir_ / "null");
  EXPECT_THROW(AtomicFile(dir_ / "pipe"), Error);
  EXPECT_THROW(AtomicFile(dir_ / "null"), Error);
  EXPECT_THROW(AtomicFile{dir_}, Error);
  EXPECT_THROW(AtomicFile(""), Error);
  EXPECT_THROW(AtomicDirectory(""), Error);
  EXPECT_EQ(entries(), 2);
  EXPECT_TRUE(fs::is_fifo(dir_ / "pipe"));
}

TEST_F(FileTest, AtomicDirectoryAppearsOnlyOnCommit) {
  {
    AtomicDirectory out(dir_ / "pkg");
    write_file_atomic(out.staging() / "x", "1");
  }
  EXPECT_EQ(entries(), 0);
  AtomicDirectory out(dir_ / "pkg/");
  write_file_atomic(out.staging() / "x", "1");
  out.commit();
  EXPECT_EQ(read_file(dir_ / "pkg" / "x"), "1");
  EXPECT_EQ(entries(), 1);
  AtomicDirectory first(dir_ / "race"), second(dir_ / "race");
  write_file_atomic(first.staging() / "x", "1");
  write_file_atomic(second.staging() / "x", "2");
  first.commit();
  try {
    second.commit();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problems().front().message, "output exists and is not an empty directory");
  }
  EXPECT_EQ(read_file(dir_ / "race" / "x"), "1");
  EXPECT_THROW(AtomicDirectory(dir_ / "pkg"), Error);
}

TEST_F(FileTest, AtomicDirectoryReplacesEmptyFoldersThatCanBeReplaced) {
  fs::create_directory(dir_ / "empty");
  fs::create_directory_symlink("empty", dir_ / "link");
  AtomicDirectory out(dir_ / "link");
  write_file_atomic(out.staging() / "x", "1");
  out.commit();
  EXPECT_EQ(read_file(dir_ / "empty" / "x"), "1");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  const auto refusal = [](const fs::path& path) {
    try {
      AtomicDirectory{path};
    } catch (const Error& error) {
      return error.problems().front().message;
    }
    return std::string();
  };
  fs::create_symlink("nothing", dir_ / "lost");
  EXPECT_EQ(refusal(dir_ / "lost"), "is a symbolic link to nothing");
  fs::create_directory(dir_ / "here");
  const fs::path before = fs::current_path();
  fs::current_path(dir_ / "here");
  EXPECT_EQ(refusal("."), "output is the current folder");
  EXPECT_EQ(refusal(dir_ / "here"), "output is the current folder");
  fs::current_path(before);
  EXPECT_EQ(refusal(dir_ / "here"), "");
  EXPECT_EQ(entries(), 4);
}

TEST_F(FileTest, FullDiskIsAnErrorWithAHint) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  fs::create_symlink("/dev/full", dir_ / "full");
  EXPECT_THROW(read_file(dir_ / "full"), Error);
}

TEST_F(FileTest, MissingDirectoryAndLimit) {
  EXPECT_THROW(read_file(dir_ / "none"), Error);
  EXPECT_THROW(read_file(dir_), Error);
  write_file_atomic(dir_ / "b", "12345");
  EXPECT_THROW(read_file(dir_ / "b", 4), Error);
  EXPECT_EQ(MappedFile::open(dir_ / "b")->bytes().size(), 5u);
  write_file_atomic(dir_ / "empty", "");
  EXPECT_TRUE(MappedFile::open(dir_ / "empty")->bytes().empty());
}

}  // namespace
}  // namespace dovetail
