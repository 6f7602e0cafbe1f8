// The parts of `dovetail inspect`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/report.h"
#include "contract/artifact.h"
#include "contract/manifest.h"
#include "package/chat_config.h"
#include "package/tensor_cache.h"

namespace dovetail::cli {

// Rows for a person, or one JSON object for a program: whoever describes something does both.
class Inspection {
 public:
  explicit Inspection(bool as_json) : as_json_(as_json) {}

  void row(std::string_view label, std::string_view value) const {
    if (!as_json_) print_row(label, value);
  }
  void heading(std::string_view text) const {
    if (!as_json_) print_heading(text);
  }
  void parts(const std::vector<SizedTensor>& tensors) const {
    if (!as_json_) print_parts(tensors);
  }
  // Prints the object when that was asked for.
  void finish() const;

  Json json = Json::object();

 private:
  bool as_json_;
};

// Sums over the tensors of something.
class WeightSums {
 public:
  void add(const std::string& name, const std::string& type, int64_t bytes, int64_t values = 0);

  int64_t tensors() const { return static_cast<int64_t>(sized_.size()); }
  int64_t bytes() const { return bytes_; }
  int64_t values() const { return values_; }
  const std::vector<SizedTensor>& sized() const { return sized_; }
  // Rows by type, then by part of the model (text, vision, audio, embedding) where there are several;
  // "weights" of the object.
  void show(Inspection& out) const;

 private:
  struct Sum {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  static Json to_json(const std::map<std::string, Sum>& sums);

  std::map<std::string, Sum> types_, parts_;
  std::vector<SizedTensor> sized_;
  int64_t bytes_ = 0, values_ = 0;
};

std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ");

// inspect_checkpoint.cc. `mmproj`: the encoder's file beside a GGUF file; empty: none.
void inspect_folder(Inspection& out, const std::filesystem::path& folder);
void inspect_gguf(Inspection& out, const std::filesystem::path& path, const std::filesystem::path& mmproj);
void inspect_safetensors(Inspection& out, const std::filesystem::path& path);
void inspect_config(Inspection& out, const Json& config, const std::string& name);

// inspect_document.cc
void show_manifest(Inspection& out, const contract::PackageManifest& manifest);
// `origin` says where the template comes from; empty: nothing is said.
void show_conversation(Inspection& out, const package::ChatConfig& config, const std::string& origin);
void show_metadata(Inspection& out, const contract::LibraryMetadata& metadata);
void show_stored_tensors(Inspection& out, WeightSums& sums, const package::TensorCache& cache);
void inspect_document(Inspection& out, const std::filesystem::path& path);

// inspect_unknown.cc: what a file is that can't be inspected, for the message that says so: "an HTML page".
std::string looks_like(std::span<const std::byte> bytes);

}  // namespace dovetail::cli
