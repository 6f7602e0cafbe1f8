#include "package/weight_check.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "package/content_hashes.h"

namespace dovetail::package {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxListBytes = int64_t{64} << 20;

std::map<std::string, std::string> listed_hashes(const fs::path& dir) {
  std::map<std::string, std::string> out;
  std::error_code ec;
  if (!fs::exists(dir / kHashesFile, ec)) return out;
  for (FileHash& hash : parse_content_hashes(read_file(dir / kHashesFile, kMaxListBytes)))
    out.emplace(std::move(hash.file), std::move(hash.sha256));
  return out;
}

}  // namespace

void check_weights(const fs::path& dir, const TensorCache& weights) {
  const std::map<std::string, std::string> listed = listed_hashes(dir);
  const std::vector<Shard>& shards = weights.shards();
  std::vector<Problem> problems;
  std::mutex mutex;
  ThreadPool pool;
  pool.run(static_cast<int64_t>(shards.size()), [&](int64_t task, int) {
    const Shard& shard = shards[static_cast<size_t>(task)];
    const auto sha256 = listed.find(shard.file);
    const bool has_sha256 = sha256 != listed.end();
    const std::string& expected = has_sha256 ? sha256->second : shard.md5;
    if (expected.empty()) return;
    Hasher hasher(has_sha256 ? Hasher::Kind::kSha256 : Hasher::Kind::kMd5);
    hash_mapped(*shard.mapping, {&hasher});
    std::string actual = hasher.hex();
    if (actual == expected) return;
    const std::lock_guard lock(mutex);
    problems.push_back({.message = std::string("the weights have changed: ") +
                                   (has_sha256 ? "SHA-256" : "MD5") + " is not the recorded one",
                        .source = (dir / shard.file).string(),
                        .expected = expected,
                        .actual = std::move(actual),
                        .hint = "fetch this file again, or convert the checkpoint again; 'dovetail verify "
                                "--deep' checks all files"});
  });
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
}

}  // namespace dovetail::package
