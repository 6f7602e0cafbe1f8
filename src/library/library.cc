#include "library/library.h"

#include <algorithm>

#include "base/file.h"
#include "library/cpu.h"
#include "library/elf.h"

namespace dovetail::library {
namespace ffi = tvm::ffi;
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

std::optional<Target> read_target(const Json& dovetail, const std::string& source) {
  if (!dovetail.is_object() || !dovetail.contains("target")) return std::nullopt;
  const Json& target = dovetail["target"];
  const auto malformed = [&](const char* field, const char* expected) {
    throw Error(ErrorCode::kMalformed,
                Problem{.message = "wrong type", .source = source, .field = field, .expected = expected});
  };
  if (!target.is_object()) malformed("dovetail.target", "an object");
  if (!target.contains("arch") || !target["arch"].is_string()) malformed("dovetail.target.arch", "a string");
  if (!target.contains("cpu") || !target["cpu"].is_array() || target["cpu"].empty()) {
    malformed("dovetail.target.cpu", "an array of level names");
  }
  Target result{.arch = target["arch"].get<std::string>()};
  for (const Json& level : target["cpu"]) {
    if (!level.is_string()) malformed("dovetail.target.cpu", "an array of level names");
    result.cpu.push_back(level.get<std::string>());
  }
  return result;
}

std::map<std::string, std::string> read_config(const Json& dovetail, const std::string& source) {
  std::map<std::string, std::string> out;
  if (!dovetail.is_object() || !dovetail.contains("config")) return out;
  const Json& config = dovetail["config"];
  for (const auto& [part, constants] : config.items()) {
    if (config.is_object() && constants.is_string()) out[part] = constants.get<std::string>();
  }
  if (!config.is_object() || out.size() != config.size()) {
    throw Error(ErrorCode::kMalformed, Problem{.message = "wrong type",
                                               .source = source,
                                               .field = "dovetail.config",
                                               .expected = "an object of strings"});
  }
  return out;
}

void set_metadata(LibraryFile& file, std::string text) {
  const std::string source = file.path.filename().string() + ": _metadata";
  file.metadata = contract::parse_metadata(text, source);
  file.target = read_target(file.metadata->dovetail, source);
  file.config = read_config(file.metadata->dovetail, source);
  file.metadata_text = std::move(text);
}

// The words of the system's loader, without TVM's around them, which repeat the path.
std::string loader_message(const std::string& text, const std::string& path) {
  const size_t at = text.find(path + ' ');
  std::string out = at == std::string::npos ? text : text.substr(at + path.size() + 1);
  if (out.starts_with(path + ": ")) out.erase(0, path.size() + 2);
  return out;
}

}  // namespace

bool LibraryFile::has_function(std::string_view name) const {
  return std::binary_search(functions.begin(), functions.end(), name);
}

std::optional<Problem> LibraryFile::no_model() const {
  if (has_function(contract::kMetadata)) return std::nullopt;
  return Problem{.message = "this is not a compiled model: the function _metadata is missing",
                 .source = path.string(),
                 .hint = "give a library made by 'dovetail compile'"};
}

std::optional<Problem> LibraryFile::unfit_machine() const {
  const std::string& built_for = target ? target->arch : arch;
  if (arch != cpu_arch() || built_for != cpu_arch()) {
    return Problem{.message = "the library was built for another kind of processor",
                   .source = path.string(),
                   .expected = std::string(cpu_arch()) + " (this machine)",
                   .actual = arch != cpu_arch() ? arch : built_for,
                   .hint = "compile the package on this machine with 'dovetail compile'"};
  }
  if (!target) return std::nullopt;
  const std::vector<std::string> levels = cpu_levels();
  for (const std::string& level : target->cpu) {
    if (std::find(levels.begin(), levels.end(), level) != levels.end()) return std::nullopt;
  }
  // What `dovetail compile` builds for.
  const bool can_be_compiled = std::find(levels.begin(), levels.end(), "x86-64-v3") != levels.end();
  return Problem{
      .message = "the library needs instructions that this machine's processor does not have",
      .source = path.string(),
      .field = "_metadata.dovetail.target.cpu",
      .expected = "one of this machine's levels: " + joined(levels),
      .actual = "built for " + joined(target->cpu),
      .hint = can_be_compiled
                  ? "compile it for this machine: 'dovetail compile PACKAGE --cpu " + levels.back() + "'"
                  : "libraries need at least x86-64-v3 (AVX2 and FMA): use another machine"};
}

LibraryFile inspect_library(const std::filesystem::path& path) {
  LibraryFile file{.path = path};
  const std::shared_ptr<const MappedFile> mapping = MappedFile::open(path);
  const ElfFile elf(mapping->bytes(), path.string());
  file.arch = elf.arch();
  const std::string_view prefix = ffi::symbol::tvm_ffi_symbol_prefix;
  for (const std::string& symbol : elf.exported_symbols()) {
    if (symbol == ffi::symbol::tvm_ffi_library_bin) {
      throw Error(
          ErrorCode::kUnsupported,
          Problem{.message = "this is a library of TVM's Relax virtual machine, which this version can't run",
                  .source = path.string(),
                  .hint = "compile the package with 'dovetail compile'"});
    }
    const bool description = symbol.starts_with(ffi::symbol::tvm_ffi_metadata_prefix) ||
                             symbol.starts_with(ffi::symbol::tvm_ffi_doc_prefix);
    if (symbol.starts_with(prefix) && !description) file.functions.push_back(symbol.substr(prefix.size()));
  }
  if (const auto section = elf.section(kMetadataSection)) {
    std::string text(reinterpret_cast<const char*>(section->data()), section->size());
    while (!text.empty() && text.back() == '\0') text.pop_back();
    set_metadata(file, std::move(text));
  }
  return file;
}

Library Library::load(LibraryFile file) {
  const std::string given = file.path.string();
  const std::string path = std::filesystem::absolute(file.path).string();
  for (std::optional<Problem> problem : {file.no_model(), file.unfit_machine()})
    if (problem) throw Error(ErrorCode::kMismatch, std::move(*problem));
  try {
    // Not Module::LoadFromFile, which takes the end of the file's name for its format. Without a slash the
    // system's loader would search its own directories.
    ffi::Module module =
        ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so")(ffi::String(path), ffi::String("so"))
            .cast<ffi::Module>();
    Library library(std::move(file), std::move(module));
    const std::optional<LibraryFunction> metadata = library.find(contract::kMetadata);
    if (!metadata) {
      throw Error(
          ErrorCode::kMalformed,
          Problem{.message = "the system's loader does not find _metadata, which the file's tables name: "
                             "the file was altered",
                  .source = library.path().string(),
                  .hint = "compile the package again with 'dovetail compile'"});
    }
    std::string text = metadata->get<ffi::String>();
    if (!library.file_.metadata) {
      set_metadata(library.file_, std::move(text));
    } else if (text != library.file_.metadata_text) {
      throw Error(
          ErrorCode::kMalformed,
          Problem{.message = "the metadata section and the function _metadata disagree: the file was altered",
                  .source = library.path().string(),
                  .hint = "compile the library again with 'dovetail compile'"});
    }
    return library;
  } catch (const ffi::Error& error) {
    throw Error(ErrorCode::kUnsupported,
                Problem{.message = "the library can't be loaded: " + loader_message(error.message(), path),
                        .source = given,
                        .hint = "compile the package again with 'dovetail compile'"});
  }
}

std::optional<LibraryFunction> Library::find(std::string_view name) const {
  const ffi::Optional<ffi::Function> function = module_->GetFunction(ffi::String(std::string(name)));
  if (!function) return std::nullopt;
  return LibraryFunction(std::string(name), path().string(), *function);
}

}  // namespace dovetail::library
