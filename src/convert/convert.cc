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
#include "convert/chat_config_builder.h"
#include "convert/chat_template.h"
#include "convert/checkpoint.h"
#include "convert/checkpoint_folder.h"
#include "convert/gguf_model.h"
#include "convert/gguf_tokenizer.h"
#include "convert/preprocessor.h"
#include "convert/tokenizer_files.h"
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

// Everything that a package is made of, besides the model's definition.
struct Inputs {
  Checkpoint checkpoint;
  Json config;
  Json generation_config;
  TokenizerFiles tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::vector<std::string> notes;
};

ConvertSummary write_package(const models::ModelPlan& plan, Inputs inputs, const ConvertOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Checkpoint& checkpoint = inputs.checkpoint;
  Mapping mapping = map_weights(plan, checkpoint);
  mapping.notes.insert(mapping.notes.begin(), inputs.notes.begin(), inputs.notes.end());
  std::vector<std::string> tokenizer_files;
  for (const TokenizerFile& file : inputs.tokenizer.files) tokenizer_files.push_back(file.name);
  package::ChatConfig chat_config =
      build_chat_config(plan, inputs.config, inputs.generation_config, inputs.tokenizer.tokenizer,
                        tokenizer_files, inputs.chat_template, mapping.notes);
  if (!options.manifest) {
    chat_config.model_config = plan.mlc_config;
    chat_config.sliding_window_size = plan.mlc_sliding_window_size;
    if (plan.tasks.front().second.inputs.size() > 1)
      mapping.notes.push_back("without a manifest Dovetail takes text only from this package");
  }

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
  stream_weights(plan, checkpoint, mapping, writer, pool, progress, options.cancel);
  progress.finish();
  writer.finish(summary.weights);

  std::vector<package::FileHash> files = writer.files();
  summary.shards = static_cast<int64_t>(files.size()) - 1;
  for (const TokenizerFile& file : inputs.tokenizer.files)
    files.push_back(write_tokenizer_file(file, output.staging()));
  files.push_back(
      write_document(output.staging(), package::kChatConfigFile, package::chat_config_text(chat_config)));
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

// The template that counts; nullopt: that of the model's family.
std::optional<ChatTemplate> chosen(std::optional<ChatTemplate> found, const ConvertOptions& options,
                                   std::vector<std::string>& notes) {
  if (!found) notes.push_back("the checkpoint has no chat template: that of the model's family is used");
  if (options.family_chat_template) found.reset();
  return found;
}

ConvertSummary convert_gguf(const ConvertOptions& options) {
  const GgufModel model = open_gguf(options.checkpoint, options.mmproj);
  std::string reason;
  const models::Quantization& quantization =
      options.quantization != nullptr ? *options.quantization : default_quantization(model, reason);
  models::ModelPlan plan =
      models::plan_model(model.config, quantization, options.checkpoint.filename().string());
  model.adapt(plan);
  std::vector<std::string> notes = model.notes;
  if (!reason.empty()) notes.insert(notes.begin(), reason);
  const std::string json = gguf_tokenizer_json(model.gguf, notes);
  return write_package(plan,
                       {.checkpoint = model.checkpoint(),
                        .config = model.config,
                        .generation_config = model.generation_config,
                        .tokenizer = {.files = {{.name = kTokenizer, .text = json}},
                                      .tokenizer = package::Tokenizer::from_json(json, kTokenizer)},
                        .chat_template = chosen(model.chat_template(), options, notes),
                        .notes = std::move(notes)},
                       options);
}

ConvertSummary convert_folder(const models::ModelPlan& plan, const Json& config, Checkpoint checkpoint,
                              std::vector<std::string> notes, const ConvertOptions& options) {
  std::error_code ec;
  TokenizerFiles tokenizer = read_tokenizer(options.checkpoint, notes);
  check_preprocessor(plan, options.checkpoint, notes);
  std::optional<ChatTemplate> chat_template =
      chosen(find_chat_template(options.checkpoint, notes), options, notes);
  Json generation_config = fs::exists(options.checkpoint / kGenerationConfig, ec)
                               ? read_document(options.checkpoint, kGenerationConfig)
                               : Json::object();
  return write_package(plan,
                       {.checkpoint = std::move(checkpoint),
                        .config = config,
                        .generation_config = std::move(generation_config),
                        .tokenizer = std::move(tokenizer),
                        .chat_template = std::move(chat_template),
                        .notes = std::move(notes)},
                       options);
}

// True for a model with an output head of its own of which the checkpoint has nothing.
bool lacks_head(const models::ModelPlan& plan, const Checkpoint& checkpoint) {
  const auto is_head = [](const std::string& name) { return name.ends_with("lm_head.weight"); };
  const bool wanted = std::any_of(plan.weights.begin(), plan.weights.end(),
                                  [&](const models::Weight& weight) { return is_head(weight.name); });
  return wanted && std::none_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                                [&](const CheckpointTensor& tensor) { return is_head(tensor.name); });
}

// The configuration with the output head tied to the embedding table.
Json tied(Json config) {
  config["tie_word_embeddings"] = true;
  if (config.contains("text_config") && config["text_config"].is_object())
    config["text_config"]["tie_word_embeddings"] = true;
  return config;
}

}  // namespace

ConvertSummary convert_with_plan(const models::ModelPlan& plan, const Json& config,
                                 const ConvertOptions& options) {
  return convert_folder(plan, config, open_checkpoint(options.checkpoint), {}, options);
}

ConvertSummary convert(const ConvertOptions& options) {
  if (is_gguf(options.checkpoint)) return convert_gguf(options);
  if (!options.mmproj.empty()) {
    throw Error(ErrorCode::kUsage, "--mmproj belongs to a GGUF file; a folder holds its encoders itself");
  }
  std::error_code ec;
  if (options.quantization == nullptr && fs::is_directory(options.checkpoint, ec)) {
    throw Error(ErrorCode::kUsage, "--quantization is required for a folder; a GGUF file has a default");
  }
  std::vector<std::string> notes;
  ConvertOptions folder = options;
  folder.checkpoint = checkpoint_folder(options.checkpoint, notes);
  check_folder(folder.checkpoint);
  Json config = read_document(folder.checkpoint, kConfig);
  check_not_quantized(folder.checkpoint, config);
  models::ModelPlan plan = models::plan_model(config, *options.quantization, kConfig);
  Checkpoint checkpoint = open_checkpoint(folder.checkpoint);
  if (lacks_head(plan, checkpoint)) {
    // Files without shared tensors leave the head of a tied model out, whatever its configuration says.
    config = tied(std::move(config));
    plan = models::plan_model(config, *options.quantization, kConfig);
    notes.push_back(
        "lm_head.weight is not in the checkpoint: the embedding table is used for both, though config.json "
        "does not tie them");
  }
  return convert_folder(plan, config, std::move(checkpoint), std::move(notes), folder);
}

}  // namespace dovetail::convert
