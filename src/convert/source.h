// What a package is made from: a Hugging Face folder or a GGUF file, opened and checked, before a
// quantization is chosen.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/chat_template.h"
#include "convert/checkpoint.h"
#include "convert/gguf_model.h"
#include "convert/mapping.h"
#include "convert/tokenizer_files.h"
#include "models/plan.h"
#include "package/chat_config.h"

namespace dovetail::convert {

struct Source {
  std::filesystem::path path;  // the folder (of a cache: the snapshot in it), or the GGUF file
  std::string config_name;     // the document that `config` is, or stands for
  Json config;                 // config.json's form
  Json generation_config;
  Checkpoint checkpoint;
  TokenizerFiles tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::vector<std::string> notes;         // what the user should know
  std::shared_ptr<const GgufModel> gguf;  // null: a folder

  models::ModelPlan plan(const models::Quantization& quantization) const;
};

// `mmproj` belongs to a GGUF file; empty: none. Throws Error kUsage, kNotFound, kMalformed, kUnsupported.
Source open_source(const std::filesystem::path& path, const std::filesystem::path& mmproj);

// The folder itself, for a configuration that is known.
Source open_folder(const std::filesystem::path& folder, Json config, Checkpoint checkpoint,
                   std::vector<std::string> notes);

// A package but for the bytes of its weights.
struct PackageOutline {
  Mapping mapping;  // with the notes of everything
  package::ChatConfig chat_config;
};

// Whether and how the source becomes a package of this plan. `manifest`: ConvertOptions. Throws Error
// kMismatch, kMalformed, kUnsupported.
PackageOutline outline_package(const models::ModelPlan& plan, const Source& source, bool family_chat_template,
                               bool manifest);

// Bytes of the package's files, within one per cent: shards, tokenizer and documents.
int64_t expected_package_bytes(const models::ModelPlan& plan, const Source& source,
                               const PackageOutline& outline);

}  // namespace dovetail::convert
