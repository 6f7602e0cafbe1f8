#include "contract/manifest.h"

#include "contract/canonical.h"
#include "contract/reader.h"

namespace dovetail::contract {
namespace {

constexpr std::string_view kSchema = "mlc.model-package";
constexpr std::string_view kAudioKind = "audio_decode";
constexpr std::string_view kImageKind = "image_decode";

AudioDecode read_audio(ObjectReader& fields, ProblemList& problems) {
  fields.choice("format", {"pcm_f32"});
  const auto rate = fields.integer("sample_rate_hz", 1);
  fields.constant("channels", 1);
  const auto min = fields.integer("min_samples", 1, 1);
  const auto max = fields.integer("max_samples", 1);
  fields.refuse_unknown();
  if (min && max && *min > *max) {
    problems.add({.message = "below min_samples",
                  .field = fields.path("max_samples"),
                  .expected = "at least " + std::to_string(*min),
                  .actual = std::to_string(*max)});
  }
  return {.sample_rate_hz = rate.value_or(0), .min_samples = min.value_or(1), .max_samples = max.value_or(0)};
}

ImageDecode read_image(ObjectReader& fields, ProblemList& problems) {
  ImageDecode image;
  fields.choice("format", {"rgb_u8"});
  fields.choice("layout", {"nhwc"});
  if (const Json* const resize = fields.required("resize")) {
    ObjectReader size(*resize, fields.path("resize"), problems);
    const std::string mode = size.choice("mode", {"stretch", "center_crop"});
    image.resize.mode = mode == "center_crop" ? ResizeMode::kCenterCrop : ResizeMode::kStretch;
    image.resize.height = size.integer("height", 1).value_or(0);
    image.resize.width = size.integer("width", 1).value_or(0);
    size.refuse_unknown();
  }
  image.num_embeddings = fields.integer("num_embeddings", 1).value_or(0);
  fields.refuse_unknown();
  return image;
}

Processor read_processor(const Json& value, const std::string& path, ProblemList& problems) {
  if (value.is_string()) {
    if (value.get_ref<const std::string&>() != kTokenizer) {
      problems.add({.message = "unknown processor",
                    .field = path,
                    .expected = "\"tokenizer\" or an object of kind " + any_of({kAudioKind, kImageKind}),
                    .actual = describe(value),
                    .hint = "the package needs a newer frontend, or the name is misspelt"});
    }
    return value.get<std::string>();
  }
  if (!value.is_object()) {
    problems.add({.message = "wrong value",
                  .field = path,
                  .expected = "the name of a processor or an object",
                  .actual = describe(value)});
    return std::string();
  }
  ObjectReader fields(value, path, problems);
  const std::string kind = fields.choice("kind", {kAudioKind, kImageKind});
  if (kind == kAudioKind) return read_audio(fields, problems);
  if (kind == kImageKind) return read_image(fields, problems);
  return std::string();
}

std::vector<int64_t> read_token_ids(ObjectReader& fields, std::string_view name, ProblemList& problems) {
  std::vector<int64_t> ids;
  const Json* const value = fields.optional(name);
  if (!value) return ids;
  if (!value->is_array()) {
    problems.add({.message = "wrong value",
                  .field = fields.path(name),
                  .expected = "an array of token IDs",
                  .actual = describe(*value)});
    return ids;
  }
  ids.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) {
    std::optional<int64_t> id = as_integer((*value)[i]);
    if (!id || *id < 0) id = read_integer((*value)[i], element_path(fields.path(name), i), 0, problems);
    ids.push_back(id.value_or(0));
  }
  return ids;
}

Prompt read_prompt(const Json& value, const std::string& path, ProblemList& problems) {
  Prompt prompt;
  ObjectReader fields(value, path, problems);
  prompt.prefix_token_ids = read_token_ids(fields, "prefix_token_ids", problems);
  prompt.placeholder_token_id = fields.integer("placeholder_token_id", 0).value_or(0);
  prompt.suffix_token_ids = read_token_ids(fields, "suffix_token_ids", problems);
  fields.refuse_unknown();
  return prompt;
}

Input read_input(const Json& value, const std::string& path, ProblemList& problems) {
  Input input;
  ObjectReader fields(value, path, problems);
  if (const Json* const processor = fields.required("processor")) {
    input.processor = read_processor(*processor, fields.path("processor"), problems);
  }
  const Json* const adapter = fields.optional("adapter");
  const Json* const prompt = fields.optional("prompt");
  if (adapter) input.adapter = read_text(*adapter, fields.path("adapter"), problems);
  if (prompt) input.prompt = read_prompt(*prompt, fields.path("prompt"), problems);
  if (fields && !adapter != !prompt) {
    problems.add({.message = adapter ? "an adapter needs the prompt whose placeholders it fills"
                                     : "a prompt needs the adapter that fills its placeholders",
                  .field = path,
                  .expected = "adapter and prompt, or neither",
                  .actual = adapter ? "adapter only" : "prompt only"});
  }
  fields.refuse_unknown();
  return input;
}

Task read_task(const Json& value, const std::string& path, ProblemList& problems) {
  Task task;
  ObjectReader fields(value, path, problems);
  task.executor = fields.text("executor");
  fields.members("inputs", true, 1,
                 [&](const std::string& name, const Json& input, const std::string& there) {
                   task.inputs.emplace_back(name, read_input(input, there, problems));
                 });
  task.output = fields.text("output");
  fields.refuse_unknown();
  return task;
}

Tasks read_tasks(ObjectReader& fields, ProblemList& problems) {
  Tasks tasks;
  fields.members("tasks", true, 1, [&](const std::string& name, const Json& task, const std::string& there) {
    tasks.emplace_back(name, read_task(task, there, problems));
  });
  return tasks;
}

Json processor_json(const Processor& processor) {
  if (const auto* const audio = std::get_if<AudioDecode>(&processor)) {
    return {{"kind", kAudioKind},
            {"format", "pcm_f32"},
            {"sample_rate_hz", audio->sample_rate_hz},
            {"channels", audio->channels},
            {"min_samples", audio->min_samples},
            {"max_samples", audio->max_samples}};
  }
  if (const auto* const image = std::get_if<ImageDecode>(&processor)) {
    return {{"kind", kImageKind},
            {"format", "rgb_u8"},
            {"layout", "nhwc"},
            {"resize", Json{{"mode", resize_mode_name(image->resize.mode)},
                            {"height", image->resize.height},
                            {"width", image->resize.width}}},
            {"num_embeddings", image->num_embeddings}};
  }
  return std::get<std::string>(processor);
}

Json tasks_json(const Tasks& tasks, bool with_defaults) {
  Json result = Json::object();
  for (const auto& [task_name, task] : tasks) {
    Json inputs = Json::object();
    for (const auto& [input_name, input] : task.inputs) {
      Json& entry = inputs[input_name];
      entry["processor"] = processor_json(input.processor);
      if (input.adapter) entry["adapter"] = *input.adapter;
      if (!input.prompt) continue;
      Json& prompt = entry["prompt"] = Json::object();
      if (with_defaults || !input.prompt->prefix_token_ids.empty()) {
        prompt["prefix_token_ids"] = input.prompt->prefix_token_ids;
      }
      prompt["placeholder_token_id"] = input.prompt->placeholder_token_id;
      if (with_defaults || !input.prompt->suffix_token_ids.empty()) {
        prompt["suffix_token_ids"] = input.prompt->suffix_token_ids;
      }
    }
    result[task_name] =
        Json{{"executor", task.executor}, {"inputs", std::move(inputs)}, {"output", task.output}};
  }
  return result;
}

}  // namespace

std::string_view resize_mode_name(ResizeMode mode) {
  return mode == ResizeMode::kStretch ? "stretch" : "center_crop";
}

PackageManifest parse_package_manifest(std::string_view bytes, std::string_view source) {
  // RFC 8259 lets a reader ignore a byte order mark, and the first consumer of these files does.
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);
  const Json document = parse_json(bytes, source);
  ProblemList problems{std::string(source)};
  PackageManifest manifest;
  ObjectReader fields(document, "", problems);
  fields.choice("schema", {kSchema});
  fields.constant("schema_version", 1);
  if (fields.optional("chat_config")) manifest.chat_config = fields.choice("chat_config", {kChatConfigFile});
  manifest.interface_id = fields.id("interface_id");
  if (const Json* const weights = fields.required("weights")) {
    ObjectReader weight_fields(*weights, "weights", problems);
    manifest.weights_manifest = weight_fields.choice("manifest", {kTensorCacheFile});
    manifest.parameter_schema_id = weight_fields.id("parameter_schema_id");
    weight_fields.refuse_unknown();
  }
  manifest.tasks = read_tasks(fields, problems);
  fields.refuse_unknown();
  if (problems.empty()) {
    const std::string computed = interface_id(manifest.tasks);
    if (computed != manifest.interface_id) {
      problems.add(
          {.message = "not the hash of the tasks",
           .field = "interface_id",
           .expected = computed,
           .actual = manifest.interface_id,
           .hint = "the tasks were edited after the identifier was computed: convert the model again"});
    }
  }
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, problems.take());
  return manifest;
}

Tasks parse_tasks(const Json& tasks, std::string_view source) {
  ProblemList problems{std::string(source)};
  const Json document{{"tasks", tasks}};
  ObjectReader fields(document, "", problems);
  Tasks result = read_tasks(fields, problems);
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, problems.take());
  return result;
}

Json to_json(const Tasks& tasks) { return tasks_json(tasks, false); }

Json canonical_tasks(const Tasks& tasks) { return tasks_json(tasks, true); }

Json to_json(const PackageManifest& manifest) {
  return {{"schema", kSchema},
          {"schema_version", 1},
          {"chat_config", manifest.chat_config},
          {"interface_id", manifest.interface_id},
          {"weights", Json{{"manifest", manifest.weights_manifest},
                           {"parameter_schema_id", manifest.parameter_schema_id}}},
          {"tasks", to_json(manifest.tasks)}};
}

}  // namespace dovetail::contract
