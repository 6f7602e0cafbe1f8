#include "package/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "contract/canonical.h"
#include "package/content_hashes.h"
#include "package/package.h"
#include "package/paths.h"
#include "package/tokenizer.h"
#include "package/values.h"

namespace dovetail::package {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBlock = size_t{4} << 20;
constexpr int64_t kMaxListBytes = int64_t{64} << 20;
constexpr const char* kFetchAgain = "fetch this file again, or convert the checkpoint again";

class Verifier {
 public:
  Verifier(const fs::path& dir, bool deep, const std::atomic<bool>* cancel)
      : dir_(dir), deep_(deep), cancel_(cancel) {}

  VerifyReport run() {
    parts_ = read_package_parts(dir_, problems_);
    collect_files();
    check_hash_list();
    check_prefix();
    if (parts_.tensors) {
      report_.tensors = static_cast<int64_t>(parts_.tensors->tensors().size());
      check_schema();
      check_adapters();
    }
    if (deep_) check_bytes();
    count_files();
    report_.problems = problems_.take();
    return std::move(report_);
  }

 private:
  // Files that belong to the package, each once.
  void collect_files() {
    const auto add = [&](std::string_view name) {
      if (!bad_package_file(dir_, std::string(name))) files_.insert(std::string(name));
    };
    add(kChatConfigFile);
    add(contract::kManifestFile);
    tensor_cache_file_ = tensor_cache_file(dir_);
    add(tensor_cache_file_);
    if (parts_.tensors) {
      for (const Shard& shard : parts_.tensors->shards()) add(shard.file);
    }
    if (parts_.chat_config) {
      for (const std::string& file : parts_.chat_config->tokenizer_files) add(file);
    }
    if (!parts_.manifest && !reported(std::string(contract::kManifestFile))) {
      report_.notes.push_back("no " + std::string(contract::kManifestFile) +
                              ": the package takes text only, and its weights can't be compared with a "
                              "parameter_schema_id");
    }
  }

  void check_hash_list() {
    const std::string name(kHashesFile);
    std::error_code ec;
    if (!fs::exists(fs::symlink_status(dir_ / name, ec))) {
      report_.notes.push_back("no " + name + ": only the shards have a hash, in " +
                              std::string(tensor_cache_file_));
      return;
    }
    try {
      if (std::optional<Problem> bad = bad_package_file(dir_, name))
        throw Error(ErrorCode::kMalformed, std::move(*bad));
      for (FileHash& hash : parse_content_hashes(read_file(dir_ / name, kMaxListBytes)))
        hashes_.emplace(hash.file, std::move(hash));
    } catch (const Error& error) {
      problems_.add(error.problems());
      return;
    }
    report_.listed = true;
    for (const std::string& file : files_) {
      if (!hashes_.contains(file)) problems_.add({.message = "is not listed in " + name, .source = file});
    }
    for (const auto& [file, hash] : hashes_) {
      if (reported(file)) continue;
      if (std::optional<Problem> bad = bad_package_file(dir_, file)) {
        problems_.add(std::move(*bad));
        continue;
      }
      files_.insert(file);
      const int64_t size = static_cast<int64_t>(fs::file_size(dir_ / file, ec));
      if (ec || size == hash.bytes) continue;
      problems_.add({.message = "file has another size than " + name + " says",
                     .source = file,
                     .expected = std::to_string(hash.bytes) + " bytes",
                     .actual = std::to_string(size),
                     .hint = kFetchAgain});
    }
  }

  // A problem of the file is already known: more about it would only repeat that.
  bool reported(const std::string& file) const {
    const std::vector<Problem>& kept = problems_.kept();
    return std::any_of(kept.begin(), kept.end(), [&](const Problem& problem) {
      return problem.source == file || problem.source == (dir_ / file).string();
    });
  }

  void check_schema() {
    // Without the chat config the sizes of named dimensions are unknown.
    if (!parts_.manifest || !parts_.chat_config) return;
    std::vector<contract::ParameterRecord> records, named;
    for (const StoredTensor& tensor : parts_.tensors->tensors()) {
      records.push_back(
          {tensor.name, {tensor.shape.begin(), tensor.shape.end()}, std::string(dtype_name(tensor.dtype))});
      named.push_back(records.back());
      // MLC's models name the dimension of their vocabulary tables. Elsewhere the same number is a number.
      const auto size = std::find(tensor.shape.begin(), tensor.shape.end(), parts_.chat_config->vocab_size);
      const bool table = tensor.name.find("embed_tokens.") != std::string::npos ||
                         tensor.name.find("lm_head.") != std::string::npos;
      if (table && size != tensor.shape.end()) {
        named.back().shape[static_cast<size_t>(size - tensor.shape.begin())] = "vocab_size";
      }
    }
    const std::string& expected = parts_.manifest->parameter_schema_id;
    const std::string actual = contract::parameter_schema_id(records);
    if (actual == expected || contract::parameter_schema_id(named) == expected) return;
    problems_.add(
        {.message = "the stored tensors are not those that the manifest describes (names, shapes or dtypes)",
         .source = std::string(contract::kManifestFile),
         .field = "weights.parameter_schema_id",
         .expected = expected,
         .actual = actual + " of " + std::string(kTensorCacheFile),
         .hint = "the two files come from different conversions; convert the checkpoint again"});
  }

  // Every conversation begins with these.
  void check_prefix() {
    if (!parts_.chat_config) return;
    for (const int64_t id : parts_.chat_config->conv_template.system_prefix_token_ids) {
      if (id < parts_.chat_config->vocab_size) continue;
      report_.notes.push_back("conv_template.system_prefix_token_ids: the vocabulary of " +
                              std::to_string(parts_.chat_config->vocab_size) + " has no token " +
                              std::to_string(id) + ", so that no conversation can begin");
    }
  }

  // A package that claims an input must hold the weights of its adapter.
  void check_adapters() {
    if (!parts_.manifest) return;
    const auto has = [&](std::string_view part) {
      const auto& tensors = parts_.tensors->tensors();
      return std::any_of(tensors.begin(), tensors.end(), [&](const StoredTensor& tensor) {
        return tensor.name.find(part) != std::string::npos;
      });
    };
    for (const auto& [task_name, task] : parts_.manifest->tasks) {
      for (const auto& [name, input] : task.inputs) {
        const bool audio = std::holds_alternative<contract::AudioDecode>(input.processor);
        const bool image = std::holds_alternative<contract::ImageDecode>(input.processor);
        if ((audio && !has("audio")) || (image && !has("vision") && !has("image"))) {
          problems_.add({.message = "the package takes this input but has no weights of its adapter",
                         .source = std::string(contract::kManifestFile),
                         .field = "tasks[\"" + printable(task_name) + "\"].inputs." + printable(name),
                         .hint = "convert the checkpoint again"});
        }
      }
    }
  }

  void check_bytes() {
    std::vector<std::string> files;
    std::copy_if(files_.begin(), files_.end(), std::back_inserter(files),
                 [&](const std::string& file) { return !reported(file); });
    int64_t total = 0;
    std::error_code ec;
    for (const std::string& file : files) total += static_cast<int64_t>(fs::file_size(dir_ / file, ec));
    Progress progress("Verifying", total);
    ThreadPool pool;
    pool.run(static_cast<int64_t>(files.size()), [&](int64_t task, int) {
      try {
        check_file(files[static_cast<size_t>(task)], progress);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kCancelled) throw;
        std::lock_guard lock(mutex_);
        problems_.add(error.problems());
      }
    });
    if (files_.contains("tokenizer.json")) {
      try {
        Tokenizer::from_file(dir_ / "tokenizer.json");
      } catch (const Error& error) {
        problems_.add(error.problems());
      }
    }
  }

  const Shard* find_shard(const std::string& file) const {
    if (!parts_.tensors) return nullptr;
    const auto& shards = parts_.tensors->shards();
    const auto it =
        std::find_if(shards.begin(), shards.end(), [&](const Shard& shard) { return shard.file == file; });
    return it == shards.end() ? nullptr : &*it;
  }

  void check_file(const std::string& file, Progress& progress) {
    const Shard* shard = find_shard(file);
    const auto listed = hashes_.find(file);
    const bool with_md5 = shard != nullptr && !shard->md5.empty();
    const std::shared_ptr<const MappedFile> mapped = MappedFile::open(dir_ / file);
    const std::span<const std::byte> bytes = mapped->bytes();
    Hasher sha256(Hasher::Kind::kSha256), md5(Hasher::Kind::kMd5);
    for (size_t at = 0; at < bytes.size(); at += kBlock) {
      if (cancel_ != nullptr && *cancel_) throw Error(ErrorCode::kCancelled, "verification cancelled");
      const std::span<const std::byte> block = bytes.subspan(at, std::min(kBlock, bytes.size() - at));
      if (listed != hashes_.end()) sha256.update(block);
      if (with_md5) md5.update(block);
      progress.advance(static_cast<int64_t>(block.size()));
    }
    std::vector<Problem> found;
    const auto differs = [&](const char* what, const std::string_view document, const std::string& expected,
                             const std::string& actual) {
      if (expected == actual) return;
      found.push_back({.message = std::string("the content has changed: ") + what + " is not the one in " +
                                  std::string(document),
                       .source = file,
                       .expected = expected,
                       .actual = actual,
                       .hint = kFetchAgain});
    };
    if (listed != hashes_.end()) differs("SHA-256", kHashesFile, listed->second.sha256, sha256.hex());
    if (with_md5) differs("MD5", tensor_cache_file_, shard->md5, md5.hex());
    if (shard != nullptr) scan_values(*shard, found);
    mapped->release(0, bytes.size());
    std::lock_guard lock(mutex_);
    problems_.add(found);
    report_.hashed_bytes += static_cast<int64_t>(bytes.size());
  }

  void scan_values(const Shard& shard, std::vector<Problem>& found) const {
    for (const size_t index : shard.tensors) {
      const StoredTensor& tensor = parts_.tensors->tensors()[index];
      const DType type = tensor.stored_dtype();
      if (type != DType::kFloat32 && type != DType::kFloat16 && type != DType::kBFloat16) continue;
      const std::byte* values = parts_.tensors->bytes(tensor).data();
      const int64_t bad = first_non_finite(type, values, tensor.elements());
      if (bad < 0) continue;
      const bool nan = std::isnan(load_value(type, values, bad));
      if (!nan && tensor.shape.empty()) continue;  // a limit that does not limit
      found.push_back(
          {.message = std::string("value ") + std::to_string(bad) + " is " + (nan ? "NaN" : "infinite"),
           .source = shard.file,
           .field = printable(tensor.name),
           .hint = "convert the checkpoint again; if that does not help, the checkpoint itself is damaged"});
    }
    parts_.tensors->shards()[shard_index(shard)].mapping->release(0, static_cast<size_t>(shard.bytes));
  }

  size_t shard_index(const Shard& shard) const {
    return static_cast<size_t>(&shard - parts_.tensors->shards().data());
  }

  void count_files() {
    std::error_code ec;
    for (const std::string& file : files_) {
      ++report_.files;
      const std::uintmax_t size = fs::file_size(dir_ / file, ec);
      if (!ec) report_.bytes += static_cast<int64_t>(size);
    }
  }

  fs::path dir_;
  bool deep_;
  const std::atomic<bool>* cancel_;
  PackageParts parts_;
  std::string_view tensor_cache_file_;
  std::set<std::string> files_;
  std::map<std::string, FileHash> hashes_;
  ProblemList problems_;
  VerifyReport report_;
  std::mutex mutex_;
};

}  // namespace

VerifyReport verify_package(const fs::path& dir, bool deep, const std::atomic<bool>* cancel) {
  return Verifier(dir, deep, cancel).run();
}

}  // namespace dovetail::package
