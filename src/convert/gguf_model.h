// GGUF files as a checkpoint: the metadata as the config.json that models/ reads, the tensors under their own
// names with what undoes llama.cpp's changes to them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "convert/chat_template.h"
#include "convert/checkpoint.h"
#include "convert/gguf.h"
#include "convert/gguf_names.h"
#include "models/plan.h"

namespace dovetail::convert {

struct GgufModel {
  std::shared_ptr<const MappedFile> file;
  Gguf gguf;
  GgufArchitecture architecture = GgufArchitecture::kLlama;
  std::shared_ptr<const MappedFile> encoder_file;  // null: none given
  std::optional<Gguf> encoder;
  GgufProjector projector = GgufProjector::kLlava;
  bool swapped_feed_forward = false;  // gguf_encoder_name()

  Json config;             // as in a Hugging Face folder
  Json generation_config;  // token ids alone
  // Of the matrices of the text model, the embedding table included, per value.
  double bits = 0;
  std::vector<std::string> notes;

  // The Hugging Face name of a tensor.
  std::string name(const std::string& tensor) const;
  Checkpoint checkpoint() const;
  // The file's chat template; nullopt when it has none.
  std::optional<ChatTemplate> chat_template() const;
  // Makes the plan of `config` one for these files: their names, and weights that they leave out because
  // nothing is computed with them.
  void adapt(models::ModelPlan& plan) const;
};

// True for a regular file that begins as a GGUF file does.
bool is_gguf(const std::filesystem::path& path);

// `mmproj`: a file with the encoder of pictures or recordings; empty: none. Throws Error kNotFound, kIo,
// kMalformed (all problems of a file's metadata), kUnsupported with the list of architectures or tensor
// types.
GgufModel open_gguf(const std::filesystem::path& path, const std::filesystem::path& mmproj);

// "llama, gemma3, gemma4"
std::string gguf_architectures();

}  // namespace dovetail::convert
