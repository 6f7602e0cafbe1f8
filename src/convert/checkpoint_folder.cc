#include "convert/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "package/fields.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr int64_t kMaxBytes = int64_t{64} << 20;
constexpr size_t kMaxListed = 8;

std::vector<std::string> folders_in(const fs::path& dir) {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    if (entry.is_directory(ec)) out.push_back(entry.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i)
    out += (i > 0 ? ", " : "") + printable(names[i], 100);
  return names.size() > kMaxListed ? out + ", …" : out;
}

// The revision that refs/main names; nullopt when there is none of which the folder has a snapshot.
std::optional<std::string> main_revision(const fs::path& dir) {
  std::string text;
  try {
    text = read_file(dir / "refs" / "main", 1 << 10);
  } catch (const Error&) {
    return std::nullopt;
  }
  text.erase(
      std::find_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == ' '; }),
      text.end());
  const bool name = !text.empty() && text != "." && text != ".." && text.find('/') == std::string::npos &&
                    text.find('\0') == std::string::npos;
  std::error_code ec;
  if (!name || !fs::is_directory(dir / "snapshots" / text, ec)) return std::nullopt;
  return text;
}

std::string text_member(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Problem link_to_nothing(const fs::path& link) {
  std::error_code ec;
  return {.message = "is a link to a file that is missing: " + fs::read_symlink(link, ec).string(),
          .source = link.string(),
          .hint = "the download is incomplete: download the model again"};
}

void check_no_pointer(const fs::path& path, std::vector<Problem>& problems) {
  const std::shared_ptr<const MappedFile> file = MappedFile::open(path);
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  if (text.starts_with("version https://git-lfs"))
    problems.push_back({.message = "is a Git LFS pointer, not the file itself",
                        .source = path.string(),
                        .hint = "fetch the files with \"git lfs pull\""});
}

void refuse_adapter(const fs::path& dir) {
  std::error_code ec;
  std::string name;
  for (const char* file : {kAdapterConfig, "adapter_model.safetensors", "adapter_model.bin"}) {
    if (name.empty() && fs::exists(dir / file, ec)) name = file;
  }
  if (name.empty()) return;
  Json config;
  if (name == kAdapterConfig) config = parse_json(read_file(dir / name, kMaxBytes), name);
  const std::string kind = text_member(config, "peft_type"),
                    base = text_member(config, "base_model_name_or_path");
  throw Error(
      ErrorCode::kUnsupported,
      Problem{.message = "the folder holds an adapter (" + (kind.empty() ? "LoRA" : printable(kind, 40)) +
                         ")" + (base.empty() ? "" : " for " + printable(base)) + ", not a model",
              .source = (dir / name).string(),
              .expected = "config.json and the model's weights",
              .hint = "merge the adapter into its model first (PEFT: "
                      "AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload()"
                      ".save_pretrained(MERGED)), then convert the merged folder"});
}

[[noreturn]] void refuse_quantized(std::string source, std::string field, const std::string& tool) {
  throw Error(
      ErrorCode::kUnsupported,
      Problem{.message = "the weights are already quantized, by " + tool,
              .source = std::move(source),
              .field = std::move(field),
              .expected = "weights in BF16, F16 or F32",
              .hint = "take the original checkpoint, from which these weights were made; --quantization "
                      "of this command makes it small"});
}

// "GPTQ, 4 bits"
std::string tool_name(const Json& config) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTools{{
      {"gptq", "GPTQ"},
      {"awq", "AWQ"},
      {"bitsandbytes", "bitsandbytes"},
      {"fp8", "FP8"},
      {"fbgemm_fp8", "FP8 (FBGEMM)"},
      {"compressed-tensors", "compressed-tensors"},
      {"mxfp4", "MXFP4"},
      {"hqq", "HQQ"},
  }};
  const auto bits_are = [&](const char* name) {
    return config.contains(name) && config[name].is_boolean() && config[name].get<bool>();
  };
  const std::string method = text_member(config, "quant_method");
  std::string out =
      method.empty() ? "a tool that config.json does not name" : "\"" + printable(method, 40) + "\"";
  for (const auto& [name, shown] : kTools) {
    if (method == name) out = shown;
  }
  if (method.empty() && (config.contains("load_in_4bit") || config.contains("load_in_8bit")))
    out = "bitsandbytes";
  for (const char* name : {"bits", "w_bit"}) {
    if (config.contains(name) && config[name].is_number_integer())
      return out + ", " + config[name].dump() + " bits";
  }
  if (bits_are("load_in_4bit")) out += ", 4 bits";
  if (bits_are("load_in_8bit")) out += ", 8 bits";
  return out;
}

}  // namespace

fs::path checkpoint_folder(const fs::path& path, std::vector<std::string>& notes) {
  std::error_code ec;
  if (!fs::is_directory(path, ec) || fs::exists(path / kConfig, ec)) return path;
  if (fs::is_directory(path / "snapshots", ec)) {
    const std::vector<std::string> snapshots = folders_in(path / "snapshots");
    std::optional<std::string> revision = main_revision(path);
    if (!revision && snapshots.size() == 1) revision = snapshots.front();
    if (!revision) {
      throw Error(
          ErrorCode::kNotFound,
          Problem{.message = snapshots.empty() ? "the cache folder has no snapshot of the model"
                                               : "the cache folder has several snapshots, and refs/main "
                                                 "names none of them",
                  .source = path.string(),
                  .actual = listed(snapshots),
                  .hint = snapshots.empty() ? "download the model again"
                                            : "give one of them: " + (path / "snapshots" / "NAME").string()});
    }
    notes.push_back("snapshot " + printable(*revision, 80) + " of the cache folder is taken");
    return path / "snapshots" / *revision;
  }
  std::vector<std::string> models = folders_in(path);
  std::erase_if(models, [](const std::string& name) { return !name.starts_with("models--"); });
  if (!models.empty()) {
    throw Error(ErrorCode::kNotFound, Problem{.message = "the folder is the cache of the hub, not a model",
                                              .source = path.string(),
                                              .expected = "one of its models",
                                              .actual = listed(models)});
  }
  return path;
}

void check_folder(const fs::path& dir) {
  std::error_code ec;
  if (!fs::is_directory(dir, ec)) {
    Problem problem{
        .message = fs::exists(dir, ec) ? "is neither a folder nor a GGUF file" : "folder does not exist",
        .source = dir.string(),
        .expected = "a folder with config.json, a tokenizer and safetensors files, or a GGUF file"};
    if (dir.extension() == ".safetensors") problem.hint = "give the folder that the file is in";
    throw Error(ErrorCode::kNotFound, std::move(problem));
  }
  if (!fs::exists(dir / kConfig, ec)) {
    refuse_adapter(dir);
    if (fs::exists(dir / "mlc-chat-config.json", ec))
      throw Error(
          ErrorCode::kNotFound,
          Problem{.message = "the folder is a package already, not a checkpoint",
                  .source = dir.string(),
                  .expected = "config.json and the model's weights",
                  .hint = "'dovetail inspect' shows what it holds; a package of another quantization is "
                          "made from the checkpoint"});
  }
  const auto found = [&](const char* name) { return fs::is_regular_file(dir / name, ec); };
  std::vector<Problem> problems;
  for (const char* name : {kConfig, "tokenizer.json"}) {
    const bool tokenizer = name != kConfig;
    const bool model_alone =
        tokenizer && !fs::exists(fs::symlink_status(dir / name, ec)) && found("tokenizer.model");
    if (model_alone || found(name)) {
      check_no_pointer(dir / (model_alone ? "tokenizer.model" : name), problems);
      continue;
    }
    Problem problem{.message = "file is missing", .source = (dir / name).string()};
    const fs::file_type type = fs::status(dir / name, ec).type();
    if (type == fs::file_type::none) {
      problem.message = "file can't be opened: " + ec.message();
    } else if (type != fs::file_type::not_found) {
      problem.message = "is not a regular file";
    } else if (fs::is_symlink(dir / name, ec)) {
      problem = link_to_nothing(dir / name);
    } else if (tokenizer) {
      problem.message += ", and tokenizer.model too";
    }
    problems.push_back(std::move(problem));
  }
  // Without them the package would be another one.
  for (const char* name :
       {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json"}) {
    if (fs::is_symlink(dir / name, ec) && !fs::exists(dir / name, ec))
      problems.push_back(link_to_nothing(dir / name));
    if (found(name)) check_no_pointer(dir / name, problems);
  }
  if (found("tokenizer.json") && found("tokenizer.model"))
    check_no_pointer(dir / "tokenizer.model", problems);
  if (!problems.empty()) throw Error(ErrorCode::kNotFound, std::move(problems));
}

void check_not_quantized(const fs::path& dir, const Json& config) {
  for (const char* part : {"", "text_config"}) {
    const bool root = *part == '\0';
    if (!config.is_object() || (!root && !config.contains(part))) continue;
    const Json& object = root ? config : config[part];
    for (const char* name : {"quantization_config", "compression_config"}) {
      if (!object.is_object() || !object.contains(name) || object[name].is_null()) continue;
      refuse_quantized(kConfig, (root ? "" : std::string(part) + ".") + name, tool_name(object[name]));
    }
  }
  std::error_code ec;
  for (const auto& [name, tool] : {std::pair{"quantize_config.json", "GPTQ"}, {"quant_config.json", "AWQ"}}) {
    if (!fs::exists(dir / name, ec)) continue;
    Json document = parse_json(read_file(dir / name, kMaxBytes), name);
    if (!document.is_object()) document = Json::object();
    if (text_member(document, "quant_method").empty())
      document["quant_method"] = tool == std::string("GPTQ") ? "gptq" : "awq";
    refuse_quantized(name, "", tool_name(document));
  }
}

void check_not_quantized(const Checkpoint& checkpoint) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 4> kEnds{{
      {".qweight", "GPTQ or AWQ"},
      {".weight.absmax", "bitsandbytes"},
      {".weight_packed", "compressed-tensors"},
      {".weight_scale_inv", "an FP8 tool"},
  }};
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    for (const auto& [end, tool] : kEnds) {
      if (tensor.name.ends_with(end))
        refuse_quantized(checkpoint.files[tensor.file].name, printable(tensor.name), tool);
    }
  }
}

Json read_json_object(const fs::path& dir, const char* name, int64_t limit) {
  std::error_code ec;
  if (!fs::exists(dir / name, ec)) return Json::object();
  Json document = parse_json(read_file(dir / name, limit), name);
  if (!document.is_object()) {
    throw Error(ErrorCode::kMalformed, Problem{.message = "wrong type",
                                               .source = name,
                                               .expected = "an object",
                                               .actual = std::string(package::json_type_name(document))});
  }
  return document;
}

}  // namespace dovetail::convert
