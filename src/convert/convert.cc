#include "convert/convert.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "convert/checkpoint.h"
#include "convert/source.h"
#include "convert/weight_stream.h"
#include "package/content_hashes.h"
#include "package/tensor_cache.h"
#include "package/tensor_cache_writer.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

// `folder` is on the disk in question.
void check_space(const fs::path& folder, const fs::path& output, int64_t needed) {
  std::error_code ec;
  const fs::space_info space = fs::space(folder, ec);
  if (ec || space.available == static_cast<std::uintmax_t>(-1) ||
      static_cast<int64_t>(space.available) >= needed)
    return;
  throw Error(ErrorCode::kIo, Problem{.message = "not enough space on the disk of the output folder",
                                      .source = output.string(),
                                      .expected = format_bytes(needed),
                                      .actual = format_bytes(static_cast<int64_t>(space.available)) + " free",
                                      .hint = "free some space, or choose a folder on another disk with -o"});
}

// The folders above the output that a conversion creates: a failed one leaves none of them.
class NewParents {
 public:
  explicit NewParents(const fs::path& output) {
    std::error_code ec;
    fs::path parent = fs::absolute(output, ec).lexically_normal();
    if (!parent.has_filename()) parent = parent.parent_path();
    while ((parent = parent.parent_path()).has_relative_path() && !fs::exists(parent, ec))
      missing_.push_back(parent);
  }
  ~NewParents() {
    std::error_code ec;
    for (const fs::path& parent : missing_) {
      if (!fs::remove(parent, ec)) return;  // somebody else put something there
    }
  }
  NewParents(const NewParents&) = delete;
  NewParents& operator=(const NewParents&) = delete;

  void keep() { missing_.clear(); }

 private:
  std::vector<fs::path> missing_;  // the deepest one first
};

package::FileHash write_tokenizer_file(const TokenizerFile& file, const fs::path& dir) {
  AtomicFile out(dir / file.name);
  if (file.copied_from.empty()) {
    out.write(file.text);
  } else {
    out.write(MappedFile::open(file.copied_from)->bytes());
  }
  out.commit();
  return package::hash_file(dir, file.name);
}

package::FileHash write_document(const fs::path& dir, std::string_view name, const std::string& text) {
  write_file_atomic(dir / name, text);
  return package::hash_file(dir, std::string(name));
}

// A file's own precision, about: what it has lost is lost, and what it still has is kept.
const models::Quantization& default_quantization(const GgufModel& model, std::string& reason) {
  constexpr double kManyBits = 6;
  const bool many = model.bits >= kManyBits;
  const models::Quantization& out = models::find_quantization(many ? "q8f16_1" : "q4f16_1");
  char bits[16];
  std::snprintf(bits, sizeof bits, "%.1f", model.bits);
  reason = std::string(out.name) + " is the default for a file with " + bits + " bits a weight (" +
           (many ? "6 or more" : "less than 6") + "); --quantization chooses another";
  return out;
}

ConvertSummary write_package(const models::ModelPlan& plan, const Source& source,
                             const ConvertOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Checkpoint& checkpoint = source.checkpoint;
  PackageOutline outline = outline_package(plan, source, options.family_chat_template, options.manifest);
  Mapping& mapping = outline.mapping;
  ConvertSummary summary{.model_type = plan.model_type, .quantization = std::string(plan.quantization->name)};
  for (const models::Parameter& parameter : plan.parameters) summary.parameter_bytes += parameter.bytes();
  for (const MappedWeight& mapped : mapping.weights) summary.weights += mapped.elements();

  NewParents parents(options.output);
  AtomicDirectory output(options.output);
  check_space(output.staging(), options.output, summary.parameter_bytes + (int64_t{1} << 20));
  package::TensorCacheWriter writer(output.staging());
  summary.source_bytes = source_bytes(mapping, checkpoint);
  ThreadPool pool(options.threads);
  Progress progress("Converting", summary.source_bytes);
  stream_weights(plan, checkpoint, mapping, options.rounding, writer, pool, progress, options.cancel);
  progress.finish();
  writer.finish(summary.weights);

  std::vector<package::FileHash> files = writer.files();
  summary.shards = static_cast<int64_t>(files.size()) - 1;
  for (const TokenizerFile& file : source.tokenizer.files)
    files.push_back(write_tokenizer_file(file, output.staging()));
  files.push_back(write_document(output.staging(), package::kChatConfigFile,
                                 package::chat_config_text(outline.chat_config)));
  if (options.manifest) {
    files.push_back(write_document(output.staging(), contract::kManifestFile,
                                   contract::to_json(plan.manifest()).dump(2) + "\n"));
  }
  package::write_content_hashes(output.staging(), files);
  for (const package::FileHash& file : files) summary.package_bytes += file.bytes;
  summary.package_bytes += static_cast<int64_t>(fs::file_size(output.staging() / package::kHashesFile));
  output.commit();
  parents.keep();

  summary.parameters = static_cast<int64_t>(plan.parameters.size());
  summary.skipped = std::move(mapping.skipped);
  summary.notes = std::move(mapping.notes);
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

}  // namespace

ConvertSummary convert_with_plan(const models::ModelPlan& plan, const Json& config,
                                 const ConvertOptions& options) {
  return write_package(plan, open_folder(options.checkpoint, config, open_checkpoint(options.checkpoint), {}),
                       options);
}

ConvertSummary convert(const ConvertOptions& options) {
  std::error_code ec;
  if (options.quantization == nullptr && fs::is_directory(options.checkpoint, ec)) {
    throw Error(ErrorCode::kUsage, "--quantization is required for a folder; a GGUF file has a default");
  }
  Source source = open_source(options.checkpoint, options.mmproj);
  if (options.quantization != nullptr)
    return write_package(source.plan(*options.quantization), source, options);
  std::string reason;
  const models::Quantization& quantization = default_quantization(*source.gguf, reason);
  source.notes.insert(source.notes.begin(), std::move(reason));
  return write_package(source.plan(quantization), source, options);
}

}  // namespace dovetail::convert
