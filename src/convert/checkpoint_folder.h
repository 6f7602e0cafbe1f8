// A folder of the Hugging Face hub, as it is found on a disk.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/checkpoint.h"

namespace dovetail::convert {

// The folder with the checkpoint's files: `path`, or the snapshot in it when `path` is a model's folder of
// the hub's cache ("models--org--name"), which is noted. Throws Error kNotFound when it has no snapshot, or
// several and does not say which is "main".
std::filesystem::path checkpoint_folder(const std::filesystem::path& path, std::vector<std::string>& notes);

// Refuses what is no whole checkpoint: folders without config.json or a tokenizer, LoRA adapters. Throws
// Error kNotFound or kUnsupported, with what to do.
void check_folder(const std::filesystem::path& dir);

// Refuses weights that another tool has quantized, by the tool's name: "quantization_config" of config.json,
// or the files that older tools wrote beside it. Throws Error kUnsupported.
void check_not_quantized(const std::filesystem::path& dir, const Json& config);
// The same, by the names of the tensors: for folders that lost the documents.
void check_not_quantized(const Checkpoint& checkpoint);

// The object that a document of the folder holds, an empty one when there is no such file. Throws Error
// kMalformed when it holds something else, kLimit when the file is larger than `limit` bytes.
Json read_json_object(const std::filesystem::path& dir, const char* name, int64_t limit);

}  // namespace dovetail::convert
