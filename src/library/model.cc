#include "library/model.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "contract/match.h"
#include "library/compatibility.h"
#include "library/cpu.h"
#include "package/weight_check.h"

namespace dovetail::library {
namespace ffi = tvm::ffi;
namespace {

std::vector<std::filesystem::path> libraries_in(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().extension() == ".so") paths.push_back(entry.path());
  }
  // A folder that can't be read is not one without libraries.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw Error(ErrorCode::kIo,
                Problem{.message = "opening failed: " + error.message(), .source = dir.string()});
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The position of the best level that both the library and this machine have; 0 when the library does not
// say.
size_t best_level(const LibraryFile& file) {
  size_t best = 0;
  if (!file.target) return best;
  const std::vector<std::string> levels = cpu_levels();
  for (const std::string& level : file.target->cpu) {
    const auto at = std::find(levels.begin(), levels.end(), level);
    if (at != levels.end()) best = std::max<size_t>(best, at - levels.begin() + 1);
  }
  return best;
}

// The fitting library with the best level; when none fits, what is wrong with each.
LibraryFile choose(const PackageDocuments& package, const std::vector<std::filesystem::path>& paths) {
  std::optional<LibraryFile> best;
  std::vector<Problem> problems;
  ErrorCode code = ErrorCode::kMismatch;
  for (const std::filesystem::path& path : paths) {
    try {
      LibraryFile file = inspect_library(path);
      std::vector<Problem> wrong = mismatches(package, file);
      if (!wrong.empty()) {
        problems.insert(problems.end(), wrong.begin(), wrong.end());
      } else if (!best || best_level(file) > best_level(*best)) {
        best = std::move(file);
      }
    } catch (const Error& error) {
      code = error.code();
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (best) return std::move(*best);
  throw Error(code, std::move(problems));
}

ffi::Array<ffi::Tensor> bind_parameters(const package::TensorCache& weights,
                                        const std::vector<contract::ParameterRecord>& parameters) {
  ffi::Array<ffi::Tensor> tensors;
  tensors.reserve(static_cast<int64_t>(parameters.size()));
  for (const contract::ParameterRecord& parameter : parameters) {
    const package::StoredTensor& stored = weights.get(parameter.name);
    if (stored.stored_as_bf16) {
      auto values = std::make_shared<std::vector<float>>(weights.materialize(stored));
      const float* data = values->data();
      tensors.push_back(borrow_tensor(data, stored.shape, DType::kFloat32, std::move(values)));
    } else {
      tensors.push_back(borrow_tensor(weights.bytes(stored).data(), stored.shape, stored.dtype,
                                      weights.shards()[stored.shard].mapping));
    }
  }
  return tensors;
}

// Without a manifest: text in, text out.
contract::Task chat_task(const PackageDocuments& documents) {
  if (documents.manifest) return *contract::find_named(documents.manifest->tasks, contract::kChatTask);
  contract::Task task{.executor = "generation", .output = "text"};
  task.inputs.emplace_back("text", contract::Input{.processor = std::string(contract::kTokenizer)});
  return task;
}

}  // namespace

std::vector<std::filesystem::path> package_libraries(const std::filesystem::path& package) {
  std::vector<std::filesystem::path> paths = libraries_in(package / "lib");
  return paths.empty() ? libraries_in(package) : paths;
}

Model open_model(const std::filesystem::path& package, const std::optional<std::filesystem::path>& library) {
  PackageDocuments documents = read_package_documents(package);
  const std::vector<std::filesystem::path> candidates =
      library ? std::vector<std::filesystem::path>{*library} : package_libraries(package);
  if (candidates.empty()) {
    throw Error(ErrorCode::kNotFound,
                Problem{.message = "the package has no compiled library",
                        .source = package.string(),
                        .expected = "lib/*.so",
                        .hint = "make one with 'dovetail compile " + package.string() + "'"});
  }
  LibraryFile file = choose(documents, candidates);
  const bool checked = file.metadata.has_value();
  Library loaded = Library::load(std::move(file));
  if (!checked) {
    std::vector<Problem> problems = mismatches(documents, loaded.file());
    if (!problems.empty()) throw Error(ErrorCode::kMismatch, std::move(problems));
  }
  contract::Task task = chat_task(documents);
  Program program(loaded, documents.manifest
                              ? *contract::find_named(loaded.metadata().artifact->programs, task.executor)
                              : program_by_names(loaded.file()));
  Model model{.package = package,
              .manifest = std::move(documents.manifest),
              .task = std::move(task),
              .chat_config = std::move(documents.chat_config),
              .tokenizer = package::Tokenizer::from_file(package / "tokenizer.json"),
              .weights = std::move(documents.tensors),
              .library = std::move(loaded),
              .program = std::move(program)};
  package::check_weights(package, model.weights);
  model.program.set_parameters(bind_parameters(model.weights, *model.metadata().params));
  return model;
}

}  // namespace dovetail::library
