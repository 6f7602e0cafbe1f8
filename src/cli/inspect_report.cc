#include "base/progress.h"
#include "cli/inspect.h"

namespace dovetail::cli {
namespace {

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// By the names of Hugging Face checkpoints and packages, and by those of GGUF files.
const char* part_of_model(std::string_view name) {
  if (has(name, "audio") || name.starts_with("a.") || name.starts_with("mm.a.")) return "audio";
  if (has(name, "vision") || has(name, "multi_modal_projector") || name.starts_with("v.") ||
      name.starts_with("mm."))
    return "vision";
  if (has(name, "embed_tokens") || has(name, "lm_head") || has(name, "token_embd") || name == "output.weight")
    return "embedding";
  return "text";
}

}  // namespace

void Inspection::finish() const {
  if (as_json_) print_document(json);
}

void WeightSums::add(const std::string& name, const std::string& type, int64_t bytes, int64_t values) {
  for (Sum* sum : {&types_[type], &parts_[part_of_model(name)]}) {
    ++sum->tensors;
    sum->bytes += bytes;
  }
  sized_.push_back({name, bytes});
  bytes_ += bytes;
  values_ += values;
}

Json WeightSums::to_json(const std::map<std::string, Sum>& sums) {
  Json out = Json::object();
  for (const auto& [name, sum] : sums) out[name] = {{"tensors", sum.tensors}, {"bytes", sum.bytes}};
  return out;
}

void WeightSums::show(Inspection& out) const {
  const auto rows = [&](const std::map<std::string, Sum>& sums) {
    for (const auto& [name, sum] : sums)
      out.row("  " + name, counted(sum.tensors, "tensor") + ", " + format_bytes(sum.bytes));
  };
  rows(types_);
  if (parts_.size() > 1) rows(parts_);
  Json& json = out.json["weights"];
  json["tensors"] = tensors();
  json["bytes"] = bytes_;
  if (values_ > 0) json["values"] = values_;
  json["types"] = to_json(types_);
  json["parts"] = to_json(parts_);
}

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : std::string(separator)) + item;
  return out;
}

}  // namespace dovetail::cli
