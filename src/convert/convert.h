// A Hugging Face folder, or a GGUF file, becomes a package.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convert/mapping.h"
#include "convert/quantize.h"
#include "models/quantization.h"

namespace dovetail::convert {

struct ConvertOptions {
  std::filesystem::path checkpoint;  // a folder, or a GGUF file
  std::filesystem::path mmproj;      // a GGUF file with the encoder for the GGUF file; empty: none
  std::filesystem::path output;      // must not exist, or be an empty folder
  // Null, for a GGUF file only: q8f16_1 when it has 6 bits a weight or more, else q4f16_1.
  const models::Quantization* quantization = nullptr;
  Rounding rounding = Rounding::kSearch;  // kMlc: the bytes of MLC's tools
  // Use the conversation template of the model's family, whatever the checkpoint's chat template says.
  bool family_chat_template = false;
  bool manifest = true;                       // false: a package as MLC's older tools make it
  int threads = 0;                            // 0: as many as CPUs
  const std::atomic<bool>* cancel = nullptr;  // the conversion stops soon after it becomes true
};

struct ConvertSummary {
  std::string model_type;
  std::string quantization;
  int64_t weights = 0;       // values of the model before quantization
  int64_t parameters = 0;    // stored tensors
  int64_t source_bytes = 0;  // read from the checkpoint
  int64_t parameter_bytes = 0;
  int64_t shards = 0;
  int64_t package_bytes = 0;  // all files
  double seconds = 0;
  std::vector<SkippedTensors> skipped;
  std::vector<std::string> notes;
};

// The folder appears under its name only when it is complete. Throws Error kNotFound, kMalformed,
// kUnsupported, kMismatch, kNumeric, kIo, kCancelled; each with all problems of its stage.
ConvertSummary convert(const ConvertOptions& options);

// The same for a given plan; `config` is the checkpoint's config.json.
ConvertSummary convert_with_plan(const models::ModelPlan& plan, const Json& config,
                                 const ConvertOptions& options);

}  // namespace dovetail::convert
