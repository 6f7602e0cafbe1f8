#include "package/content_hashes.h"

#include <gtest/gtest.h>

#include "../temp_dir.h"
#include "base/error.h"
#include "base/hash.h"

namespace dovetail::package {
namespace {
using dovetail::testing::read_text;
using dovetail::testing::TempDir;
using dovetail::testing::write_text;

TEST(ContentHashes, RoundTrip) {
  TempDir temp;
  write_text(temp / "b", "hello");
  write_text(temp / "a", "");
  write_content_hashes(temp.path(), {hash_file(temp.path(), "b", true), hash_file(temp.path(), "a")});
  const std::vector<FileHash> files = parse_content_hashes(read_text(temp.path() / kHashesFile));
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].file, "a");
  EXPECT_EQ(files[0].bytes, 0);
  EXPECT_EQ(files[1].bytes, 5);
  EXPECT_EQ(files[1].sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
}

TEST(ContentHashes, RefusesBadLists) {
  const std::string hash(64, '0');
  const auto list = [&](const std::string& path, const std::string& bytes, const std::string& sha) {
    return R"({"schema":"dovetail.content-hashes","schema_version":1,"files":[{"path":")" + path +
           R"(","nbytes":)" + bytes + R"(,"sha256":")" + sha + R"("}]})";
  };
  EXPECT_EQ(parse_content_hashes(list("a", "1", hash)).size(), 1u);
  for (const std::string& bad :
       {list("../a", "1", hash), list("/a", "1", hash), list("", "1", hash), list("a", "-1", hash),
        list("a", "1.5", hash), list("a", "1", hash.substr(1)), list("a", "1", std::string(64, 'A')),
        std::string("[]"), std::string("{}"),
        std::string(R"({"schema":"other","schema_version":1,"files":[]})"),
        std::string(R"({"schema":"dovetail.content-hashes","schema_version":2,"files":[]})")}) {
    EXPECT_THROW(parse_content_hashes(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace dovetail::package
