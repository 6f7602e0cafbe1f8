#include "convert/convert.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "convert/chat_config_builder.h"
#include "convert/checkpoint.h"
#include "convert/weight_stream.h"
#include "package/content_hashes.h"
#include "package/tensor_cache.h"
#include "package/tensor_cache_writer.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kGenerationConfig = "generation_config.json";

void check_folder(const fs::path& dir) {
  std::error_code ec;
  if (!fs::is_directory(dir, ec)) {
    throw Error(ErrorCode::kNotFound,
                Problem{.message = fs::exists(dir, ec) ? "is not a folder" : "folder does not exist",
                        .source = dir.string(),
                        .expected = "a folder with config.json, tokenizer.json and safetensors files"});
  }
  std::vector<Problem> problems;
  for (const char* name : {kConfig, kTokenizer}) {
    if (fs::is_regular_file(dir / name, ec)) continue;
    Problem problem{.message = "file is missing", .source = (dir / name).string()};
    if (name == kTokenizer && fs::exists(dir / "tokenizer.model", ec)) {
      problem.hint =
          "tokenizer.model alone does not say which tokens are special; fetch tokenizer.json of the same "
          "model too";
    }
    problems.push_back(std::move(problem));
  }
  if (!problems.empty()) throw Error(ErrorCode::kNotFound, std::move(problems));
}

Json read_document(const fs::path& dir, const char* name) {
  return parse_json(read_file(dir / name, int64_t{64} << 20), name);
}

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

// Copies byte for byte.
package::FileHash copy_file(const fs::path& from, const fs::path& dir, const std::string& name) {
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(from / name);
  AtomicFile out(dir / name);
  out.write(mapped->bytes());
  out.commit();
  return package::hash_file(dir, name);
}

package::FileHash write_document(const fs::path& dir, std::string_view name, const std::string& text) {
  write_file_atomic(dir / name, text);
  return package::hash_file(dir, std::string(name));
}

}  // namespace

ConvertSummary convert_with_plan(const models::ModelPlan& plan, const Json& config,
                                 const ConvertOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::error_code ec;
  const Checkpoint checkpoint = open_checkpoint(options.checkpoint);
  Mapping mapping = map_weights(plan, checkpoint);
  const Json generation_config = fs::exists(options.checkpoint / kGenerationConfig, ec)
                                     ? read_document(options.checkpoint, kGenerationConfig)
                                     : Json::object();
  const package::Tokenizer tokenizer = package::Tokenizer::from_file(options.checkpoint / kTokenizer);
  std::vector<std::string> tokenizer_files;
  for (const char* name : kTokenizerFiles) {
    if (fs::is_regular_file(options.checkpoint / name, ec)) tokenizer_files.push_back(name);
  }
  const package::ChatConfig chat_config =
      build_chat_config(plan, config, generation_config, tokenizer, tokenizer_files, mapping.notes);

  ConvertSummary summary{.model_type = plan.model_type};
  for (const models::Parameter& parameter : plan.parameters) summary.parameter_bytes += parameter.bytes();
  for (const MappedWeight& mapped : mapping.weights) summary.weights += mapped.elements();

  AtomicDirectory output(options.output);
  check_space(output.staging(), options.output, summary.parameter_bytes + (int64_t{1} << 20));
  package::TensorCacheWriter writer(output.staging());
  summary.source_bytes = source_bytes(mapping, checkpoint);
  ThreadPool pool(options.threads);
  Progress progress("Converting", summary.source_bytes);
  stream_weights(plan, checkpoint, mapping, writer, pool, progress, options.cancel);
  progress.finish();
  writer.finish(summary.weights);

  std::vector<package::FileHash> files = writer.files();
  summary.shards = static_cast<int64_t>(files.size()) - 1;
  for (const std::string& name : tokenizer_files)
    files.push_back(copy_file(options.checkpoint, output.staging(), name));
  files.push_back(
      write_document(output.staging(), package::kChatConfigFile, package::chat_config_text(chat_config)));
  files.push_back(write_document(output.staging(), contract::kManifestFile,
                                 contract::to_json(plan.manifest()).dump(2) + "\n"));
  package::write_content_hashes(output.staging(), files);
  for (const package::FileHash& file : files) summary.package_bytes += file.bytes;
  summary.package_bytes += static_cast<int64_t>(fs::file_size(output.staging() / package::kHashesFile));
  output.commit();

  summary.parameters = static_cast<int64_t>(plan.parameters.size());
  summary.skipped = std::move(mapping.skipped);
  summary.notes = std::move(mapping.notes);
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

ConvertSummary convert(const ConvertOptions& options) {
  check_folder(options.checkpoint);
  const Json config = read_document(options.checkpoint, kConfig);
  const models::ModelPlan plan = models::plan_model(config, *options.quantization, kConfig);
  return convert_with_plan(plan, config, options);
}

}  // namespace dovetail::convert
