#include "library/compatibility.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <variant>

#include "base/file.h"
#include "compile/compile.h"
#include "contract/match.h"
#include "package/package.h"
#include "package/paths.h"

namespace dovetail::library {
namespace {

// Named dimensions replaced by their values; nullopt when one has none.
std::optional<std::vector<int64_t>> resolved(const contract::ParameterRecord& parameter,
                                             const contract::NamedDimensions& dimensions) {
  std::vector<int64_t> shape;
  for (const contract::Dimension& dimension : parameter.shape) {
    if (const auto* value = std::get_if<int64_t>(&dimension)) {
      shape.push_back(*value);
      continue;
    }
    const auto found = dimensions.find(std::get<std::string>(dimension));
    if (found == dimensions.end()) return std::nullopt;
    shape.push_back(found->second);
  }
  return shape;
}

std::string type_text(const contract::ParameterRecord& parameter,
                      const contract::NamedDimensions& dimensions) {
  const auto shape = resolved(parameter, dimensions);
  const std::optional<DType> dtype = dtype_from_name(parameter.dtype);
  if (shape && dtype) return package::tensor_type_text(*dtype, *shape);
  return parameter.dtype + " of a shape with a dimension that the chat config does not give";
}

// Parameters that the package stores as something else or lacks. The first few in full, the rest counted.
std::vector<Problem> differing_parameters(const PackageDocuments& package, const LibraryFile& library) {
  constexpr size_t kShown = 5;
  const std::string source(contract::kTensorCacheFile);
  std::vector<Problem> problems;
  size_t others = 0;
  std::vector<const contract::ParameterRecord*> lacking;
  for (const contract::ParameterRecord& parameter : *library.metadata->params) {
    const package::StoredTensor* tensor = package.tensors.find(parameter.name);
    if (tensor == nullptr) {
      lacking.push_back(&parameter);
      continue;
    }
    const auto shape = resolved(parameter, package.dimensions);
    if (shape && tensor->shape == *shape && dtype_name(tensor->dtype) == parameter.dtype) continue;
    if (++others > kShown) continue;
    problems.push_back(
        {.message = "a parameter is stored as something else",
         .source = source,
         .field = parameter.name,
         .expected = type_text(parameter, package.dimensions) + " by the library",
         .actual = package::tensor_type_text(tensor->dtype, tensor->shape) + " in the package"});
  }
  if (others > kShown) {
    problems.push_back(
        {.message = std::to_string(others - kShown) + " more parameters are stored as something else",
         .source = source});
  }
  // A library of another model has hardly one name in common: its list would say nothing more.
  if (lacking.size() == 1) {
    problems.push_back({.message = "the package lacks a parameter of the library",
                        .source = source,
                        .field = lacking.front()->name,
                        .expected = type_text(*lacking.front(), package.dimensions) + " by the library"});
  } else if (!lacking.empty()) {
    problems.push_back({.message = "the package lacks " + std::to_string(lacking.size()) +
                                   " of the library's " + std::to_string(library.metadata->params->size()) +
                                   " parameters; this is the first",
                        .source = source,
                        .field = lacking.front()->name});
  }
  return problems;
}

// True when the manifest describes the parameters that the library takes, so that it is the package's own
// weights that differ from both.
bool manifest_agrees_with(const LibraryFile& library, const PackageDocuments& package) {
  return package.manifest &&
         contract::parameter_schema_id(*library.metadata->params) == package.manifest->parameter_schema_id;
}

// Of program_by_names().
std::vector<Problem> missing_functions(const LibraryFile& library) {
  std::vector<Problem> problems;
  for (const auto& [role, function] : program_by_names(library).exports) {
    if (library.has_function(function)) continue;
    problems.push_back({.message = "the library lacks a function that a package without a manifest needs",
                        .source = library.path.string(),
                        .field = function});
  }
  return problems;
}

std::string compile_hint(const PackageDocuments& package) {
  return "make a library for this package: 'dovetail compile " + package.dir.string() + "'";
}

// A package of MLC may say -1 for a window without an end; a KV cache here has one.
std::vector<Problem> unusable_sizes(const PackageDocuments& package, const LibraryFile& library,
                                    const std::string& library_source) {
  std::vector<Problem> problems;
  const auto need = [&](const std::string& source, const char* field, std::optional<int64_t> size,
                        const std::string& hint) {
    if (size.value_or(1) >= 1) return;
    problems.push_back({.message = "is no number of tokens",
                        .source = source,
                        .field = field,
                        .expected = "at least 1",
                        .actual = std::to_string(*size),
                        .hint = hint});
  };
  need(std::string(contract::kChatConfigFile), "context_window_size", package.chat_config.context_window_size,
       "set it to the number of tokens a conversation may have");
  need(library_source, "context_window_size", library.metadata->context_window_size, compile_hint(package));
  need(library_source, "prefill_chunk_size", library.metadata->prefill_chunk_size, compile_hint(package));
  return problems;
}

// The first entry of `text`, in the form of C++'s designated initialisers, that is not that of `other`.
std::string differing_entry(const std::string& text, const std::string& other) {
  const size_t at = static_cast<size_t>(
      std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first - text.begin());
  size_t begin = std::min(at, text.size());
  while (begin > 0 && !(text[begin] == '.' && (text[begin - 1] == ' ' || text[begin - 1] == '{'))) --begin;
  return printable(text.substr(begin, text.find_first_of(",}", at) - begin), 200);
}

// What neither identifier says: frequencies, windows, epsilons and heads are constants in the library, and
// other ones may leave all shapes as they are. Of a package without a manifest only the text model counts.
std::vector<Problem> differing_constants(const PackageDocuments& package, const LibraryFile& library) {
  if (library.config.empty()) return {};
  std::vector<Problem> problems;
  try {
    const models::ModelPlan plan = compile::plan_package(package.dir);
    for (const auto& [part, constants] : plan.constants.items()) {
      const auto found = library.config.find(part);
      const std::string own = constants.get<std::string>();
      const std::string other = found == library.config.end() ? "" : found->second;
      if (own == other) continue;
      const std::string expected = differing_entry(own, other), actual = differing_entry(other, own);
      problems.push_back({.message = "the library was compiled for another configuration of the model",
                          .source = library.path.filename().string() + ": _metadata",
                          .field = "dovetail.config." + part,
                          .expected = expected + " of the package's model_config",
                          .actual = actual == expected ? "the constants of another version" : actual,
                          .hint = compile_hint(package)});
    }
  } catch (const Error& error) {
    return error.problems();
  }
  return problems;
}

}  // namespace

PackageDocuments read_package_documents(const std::filesystem::path& dir) {
  std::error_code ec;
  if (!std::filesystem::is_directory(dir, ec)) {
    throw Error(ErrorCode::kNotFound,
                Problem{.message = std::filesystem::exists(dir, ec) ? "is not a folder"
                                                                    : "there is no such package folder",
                        .source = dir.string(),
                        .hint = "make one with 'dovetail convert CHECKPOINT'"});
  }
  PackageDocuments documents{.dir = dir};
  std::vector<Problem> problems;
  ErrorCode code = ErrorCode::kMalformed;
  const auto part = [&](const auto& read) {
    try {
      read();
    } catch (const Error& error) {
      code = error.code();
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  };
  constexpr int64_t kLimit = int64_t{64} << 20;
  part([&] { documents.manifest = package::read_manifest(dir); });
  part([&] {
    documents.chat_config = package::read_chat_config(dir);
    contract::MatchContext context;
    contract::add_chat_config(context, read_file(dir / contract::kChatConfigFile, kLimit));
    documents.dimensions = std::move(context.named_dimensions);
  });
  part([&] { documents.tensors = package::TensorCache::open(dir); });
  for (const std::string& file : documents.chat_config.tokenizer_files) {
    if (std::optional<Problem> bad = package::bad_package_file(dir, file))
      problems.push_back(std::move(*bad));
  }
  if (!problems.empty()) throw Error(code, std::move(problems));
  return documents;
}

contract::Program program_by_names(const LibraryFile& library) {
  namespace role = contract::role;
  contract::Program out{.kind = std::string(contract::kTokenGeneration)};
  const bool embeddings = library.has_function("prefill") && library.has_function("decode");
  const bool tokens = library.has_function("prefill_tokens") && library.has_function("decode_tokens");
  out.exports = {{std::string(role::kEmbedTokens), "embed"},
                 {std::string(role::kCreateKvCache), "create_tir_paged_kv_cache"}};
  if (tokens && !embeddings) {
    out.exports.emplace_back(role::kPrefillTokens, "prefill_tokens");
    out.exports.emplace_back(role::kDecodeTokens, "decode_tokens");
  } else {
    out.exports.emplace_back(role::kPrefillEmbeds, "prefill");
    out.exports.emplace_back(role::kDecodeEmbeds, "decode");
  }
  return out;
}

std::vector<Problem> mismatches(const PackageDocuments& package, const LibraryFile& library) {
  if (std::optional<Problem> no_model = library.no_model()) return {std::move(*no_model)};
  std::vector<Problem> problems;
  if (std::optional<Problem> machine = library.unfit_machine()) problems.push_back(std::move(*machine));
  // Without a metadata section the rest is known only after loading.
  if (!library.metadata) return problems;
  contract::MatchContext context;
  context.vocab_size = package.chat_config.vocab_size;
  context.named_dimensions = package.dimensions;
  context.functions = std::set<std::string, std::less<>>(library.functions.begin(), library.functions.end());
  context.metadata_source = library.path.filename().string() + ": _metadata";
  std::vector<Problem> contract_problems =
      package.manifest ? contract::match(*package.manifest, *library.metadata, context)
                       : missing_functions(library);
  const auto one_device = [&](const char* field, std::optional<int64_t> count) {
    if (count.value_or(1) <= 1) return;
    contract_problems.push_back({.message = "the library is divided over several devices",
                                 .source = context.metadata_source,
                                 .field = field,
                                 .expected = "1",
                                 .actual = std::to_string(*count)});
  };
  one_device("tensor_parallel_shards", library.metadata->tensor_parallel_shards);
  one_device("pipeline_parallel_stages", library.metadata->pipeline_parallel_stages);
  // The library is the half that is quickly made anew, unless the package contradicts itself.
  std::string hint = compile_hint(package);
  if (!library.metadata->params) {
    contract_problems.push_back({.message = "the library does not list its parameters",
                                 .source = context.metadata_source,
                                 .field = "params"});
  } else if (const std::vector<Problem> parameters = differing_parameters(package, library);
             !parameters.empty()) {
    contract_problems.insert(contract_problems.end(), parameters.begin(), parameters.end());
    if (manifest_agrees_with(library, package)) {
      hint =
          "the package's manifest does not describe its own weights: make the package anew with "
          "'dovetail convert CHECKPOINT', then 'dovetail compile " +
          package.dir.string() + "'";
    }
  }
  for (Problem& problem : contract_problems) problem.hint = hint;
  if (contract_problems.empty()) contract_problems = differing_constants(package, library);
  problems.insert(problems.end(), contract_problems.begin(), contract_problems.end());
  const std::vector<Problem> sizes = unusable_sizes(package, library, context.metadata_source);
  problems.insert(problems.end(), sizes.begin(), sizes.end());
  return problems;
}

}  // namespace dovetail::library
