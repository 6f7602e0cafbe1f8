#include "contract/match.h"

#include <algorithm>
#include <array>
#include <limits>

#include "contract/reader.h"

namespace dovetail::contract {
namespace {

constexpr std::array kRoles = {role::kEmbedTokens,   role::kCreateKvCache, role::kPrefillTokens,
                               role::kDecodeTokens,  role::kPrefillEmbeds, role::kDecodeEmbeds,
                               role::kCreateRnnState};

template <class Container>
std::string name_list(const Container& names) {
  std::string text;
  size_t count = 0;
  for (const auto& name : names) {
    if (count == 20) return text + ", …";
    if (count++ > 0) text += ", ";
    text += in_quotes(name);
  }
  return text.empty() ? "none" : text;
}

template <class T>
std::string name_list(const Named<T>& entries) {
  std::vector<std::string_view> names;
  for (const auto& entry : entries) names.push_back(entry.first);
  return name_list<std::vector<std::string_view>>(names);
}

class Matcher {
 public:
  Matcher(const PackageManifest& manifest, const LibraryMetadata& library, const CompiledProgram& artifact,
          const MatchContext& context)
      : manifest_(manifest),
        library_(library),
        artifact_(artifact),
        context_(context),
        problems_(context.metadata_source) {}

  std::vector<Problem> run() {
    check_ids();
    check_programs();
    check_token_ids();
    check_device();
    if (const Task* const task = find_named(manifest_.tasks, kChatTask)) {
      check_task(*task, member_path("tasks", kChatTask));
    } else {
      problems_.add({.message = "has no task that this frontend serves",
                     .source = context_.manifest_source,
                     .field = "tasks",
                     .expected = in_quotes(kChatTask),
                     .actual = name_list(manifest_.tasks)});
    }
    return problems_.take();
  }

 private:
  void check_ids() {
    if (artifact_.interface_id != manifest_.interface_id) {
      problems_.add({.message = "the library was compiled for another interface",
                     .field = "artifact.interface_id",
                     .expected = manifest_.interface_id + " of " + context_.manifest_source,
                     .actual = artifact_.interface_id,
                     .hint = "compile the library again from this package"});
    }
    if (artifact_.parameter_schema_id != manifest_.parameter_schema_id) {
      std::string made_for = library_.model_type;
      if (!library_.quantization.empty()) made_for += (made_for.empty() ? "" : " ") + library_.quantization;
      problems_.add(
          {.message = "the library takes other parameters than the package holds" +
                      (made_for.empty() ? "" : "; it was compiled for " + in_quotes(made_for)),
           .field = "artifact.parameter_schema_id",
           .expected = manifest_.parameter_schema_id + " of " + context_.manifest_source,
           .actual = artifact_.parameter_schema_id,
           .hint = "model and quantization of library and package must be the same: compile the library "
                   "again from this package"});
    }
    if (!library_.params) return;
    const std::string computed = parameter_schema_id(*library_.params);
    if (computed != artifact_.parameter_schema_id) {
      problems_.add({.message = "not the hash of the library's own params",
                     .field = "artifact.parameter_schema_id",
                     .expected = computed,
                     .actual = artifact_.parameter_schema_id,
                     .hint = "the identifier or the parameters were edited: compile the library again"});
    }
  }

  // What the specification asks of every token_generation program, used or not.
  void check_programs() {
    for (const auto& [name, program] : artifact_.programs) {
      if (program.kind != kTokenGeneration) continue;
      const std::string path = member_path(member_path("artifact.programs", name), "exports");
      for (const auto& [role, function] : program.exports) {
        if (std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end()) continue;
        problems_.add({.message = "unknown role",
                       .field = member_path(path, role),
                       .expected = any_of({kRoles.begin(), kRoles.end()}),
                       .actual = in_quotes(role)});
      }
      for (const std::string_view role : {role::kEmbedTokens, role::kCreateKvCache}) {
        if (!find_named(program.exports, role)) {
          problems_.add({.message = "a token_generation program must declare this role",
                         .field = member_path(path, role),
                         .actual = "roles " + name_list(program.exports)});
        }
      }
      const bool tokens = check_pair(program, path, role::kPrefillTokens, role::kDecodeTokens);
      const bool embeds = check_pair(program, path, role::kPrefillEmbeds, role::kDecodeEmbeds);
      if (!tokens && !embeds) {
        problems_.add({.message = "a token_generation program must declare a pair of prefill and decode",
                       .field = path,
                       .expected = "prefill_tokens and decode_tokens, or prefill_embeds and decode_embeds",
                       .actual = "roles " + name_list(program.exports)});
      }
    }
  }

  // Whether the pair is declared at all; half a pair is reported here.
  bool check_pair(const Program& program, const std::string& path, std::string_view prefill,
                  std::string_view decode) {
    const bool has_prefill = find_named(program.exports, prefill) != nullptr;
    const bool has_decode = find_named(program.exports, decode) != nullptr;
    if (has_prefill != has_decode) {
      problems_.add({.message = "half a pair",
                     .field = member_path(path, has_prefill ? decode : prefill),
                     .expected = std::string(prefill) + " and " + std::string(decode),
                     .actual = std::string(has_prefill ? prefill : decode) + " only"});
    }
    return has_prefill || has_decode;
  }

  void check_token_ids() {
    for (const auto& [task_name, task] : manifest_.tasks) {
      for (const auto& [input_name, input] : task.inputs) {
        if (!input.prompt) continue;
        const std::string inputs = member_path(member_path("tasks", task_name), "inputs");
        const std::string path = member_path(member_path(inputs, input_name), "prompt");
        const Prompt& prompt = *input.prompt;
        check_token_id(prompt.placeholder_token_id, [&] { return path + ".placeholder_token_id"; });
        for (size_t i = 0; i < prompt.prefix_token_ids.size(); ++i) {
          check_token_id(prompt.prefix_token_ids[i],
                         [&] { return element_path(path + ".prefix_token_ids", i); });
        }
        for (size_t i = 0; i < prompt.suffix_token_ids.size(); ++i) {
          check_token_id(prompt.suffix_token_ids[i],
                         [&] { return element_path(path + ".suffix_token_ids", i); });
        }
      }
    }
  }

  template <class Path>
  void check_token_id(int64_t id, const Path& path) {
    // Token IDs travel as int32.
    const int64_t limit = int64_t{std::numeric_limits<int32_t>::max()} + 1;
    const int64_t end = std::min(context_.vocab_size.value_or(limit), limit);
    if (id >= 0 && id < end) return;
    problems_.add(
        {.message = context_.vocab_size ? "token outside the vocabulary" : "token does not fit into int32",
         .source = context_.manifest_source,
         .field = path(),
         .expected = "0 to " + std::to_string(end - 1),
         .actual = std::to_string(id)});
  }

  void check_device() {
    if (!context_.device) return;
    const Device& device = *context_.device;
    if (device.features) {
      for (size_t i = 0; i < artifact_.resources.required_features.size(); ++i) {
        const std::string& feature = artifact_.resources.required_features[i];
        if (device.features->contains(feature)) continue;
        problems_.add({.message = "the device lacks a required feature",
                       .field = element_path("artifact.resources.required_features", i),
                       .expected = in_quotes(feature),
                       .actual = "features " + name_list(*device.features),
                       .hint = "use another device, or compile the library for this one"});
      }
    }
    if (!device.max_storage_buffer_binding_size) return;
    // A library that understates its needs would fail later, in the middle of the load.
    int64_t needed = artifact_.resources.max_storage_buffer_binding_size;
    for (const ParameterRecord& parameter : library_.params.value_or(std::vector<ParameterRecord>())) {
      try {
        needed = std::max(needed, parameter_bytes(parameter, context_.named_dimensions));
      } catch (const Error&) {
        // review() names the parameters without a size.
      }
    }
    if (needed > *device.max_storage_buffer_binding_size) {
      problems_.add(
          {.message = "the largest parameter does not fit into one binding of the device",
           .field = "artifact.resources.max_storage_buffer_binding_size",
           .expected = "at most " + std::to_string(*device.max_storage_buffer_binding_size) + " bytes",
           .actual = std::to_string(needed) + " bytes",
           .hint = "use another device, or a quantization with smaller tensors"});
    }
  }

  void check_task(const Task& task, const std::string& path) {
    if (task.output != "text") {
      problems_.add({.message = "unknown output",
                     .source = context_.manifest_source,
                     .field = member_path(path, "output"),
                     .expected = "\"text\"",
                     .actual = in_quotes(task.output)});
    }
    const Program* const program = find_named(artifact_.programs, task.executor);
    const std::string program_path = member_path("artifact.programs", task.executor);
    check_inputs(task, program, path + ".inputs", program_path);
    if (!program) {
      problems_.add({.message = "the library has no program for the task's executor",
                     .field = "artifact.programs",
                     .expected = in_quotes(task.executor),
                     .actual = name_list(artifact_.programs)});
      return;
    }
    if (program->kind != kTokenGeneration) {
      problems_.add({.message = "the task's executor is of an unknown kind",
                     .field = member_path(program_path, "kind"),
                     .expected = in_quotes(kTokenGeneration),
                     .actual = in_quotes(program->kind)});
      return;
    }
    check_kv_state(*program, program_path);
    check_functions(program->exports, program_path + ".exports");
    check_functions(program->adapters, program_path + ".adapters");
  }

  void check_kv_state(const Program& program, const std::string& path) {
    const bool needs_rnn = find_named(program.exports, role::kCreateRnnState) != nullptr;
    const KvStateKind implied = needs_rnn ? KvStateKind::kHybrid : KvStateKind::kKvCache;
    if (library_.kv_state_kind == implied) return;
    problems_.add({.message = "the library keeps another state than the roles in " + path + ".exports create",
                   .field = "kv_state_kind",
                   .expected = in_quotes(kv_state_kind_name(implied)),
                   .actual = in_quotes(kv_state_kind_name(library_.kv_state_kind))});
  }

  void check_functions(const Named<std::string>& names, const std::string& path) {
    if (!context_.functions) return;
    for (const auto& [key, function] : names) {
      if (context_.functions->contains(function)) continue;
      problems_.add({.message = "the library does not export this function",
                     .field = member_path(path, key),
                     .expected = "function " + in_quotes(function),
                     .actual = "functions " + name_list(*context_.functions),
                     .hint = "compile the library again"});
    }
  }

  void check_inputs(const Task& task, const Program* program, const std::string& path,
                    const std::string& program_path) {
    std::string audio;
    std::string image;
    for (const auto& [name, input] : task.inputs) {
      const std::string here = member_path(path, name);
      if (std::holds_alternative<std::string>(input.processor)) {
        if (input.adapter || input.prompt) {
          manifest_problem("a tokenizer input has no adapter and no prompt", here, "processor only",
                           "adapter");
        }
        continue;
      }
      const bool is_audio = std::holds_alternative<AudioDecode>(input.processor);
      std::string& first = is_audio ? audio : image;
      if (!first.empty()) {
        manifest_problem(std::string("a second ") + (is_audio ? "audio" : "image") + " input", here,
                         "at most one, which is " + first, here);
      }
      first = here;
      if (!input.adapter || !input.prompt) {
        manifest_problem("decoded media needs an adapter and a prompt", here, "adapter and prompt",
                         "neither");
      } else if (program) {
        check_adapter(*input.adapter, is_audio, *program, here, program_path);
      }
    }
    const Input* const text = find_named(task.inputs, "text");
    if (!text || !std::holds_alternative<std::string>(text->processor)) {
      manifest_problem("the task needs a text input", member_path(path, "text"),
                       "the processor \"tokenizer\"",
                       text ? "another processor" : "inputs " + name_list(task.inputs));
    }
  }

  void check_adapter(const std::string& adapter, bool is_audio, const Program& program,
                     const std::string& input_path, const std::string& program_path) {
    if (!find_named(program.adapters, adapter)) {
      problems_.add({.message = "the library lacks the adapter of " + input_path,
                     .field = program_path + ".adapters",
                     .expected = in_quotes(adapter),
                     .actual = name_list(program.adapters),
                     .hint = "compile the library again from this package"});
    }
    const std::string* const dtype = find_named(program.adapter_dtypes, adapter);
    if (!dtype) return;
    const std::vector<std::string_view> accepted = is_audio
                                                       ? std::vector<std::string_view>{"float32"}
                                                       : std::vector<std::string_view>{"uint8", "uint32"};
    if (std::find(accepted.begin(), accepted.end(), *dtype) == accepted.end()) {
      problems_.add({.message = "the adapter takes a type that " + input_path + " can't give",
                     .field = member_path(program_path + ".adapter_dtypes", adapter),
                     .expected = any_of(accepted),
                     .actual = in_quotes(*dtype)});
    }
  }

  void manifest_problem(std::string message, std::string field, std::string expected, std::string actual) {
    problems_.add({.message = std::move(message),
                   .source = context_.manifest_source,
                   .field = std::move(field),
                   .expected = std::move(expected),
                   .actual = std::move(actual)});
  }

  const PackageManifest& manifest_;
  const LibraryMetadata& library_;
  const CompiledProgram& artifact_;
  const MatchContext& context_;
  ProblemList problems_;
};

}  // namespace

std::vector<Problem> match(const PackageManifest& manifest, const LibraryMetadata& library,
                           const MatchContext& context) {
  if (!library.artifact_problems.empty()) return library.artifact_problems;
  if (!library.artifact) {
    return {{.message = "the library carries no contract, but the package has a manifest",
             .source = context.metadata_source,
             .field = "artifact",
             .expected = "a document with the schema \"mlc.compiled-program\"",
             .actual = "nothing",
             .hint = "compile the library again from this package"}};
  }
  return Matcher(manifest, library, *library.artifact, context).run();
}

std::vector<Problem> review(const LibraryMetadata& library, const MatchContext& context) {
  if (!library.artifact || !library.params) return {};
  // Without the chat config a named dimension has no value, which is not the library's fault.
  if (context.named_dimensions.empty() && !dimension_names(*library.params).empty()) return {};
  ProblemList problems(context.metadata_source);
  const Resources& stated = library.artifact->resources;
  try {
    const Resources computed = compute_resources(*library.params, context.named_dimensions, {});
    const auto compare = [&](std::string_view field, int64_t expected, int64_t actual) {
      if (expected == actual) return;
      problems.add({.message = "not the size of the library's own params",
                    .field = member_path("artifact.resources", field),
                    .expected = std::to_string(expected),
                    .actual = std::to_string(actual)});
    };
    compare("max_storage_buffer_binding_size", computed.max_storage_buffer_binding_size,
            stated.max_storage_buffer_binding_size);
    compare("estimated_device_memory_bytes", computed.estimated_device_memory_bytes,
            stated.estimated_device_memory_bytes);
  } catch (const Error& error) {
    for (Problem problem : error.problems()) {
      problem.source = context.metadata_source;
      problem.field = "params[" + problem.field + "]";
      problems.add(std::move(problem));
    }
  }
  return problems.take();
}

}  // namespace dovetail::contract
