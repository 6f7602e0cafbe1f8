#include "contract/match.h"
#include "contract/reader.h"

namespace dovetail::contract {
namespace {

std::optional<std::set<std::string>> read_name_set(const Json& value, const std::string& path,
                                                   ProblemList& problems) {
  if (!value.is_array()) {
    problems.add({.message = "wrong value",
                  .field = path,
                  .expected = "an array of names",
                  .actual = describe(value)});
    return std::nullopt;
  }
  std::set<std::string> names;
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto name = read_text(value[i], element_path(path, i), problems)) names.insert(std::move(*name));
  }
  return names;
}

void add_dimensions(const Json& object, NamedDimensions& dimensions) {
  for (const auto& [name, value] : object.items()) {
    if (const auto number = as_integer(value); number && *number >= 0) dimensions.emplace(name, *number);
  }
}

void finish(ProblemList& problems) {
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, problems.take());
}

}  // namespace

void add_chat_config(MatchContext& context, std::string_view bytes, std::string_view source) {
  const Json document = parse_json(bytes, source);
  ProblemList problems{std::string(source)};
  ObjectReader fields(document, "", problems);
  if (fields) {
    context.vocab_size = fields.integer("vocab_size", 1);
    // The model config decides; the same names one level up stand in for it.
    if (const Json* const model = fields.optional("model_config"); model && model->is_object()) {
      add_dimensions(*model, context.named_dimensions);
    }
    add_dimensions(document, context.named_dimensions);
  }
  finish(problems);
}

void add_device(MatchContext& context, std::string_view bytes, std::string_view source) {
  const Json document = parse_json(bytes, source);
  ProblemList problems{std::string(source)};
  ObjectReader fields(document, "", problems);
  Device device;
  if (const Json* const features = fields.optional("features")) {
    device.features = read_name_set(*features, fields.path("features"), problems);
  }
  if (const Json* const limit = fields.optional("maxStorageBufferBindingSize")) {
    device.max_storage_buffer_binding_size =
        read_integer(*limit, fields.path("maxStorageBufferBindingSize"), 0, problems);
  }
  finish(problems);
  context.device = std::move(device);
}

void add_functions(MatchContext& context, std::string_view bytes, std::string_view source) {
  const Json document = parse_json(bytes, source);
  ProblemList problems{std::string(source)};
  const auto names = read_name_set(document, "functions", problems);
  finish(problems);
  context.functions.emplace(names->begin(), names->end());
}

}  // namespace dovetail::contract
