#include "convert/source.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "contract/manifest.h"
#include "convert/chat_config_builder.h"
#include "convert/checkpoint_folder.h"
#include "convert/gguf_tokenizer.h"
#include "convert/preprocessor.h"
#include "convert/tokenizer_config.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr int64_t kMaxDocumentBytes = int64_t{64} << 20;

Json read_document(const fs::path& dir, const char* name) {
  return parse_json(read_file(dir / name, kMaxDocumentBytes), name);
}

bool is_head(const std::string& name) { return name.ends_with("lm_head.weight"); }

// True for a model with an output head of its own.
bool has_head(const models::ModelPlan& plan) {
  return std::any_of(plan.weights.begin(), plan.weights.end(),
                     [](const models::Weight& weight) { return is_head(weight.name); });
}
bool has_head(const Checkpoint& checkpoint) {
  return std::any_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                     [](const CheckpointTensor& tensor) { return is_head(tensor.name); });
}

// True when the configuration says that the output head is not the embedding table.
bool says_untied(const Json& config) {
  const auto says = [](const Json& part) {
    return part.is_object() && part.contains("tie_word_embeddings") && part["tie_word_embeddings"] == false;
  };
  return says(config) || says(config.value("text_config", Json()));
}

// Ties the output head to the embedding table.
void tie_head(Json& config) {
  config["tie_word_embeddings"] = true;
  if (config.contains("text_config") && config["text_config"].is_object())
    config["text_config"]["tie_word_embeddings"] = true;
}

Source open_gguf_source(const fs::path& path, const fs::path& mmproj) {
  auto model = std::make_shared<const GgufModel>(open_gguf(path, mmproj));
  std::vector<std::string> notes = model->notes;
  std::string json = gguf_tokenizer_json(model->gguf, notes);
  package::Tokenizer tokenizer = package::Tokenizer::from_json(json, kTokenizer);
  return {.path = path,
          .config_name = path.filename().string(),
          .config = model->config,
          .generation_config = model->generation_config,
          .checkpoint = model->checkpoint(),
          .tokenizer = {.source = path.filename().string(),
                        .files = {{.name = kTokenizer, .text = std::move(json)}},
                        .tokenizer = std::move(tokenizer)},
          .chat_template = model->chat_template(),
          .notes = std::move(notes),
          .gguf = model};
}

}  // namespace

models::ModelPlan Source::plan(const models::Quantization& quantization) const {
  models::ModelPlan out = models::plan_model(config, quantization, config_name);
  if (gguf) gguf->adapt(out);
  return out;
}

Source open_folder(const fs::path& folder, Json config, Checkpoint checkpoint,
                   std::vector<std::string> notes) {
  std::error_code ec;
  const Json tokenizer_config = read_tokenizer_config(folder, notes);
  TokenizerFiles tokenizer = read_tokenizer(folder, tokenizer_config, notes);
  std::optional<ChatTemplate> chat_template = find_chat_template(folder, tokenizer_config, notes);
  return {.path = folder,
          .config_name = kConfig,
          .config = std::move(config),
          .generation_config = fs::exists(folder / kGenerationConfig, ec)
                                   ? read_document(folder, kGenerationConfig)
                                   : Json::object(),
          .checkpoint = std::move(checkpoint),
          .tokenizer = std::move(tokenizer),
          .chat_template = std::move(chat_template),
          .notes = std::move(notes)};
}

Source open_source(const fs::path& path, const fs::path& mmproj) {
  if (is_gguf(path)) return open_gguf_source(path, mmproj);
  std::error_code ec;
  if (!mmproj.empty() && fs::exists(path, ec)) {
    throw Error(ErrorCode::kUsage, "--mmproj belongs to a GGUF file; a folder holds its encoders itself");
  }
  std::vector<std::string> notes;
  const fs::path folder = checkpoint_folder(path, notes);
  check_folder(folder);
  Json config = read_document(folder, kConfig);
  check_not_quantized(folder, config);
  const models::ModelPlan plan =
      models::plan_model(config, models::quantizations().front(), kConfig);  // any: for the names
  Checkpoint checkpoint = open_checkpoint(folder);
  check_not_quantized(checkpoint);
  const bool there = has_head(checkpoint);
  if (has_head(plan) ? !there : says_untied(config)) {
    // Files without shared tensors leave the head of a tied model out, whatever its configuration says; a
    // head that is there all the same is compared with the table.
    tie_head(config);
    if (!there)
      notes.push_back(
          "lm_head.weight is not in the checkpoint: the embedding table is used for both, though config.json "
          "does not tie them");
  }
  return open_folder(folder, std::move(config), std::move(checkpoint), std::move(notes));
}

PackageOutline outline_package(const models::ModelPlan& plan, const Source& source, bool family_chat_template,
                               bool manifest) {
  std::vector<std::string> notes = source.notes;
  if (!source.gguf) check_preprocessor(plan, source.path, notes);
  if (!source.chat_template)
    notes.push_back("the checkpoint has no chat template: that of the model's family is used");
  PackageOutline out{.mapping = map_weights(plan, source.checkpoint)};
  out.mapping.notes.insert(out.mapping.notes.begin(), notes.begin(), notes.end());
  out.chat_config =
      build_chat_config(plan, source.config, source.generation_config, source.tokenizer,
                        family_chat_template ? std::nullopt : source.chat_template, out.mapping.notes);
  if (!manifest) {
    out.chat_config.model_config = plan.mlc_config;
    out.chat_config.sliding_window_size = plan.mlc_sliding_window_size;
    if (plan.tasks.front().second.inputs.size() > 1)
      out.mapping.notes.push_back("without a manifest Dovetail takes text only from this package");
  }
  return out;
}

int64_t expected_package_bytes(const models::ModelPlan& plan, const Source& source,
                               const PackageOutline& outline) {
  constexpr int64_t kAlignment = 64;     // of tensors in their shards
  constexpr int64_t kRecordBytes = 310;  // of a tensor in tensor-cache.json, besides its name
  int64_t out = 0;
  for (const models::Parameter& parameter : plan.parameters) {
    out += (parameter.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    out += kRecordBytes + static_cast<int64_t>(parameter.name.size());
  }
  for (const TokenizerFile& file : source.tokenizer.files) {
    std::error_code ec;
    out += static_cast<int64_t>(file.copied_from.empty() ? file.text.size()
                                                         : fs::file_size(file.copied_from, ec));
  }
  out += static_cast<int64_t>(package::chat_config_text(outline.chat_config).size());
  return out + static_cast<int64_t>(contract::to_json(plan.manifest()).dump(2).size());
}

}  // namespace dovetail::convert
