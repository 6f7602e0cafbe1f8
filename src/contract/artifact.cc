#include "contract/artifact.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "contract/reader.h"

namespace dovetail::contract {
namespace {

constexpr std::string_view kSchema = "mlc.compiled-program";

Named<std::string> read_names(ObjectReader& fields, std::string_view name, bool is_required,
                              ProblemList& problems) {
  Named<std::string> names;
  fields.members(name, is_required, is_required ? 1 : 0,
                 [&](const std::string& key, const Json& value, const std::string& path) {
                   names.emplace_back(key, read_text(value, path, problems).value_or(""));
                 });
  return names;
}

Program read_program(const Json& value, const std::string& path, ProblemList& problems) {
  Program program;
  ObjectReader fields(value, path, problems);
  program.kind = fields.text("kind");
  program.exports = read_names(fields, "exports", true, problems);
  program.adapters = read_names(fields, "adapters", false, problems);
  program.adapter_dtypes = read_names(fields, "adapter_dtypes", false, problems);
  for (const auto& [adapter, dtype] : program.adapter_dtypes) {
    if (find_named(program.adapters, adapter)) continue;
    problems.add({.message = "names no adapter of the program",
                  .field = member_path(fields.path("adapter_dtypes"), adapter),
                  .expected = "a name from " + fields.path("adapters"),
                  .actual = in_quotes(adapter)});
  }
  fields.refuse_unknown();
  return program;
}

Resources read_resources(const Json& value, const std::string& path, ProblemList& problems) {
  Resources resources;
  ObjectReader fields(value, path, problems);
  if (const Json* const features = fields.required("required_features")) {
    const std::string here = fields.path("required_features");
    if (!features->is_array()) {
      problems.add({.message = "wrong value",
                    .field = here,
                    .expected = "an array of feature names",
                    .actual = describe(*features)});
    } else {
      for (size_t i = 0; i < features->size(); ++i) {
        if (auto name = read_text((*features)[i], element_path(here, i), problems)) {
          resources.required_features.push_back(std::move(*name));
        }
      }
    }
  }
  resources.max_storage_buffer_binding_size =
      fields.integer("max_storage_buffer_binding_size", 0).value_or(0);
  resources.estimated_device_memory_bytes = fields.integer("estimated_device_memory_bytes", 0).value_or(0);
  fields.refuse_unknown();
  return resources;
}

CompiledProgram read_artifact(const Json& value, const std::string& path, ProblemList& problems) {
  CompiledProgram artifact;
  ObjectReader fields(value, path, problems);
  fields.choice("schema", {kSchema});
  fields.constant("schema_version", 1);
  artifact.interface_id = fields.id("interface_id");
  artifact.parameter_schema_id = fields.id("parameter_schema_id");
  fields.members("programs", true, 1,
                 [&](const std::string& name, const Json& program, const std::string& there) {
                   artifact.programs.emplace_back(name, read_program(program, there, problems));
                 });
  if (const Json* const resources = fields.required("resources")) {
    artifact.resources = read_resources(*resources, fields.path("resources"), problems);
  }
  fields.refuse_unknown();
  return artifact;
}

std::vector<Dimension> read_shape(const Json& value, const std::string& path, ProblemList& problems) {
  std::vector<Dimension> shape;
  if (!value.is_array()) {
    problems.add(
        {.message = "wrong value", .field = path, .expected = "an array", .actual = describe(value)});
    return shape;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const Json& dimension = value[i];
    if (dimension.is_string() && !dimension.get_ref<const std::string&>().empty()) {
      shape.emplace_back(dimension.get<std::string>());
    } else if (const auto size = as_integer(dimension); size && *size >= 0) {
      shape.emplace_back(*size);
    } else {
      problems.add({.message = "wrong value",
                    .field = element_path(path, i),
                    .expected = "a size or the name of a dimension",
                    .actual = describe(dimension)});
    }
  }
  return shape;
}

std::vector<ParameterRecord> read_params(const Json& value, ProblemList& problems) {
  std::vector<ParameterRecord> params;
  if (!value.is_array()) {
    problems.add(
        {.message = "wrong value", .field = "params", .expected = "an array", .actual = describe(value)});
    return params;
  }
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string path = element_path("params", i);
    ObjectReader fields(value[i], path, problems);
    ParameterRecord record;
    record.name = fields.text("name");
    if (const Json* const shape = fields.required("shape")) {
      record.shape = read_shape(*shape, fields.path("shape"), problems);
    }
    record.dtype = fields.text("dtype");
    if (!record.name.empty() && !names.insert(record.name).second) {
      problems.add({.message = "a second parameter of this name",
                    .field = fields.path("name"),
                    .actual = in_quotes(record.name)});
    }
    params.push_back(std::move(record));
  }
  return params;
}

std::optional<int64_t> read_setting(ObjectReader& fields, std::string_view name, ProblemList& problems) {
  const Json* const value = fields.optional(name);
  if (!value || value->is_null()) return std::nullopt;
  return read_integer(*value, fields.path(name), -1, problems);
}

std::string read_label(ObjectReader& fields, std::string_view name, ProblemList& problems) {
  const Json* const value = fields.optional(name);
  if (!value || value->is_null()) return "";
  return read_text(*value, fields.path(name), problems).value_or("");
}

constexpr std::array kKvStateKinds = {KvStateKind::kKvCache, KvStateKind::kRnnState, KvStateKind::kHybrid,
                                      KvStateKind::kNone};

KvStateKind read_kv_state_kind(ObjectReader& fields) {
  // Libraries from before the field have a KV cache.
  const Json* const value = fields.optional("kv_state_kind");
  if (!value || value->is_null()) return KvStateKind::kKvCache;
  const std::string name = fields.choice("kv_state_kind", {"kv_cache", "rnn_state", "hybrid", "none"});
  const auto found = std::find_if(kKvStateKinds.begin(), kKvStateKinds.end(),
                                  [&](KvStateKind kind) { return kv_state_kind_name(kind) == name; });
  return found == kKvStateKinds.end() ? KvStateKind::kKvCache : *found;
}

Json names_json(const Named<std::string>& names) {
  Json result = Json::object();
  for (const auto& [key, value] : names) result[key] = value;
  return result;
}

}  // namespace

std::string_view kv_state_kind_name(KvStateKind kind) {
  switch (kind) {
    case KvStateKind::kKvCache:
      return "kv_cache";
    case KvStateKind::kRnnState:
      return "rnn_state";
    case KvStateKind::kHybrid:
      return "hybrid";
    case KvStateKind::kNone:
      return "none";
  }
  return "";
}

CompiledProgram parse_artifact(const Json& artifact, std::string_view source, std::string_view path) {
  ProblemList problems{std::string(source)};
  CompiledProgram result = read_artifact(artifact, std::string(path), problems);
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, problems.take());
  return result;
}

LibraryMetadata parse_metadata(std::string_view bytes, std::string_view source) {
  const Json document = parse_json(bytes, source);
  ProblemList problems{std::string(source)};
  LibraryMetadata metadata;
  ObjectReader fields(document, "", problems);
  metadata.model_type = read_label(fields, "model_type", problems);
  metadata.quantization = read_label(fields, "quantization", problems);
  metadata.context_window_size = read_setting(fields, "context_window_size", problems);
  metadata.sliding_window_size = read_setting(fields, "sliding_window_size", problems);
  metadata.attention_sink_size = read_setting(fields, "attention_sink_size", problems);
  metadata.prefill_chunk_size = read_setting(fields, "prefill_chunk_size", problems);
  metadata.max_batch_size = read_setting(fields, "max_batch_size", problems);
  metadata.tensor_parallel_shards = read_setting(fields, "tensor_parallel_shards", problems);
  metadata.pipeline_parallel_stages = read_setting(fields, "pipeline_parallel_stages", problems);
  metadata.vocab_size = read_setting(fields, "vocab_size", problems);
  metadata.active_vocab_size = read_setting(fields, "active_vocab_size", problems);
  metadata.kv_state_kind = read_kv_state_kind(fields);
  if (const Json* const params = fields.optional("params")) metadata.params = read_params(*params, problems);
  if (const Json* const own = fields.optional("dovetail")) {
    if (!own->is_object()) {
      problems.add(
          {.message = "wrong value", .field = "dovetail", .expected = "an object", .actual = describe(*own)});
    }
    metadata.dovetail = *own;
  }
  if (const Json* const artifact = fields.optional("artifact")) {
    ProblemList artifact_problems{std::string(source)};
    CompiledProgram parsed = read_artifact(*artifact, "artifact", artifact_problems);
    if (artifact_problems.empty()) {
      metadata.artifact = std::move(parsed);
    } else {
      metadata.artifact_problems = artifact_problems.take();
    }
  }
  if (!problems.empty()) {
    for (Problem& problem : metadata.artifact_problems) problems.add(std::move(problem));
    throw Error(ErrorCode::kMalformed, problems.take());
  }
  return metadata;
}

Json to_json(const CompiledProgram& artifact) {
  Json programs = Json::object();
  for (const auto& [name, program] : artifact.programs) {
    Json& entry = programs[name] = Json::object();
    entry["kind"] = program.kind;
    entry["exports"] = names_json(program.exports);
    if (!program.adapters.empty()) entry["adapters"] = names_json(program.adapters);
    if (!program.adapter_dtypes.empty()) entry["adapter_dtypes"] = names_json(program.adapter_dtypes);
  }
  Json resources = Json::object();
  resources["required_features"] = artifact.resources.required_features;
  resources["max_storage_buffer_binding_size"] = artifact.resources.max_storage_buffer_binding_size;
  resources["estimated_device_memory_bytes"] = artifact.resources.estimated_device_memory_bytes;
  Json result = Json::object();
  result["schema"] = kSchema;
  result["schema_version"] = 1;
  result["interface_id"] = artifact.interface_id;
  result["parameter_schema_id"] = artifact.parameter_schema_id;
  result["programs"] = std::move(programs);
  result["resources"] = std::move(resources);
  return result;
}

}  // namespace dovetail::contract
