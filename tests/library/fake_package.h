// A small package around the fake library, with an edit for each way to be wrong.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::test {

// Replacements inside the library's bytes, every occurrence; both sides have the same length.
using Edits = std::vector<std::pair<std::string, std::string>>;

// The fake library as it was built.
std::filesystem::path fake_library();

// Writes a copy of the fake library that fits the package of write_fake_package, then edited.
void write_fake_library(const std::filesystem::path& path, const Edits& edits = {});

// manifest, chat config, tensor cache with one shard, tokenizer, and lib/fake.so.
void write_fake_package(const std::filesystem::path& dir, const Edits& edits = {});

// A folder for one test, removed with it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Replaces `from` by `to` in a text file; fails the test when it is not there.
void edit_file(const std::filesystem::path& path, const std::string& from, const std::string& to);

}  // namespace dovetail::test
