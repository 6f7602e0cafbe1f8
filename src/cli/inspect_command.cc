// dovetail inspect: what a checkpoint, a package, a library or a document holds, in readable form. Runs no
// code of a library.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/inspect.h"
#include "convert/checkpoint_folder.h"
#include "convert/sentencepiece.h"
#include "library/library.h"
#include "library/model.h"
#include "package/package.h"

namespace dovetail::cli {
namespace {
namespace fs = std::filesystem;

constexpr const char* kMmprojIsForGguf =
    "--mmproj belongs to a GGUF file; a folder holds its encoders itself";

struct InspectArguments {
  std::string path;
  std::string mmproj;
  bool json = false;
};

std::vector<std::string> libraries_of(const fs::path& dir) {
  std::vector<std::string> out;
  for (const fs::path& path : library::package_libraries(dir))
    out.push_back(path.lexically_relative(dir).string());
  return out;
}

void inspect_package(Inspection& out, const fs::path& dir) {
  const package::Package package = package::Package::open(dir);
  const package::ChatConfig& config = package.chat_config;
  out.json["kind"] = "package";
  out.json["model_type"] = config.model_type;
  out.json["quantization"] = config.quantization;
  out.json["context_window_size"] = config.context_window_size;
  out.json["vocabulary"] = {{"rows", config.vocab_size}, {"tokens", config.active_vocab_size}};
  out.json["tokenizer_files"] = config.tokenizer_files;
  out.json["libraries"] = libraries_of(dir);
  out.row("package", config.model_type + ", " + config.quantization);
  out.row("context window", std::to_string(config.context_window_size) + " tokens, prefilled in chunks of " +
                                std::to_string(config.prefill_chunk_size));
  out.row("vocabulary", std::to_string(config.vocab_size) + " rows, " +
                            std::to_string(config.active_vocab_size) + " tokens");
  out.row("tokenizer", joined(config.tokenizer_files));
  const std::vector<std::string> libraries = libraries_of(dir);
  out.row("libraries", libraries.empty() ? "none; make one with 'dovetail compile'" : joined(libraries));
  const auto shards = static_cast<int64_t>(package.tensors.shards().size());
  out.row("weights", counted(static_cast<int64_t>(package.tensors.tensors().size()), "tensor") + ", " +
                         format_bytes(package.tensors.stored_bytes()) + " in " + counted(shards, "shard"));
  WeightSums sums;
  show_stored_tensors(out, sums, package.tensors);
  out.json["weights"]["shards"] = shards;
  show_conversation(out, config, "");
  if (package.manifest) {
    show_manifest(out, *package.manifest);
  } else {
    out.json["manifest"] = nullptr;
    out.row("contract",
            "none: the package has no " + std::string(contract::kManifestFile) + " and takes text only");
  }
  out.parts(sums.sized());
}

void inspect_library(Inspection& out, const fs::path& path) {
  const library::LibraryFile file = library::inspect_library(path);
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  const std::optional<Problem> unfit = file.unfit_machine();
  out.json["kind"] = "library";
  out.json["bytes"] = bytes;
  out.json["architecture"] = file.arch;
  out.json["cpu_levels"] = file.target ? file.target->cpu : std::vector<std::string>{};
  out.json["runs_here"] = !unfit.has_value();
  out.json["functions"] = file.functions;
  out.row("library", path.filename().string() + ", " + format_bytes(bytes));
  out.row("built for",
          file.arch + (file.target && !file.target->cpu.empty() ? ": " + joined(file.target->cpu) : ""));
  out.row("this machine", unfit ? "can't run it: " + unfit->text() : "can run it");
  out.row("functions", file.functions.empty() ? "none, so it is no compiled model" : joined(file.functions));
  if (file.metadata) {
    show_metadata(out, *file.metadata);
  } else {
    out.row("metadata", "none that can be read without running the library");
  }
}

void inspect_sentencepiece(Inspection& out, const std::string& name, std::string_view bytes) {
  const convert::SentencePieceModel model = convert::parse_sentencepiece(bytes, name);
  const bool bpe = model.model_type == convert::SentencePieceModel::kBpe;
  const char* kind = bpe                                                         ? "BPE"
                     : model.model_type == convert::SentencePieceModel::kUnigram ? "unigram"
                                                                                 : "words or characters";
  out.json["kind"] = "sentencepiece";
  out.json["model"] = kind;
  out.json["vocabulary"] = {{"tokens", model.pieces.size()}};
  out.row("SentencePiece model", counted(static_cast<int64_t>(model.pieces.size()), "piece") + ", " + kind +
                                     (model.byte_fallback ? ", bytes for what has no piece" : ""));
}

// The bytes of a file decide what it is, not its name.
void inspect_file(Inspection& out, const InspectArguments& arguments) {
  const fs::path path = arguments.path;
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(path);
  const std::string_view bytes(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size());
  if (bytes.starts_with("GGUF")) return inspect_gguf(out, path, arguments.mmproj);
  if (!arguments.mmproj.empty()) throw Error(ErrorCode::kUsage, kMmprojIsForGguf);
  if (bytes.starts_with("\x7f"
                        "ELF"))
    return inspect_library(out, path);
  // The length of the header, of 8 bytes, is below 2^56; a document has no zero byte.
  if (bytes.size() > 8 && bytes[8] == '{' && bytes[7] == '\0') return inspect_safetensors(out, path);
  const size_t first = bytes.substr(0, 64).find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') return inspect_document(out, path);
  const std::string name = path.filename().string();
  if (convert::begins_as_sentencepiece(bytes)) return inspect_sentencepiece(out, name, bytes);
  Problem problem{.message = "is no file that is known here",
                  .source = path.string(),
                  .expected = "a GGUF file, a library, a safetensors file or a JSON document",
                  .actual = "what looks like " + looks_like(mapped->bytes())};
  if (name == "tokenizer.model") {
    try {
      return inspect_sentencepiece(out, name, bytes);
    } catch (const Error& error) {
      problem.message = error.problems().front().message;
      problem.expected = "a SentencePiece model";
      problem.hint = error.problems().front().hint;
    }
  }
  throw Error(ErrorCode::kUnsupported, std::move(problem));
}

void inspect_path(Inspection& out, const InspectArguments& arguments) {
  const fs::path path = arguments.path;
  std::error_code ec;
  if (!fs::exists(path, ec))
    throw Error(ErrorCode::kNotFound,
                Problem{.message = "there is no such file or folder", .source = path.string()});
  if (!fs::is_directory(path, ec)) return inspect_file(out, arguments);
  if (!arguments.mmproj.empty()) throw Error(ErrorCode::kUsage, kMmprojIsForGguf);
  for (const std::string_view name : {package::kTensorCacheFile, package::kOldTensorCacheFile,
                                      package::kChatConfigFile, contract::kManifestFile}) {
    if (fs::exists(path / name, ec)) return inspect_package(out, path);
  }
  for (const char* name : {"config.json", "snapshots", "adapter_config.json", "adapter_model.safetensors"}) {
    if (fs::exists(fs::symlink_status(path / name, ec))) return inspect_folder(out, path);
  }
  std::vector<std::string> notes;
  convert::checkpoint_folder(path, notes);  // says so when it is the cache of the hub
  throw Error(ErrorCode::kNotFound,
              Problem{.message = "is neither a package nor a checkpoint",
                      .source = path.string(),
                      .expected = "mlc-chat-config.json, or config.json and safetensors files"});
}

}  // namespace

void add_inspect_command(CLI::App& app, int&) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "Show what a checkpoint, a package, a library or a document holds, and what a checkpoint can become");
  command
      ->add_option("path", arguments->path,
                   "A Hugging Face folder, a GGUF or safetensors file, a package, a library, or a document "
                   "of a package")
      ->required();
  command->add_option("--mmproj", arguments->mmproj, "The encoder's file beside a GGUF file");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->callback([arguments] {
    Inspection out(arguments->json);
    inspect_path(out, *arguments);
    out.finish();
  });
}

}  // namespace dovetail::cli
