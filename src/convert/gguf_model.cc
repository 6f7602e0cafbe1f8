#include "convert/gguf_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "convert/gguf_config.h"
#include "convert/gguf_metadata.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

struct Known {
  std::string_view name;
  GgufArchitecture architecture;
};
constexpr std::array<Known, 3> kKnown{{{"llama", GgufArchitecture::kLlama},
                                       {"gemma3", GgufArchitecture::kGemma3},
                                       {"gemma4", GgufArchitecture::kGemma4}}};

[[noreturn]] void refuse(const Gguf& gguf, std::string key, std::string message, std::string expected,
                         std::string actual, std::string hint = {}) {
  throw Error(ErrorCode::kUnsupported, Problem{.message = std::move(message),
                                               .source = gguf.source(),
                                               .field = "\"" + std::move(key) + "\"",
                                               .expected = std::move(expected),
                                               .actual = std::move(actual),
                                               .hint = std::move(hint)});
}

std::string text_of(const Gguf& gguf, std::string_view key) {
  const GgufValue* value = gguf.find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
  return text == nullptr ? "" : std::string(*text);
}

GgufArchitecture architecture_of(const Gguf& gguf) {
  const std::string kind = text_of(gguf, "general.type");
  if (kind == "adapter")
    refuse(gguf, "general.type", "a LoRA adapter is no model", "model", kind,
           "merge it into its model first");
  if (const GgufValue* count = gguf.find("split.count"); count != nullptr) {
    const auto* number = std::get_if<int64_t>(count);
    if (number == nullptr || *number != 1) {
      refuse(gguf, "split.count", "a model in several files is not read", "1",
             number == nullptr ? "another type" : std::to_string(*number),
             "join them first: llama-gguf-split --merge FIRST-FILE WHOLE-FILE");
    }
  }
  const std::string name = text_of(gguf, "general.architecture");
  if (name == "clip") {
    refuse(gguf, "general.architecture", "this file holds an encoder of pictures or recordings alone",
           "a text model: " + gguf_architectures(), name,
           "give the text model's file, and this one with --mmproj");
  }
  const auto known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& entry) { return entry.name == name; });
  if (known == kKnown.end()) {
    refuse(gguf, "general.architecture", "this architecture is not supported", gguf_architectures(),
           name.empty() ? "none" : printable(name, 40));
  }
  return known->architecture;
}

// What the encoder's file projects to; nullopt where nothing of it is used.
std::optional<GgufProjector> projector_of(GgufArchitecture architecture, const Gguf& encoder,
                                          std::vector<std::string>& notes) {
  if (text_of(encoder, "general.architecture") != "clip") {
    refuse(encoder, "general.architecture", "the file of --mmproj is no encoder", "clip",
           printable(text_of(encoder, "general.architecture"), 40));
  }
  std::string type = text_of(encoder, "clip.projector_type");
  if (architecture == GgufArchitecture::kGemma4) {
    if (type.empty()) type = text_of(encoder, "clip.audio.projector_type");
    if (type.empty() && encoder.find("clip.vision.projector_type") != nullptr) {
      notes.push_back(encoder.source() + " has no encoder of recordings; the package takes text alone");
      return std::nullopt;
    }
    if (type != "gemma4a") {
      refuse(encoder, "clip.audio.projector_type", "the encoder does not belong to a gemma4 model", "gemma4a",
             printable(type, 40));
    }
    return GgufProjector::kGemma4;
  }
  if (type.empty()) type = text_of(encoder, "clip.vision.projector_type");
  const bool gemma3 = architecture == GgufArchitecture::kGemma3;
  const std::string expected = gemma3 ? "gemma3" : "mlp";
  // The first files had no type, and were all of LLaVA 1.5.
  if (type.empty() && !gemma3) type = expected;
  if (type != expected) {
    refuse(encoder, "clip.projector_type",
           gemma3 ? "the encoder does not belong to a gemma3 model" : "this kind of encoder is not supported",
           expected, printable(type, 40));
  }
  return gemma3 ? GgufProjector::kGemma3 : GgufProjector::kLlava;
}

// The pixels' mean and deviation are part of the model's definition.
void check_pixels(const Gguf& encoder, GgufProjector projector, std::vector<Problem>& problems) {
  if (projector == GgufProjector::kGemma4) return;
  const bool gemma3 = projector == GgufProjector::kGemma3;
  const std::vector<float> mean = gemma3 ? std::vector<float>{0.5f, 0.5f, 0.5f}
                                         : std::vector<float>{0.48145466f, 0.4578275f, 0.40821073f};
  const std::vector<float> deviation = gemma3 ? std::vector<float>{0.5f, 0.5f, 0.5f}
                                              : std::vector<float>{0.26862954f, 0.26130258f, 0.27577711f};
  const GgufMetadata vision(encoder, "clip.vision.", problems);
  for (const auto& [key, expected] : {std::pair{"image_mean", &mean}, std::pair{"image_std", &deviation}}) {
    const GgufArray* array = vision.array(key, GgufType::kFloat32);
    if (array == nullptr) continue;
    const std::vector<float> values = *array->floats();
    const bool same =
        values.size() == 3 && std::equal(values.begin(), values.end(), expected->begin(),
                                         [](float a, float b) { return std::abs(a - b) < 1e-4f; });
    if (!same) vision.problem(key, "is not that of this family", std::to_string((*expected)[0]) + ", …");
  }
}

// The first matrix of the feed-forward network is called "ffn_down" where it takes the layer's width.
bool has_swapped_feed_forward(const Gguf& encoder) {
  const GgufTensor* down = encoder.find_tensor("v.blk.0.ffn_down.weight");
  const GgufTensor* query = encoder.find_tensor("v.blk.0.attn_q.weight");
  return down != nullptr && query != nullptr && down->shape.size() == 2 && query->shape.size() == 2 &&
         down->shape[1] == query->shape[1] && down->shape[0] != down->shape[1];
}

double bits_of(const Gguf& gguf) {
  double bits = 0, values = 0;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (tensor.shape.size() < 2 || tensor.info == nullptr) continue;
    bits += 8 * static_cast<double>(tensor.bytes);
    values += static_cast<double>(tensor.elements());
  }
  return values == 0 ? 0 : bits / values;
}

void subtract_one(std::span<float> values) {
  for (float& value : values) value -= 1.0f;
}

void inverse_softplus(std::span<float> values) {
  for (float& value : values) value = value > 20 ? value : std::log(std::expm1(value));
}

}  // namespace

bool is_gguf(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return false;
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  return file.read(magic, 4) && std::memcmp(magic, "GGUF", 4) == 0;
}

std::string gguf_architectures() {
  std::string out;
  for (const Known& known : kKnown) out += (out.empty() ? "" : ", ") + std::string(known.name);
  return out;
}

GgufModel open_gguf(const fs::path& path, const fs::path& mmproj) {
  std::shared_ptr<const MappedFile> file = MappedFile::open(path);
  GgufModel out{.file = file, .gguf = Gguf::parse(file->bytes(), path.filename().string())};
  out.architecture = architecture_of(out.gguf);
  std::vector<Problem> problems;
  if (!mmproj.empty()) {
    out.encoder_file = MappedFile::open(mmproj);
    Gguf encoder = Gguf::parse(out.encoder_file->bytes(), mmproj.filename().string());
    if (const auto projector = projector_of(out.architecture, encoder, out.notes)) {
      out.projector = *projector;
      out.swapped_feed_forward = has_swapped_feed_forward(encoder);
      check_pixels(encoder, *projector, problems);
      out.encoder = std::move(encoder);
    }
  }
  out.config = gguf_config(out.architecture, out.gguf, out.encoder ? &*out.encoder : nullptr, problems);
  out.generation_config = gguf_generation_config(out.gguf, problems);
  GgufMetadata(out.gguf, "tokenizer.", problems).text("chat_template", "");  // must be one, if there
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  out.bits = bits_of(out.gguf);
  return out;
}

std::string GgufModel::name(const std::string& tensor) const {
  const bool of_encoder = tensor.starts_with("v.") || tensor.starts_with("a.") || tensor.starts_with("mm.");
  if (of_encoder) return gguf_encoder_name(projector, tensor, swapped_feed_forward);
  const std::string out = gguf_text_name(architecture, tensor);
  // Gemma 4's text model is always a part of something larger, Llama's beside the encoder of LLaVA.
  const bool part = architecture == GgufArchitecture::kGemma4 ||
                    (architecture == GgufArchitecture::kLlama && encoder.has_value());
  return part ? "language_model." + out : out;
}

Checkpoint GgufModel::checkpoint() const {
  Checkpoint out{.readable_dtypes = readable_ggml_types()};
  const auto add = [&](const Gguf& source, const std::shared_ptr<const MappedFile>& mapping) {
    for (const GgufTensor& tensor : source.tensors()) {
      if (tensor.name == "rope_freqs.weight") continue;  // went into the configuration
      CheckpointTensor& added = out.tensors.emplace_back();
      added.name = tensor.name;
      added.dtype_text = tensor.type_name();
      added.shape = tensor.shape;
      added.offset = tensor.offset;
      added.bytes = tensor.bytes;
      added.file = out.files.size();
      if (tensor.info == nullptr || !tensor.info->readable) continue;
      added.dtype = DType::kFloat32;
      added.coding = TensorCoding{.type = static_cast<GgmlType>(tensor.type)};
    }
    out.files.push_back({.name = source.source(), .mapping = mapping});
  };
  add(gguf, file);
  if (encoder) add(*encoder, encoder_file);
  const Json& text = config.contains("text_config") ? config["text_config"] : config;
  for (CheckpointTensor& tensor : out.tensors) {
    if (!tensor.coding) continue;
    const std::string hf = name(tensor.name);
    if (architecture == GgufArchitecture::kLlama && tensor.shape.size() == 2) {
      // llama.cpp rotates neighbours, Hugging Face the halves of a head.
      const bool query = hf.ends_with(".self_attn.q_proj.weight") && tensor.file == 0;
      const bool key = hf.ends_with(".self_attn.k_proj.weight") && tensor.file == 0;
      if (query || key) {
        const auto heads = text[query ? "num_attention_heads" : "num_key_value_heads"].get<int64_t>();
        if (tensor.shape[0] % (2 * heads) == 0) tensor.coding->interleaved_heads = heads;
      }
    }
    // The definition adds 1 to the norms, as Hugging Face's does; so did the file's writer.
    const bool norm = tensor.file == 0 ? hf.ends_with("norm.weight")
                                       : hf == "multi_modal_projector.mm_soft_emb_norm.weight";
    if (architecture == GgufArchitecture::kGemma3 &&
        (norm || (tensor.file == 0 && hf.ends_with("layernorm.weight"))))
      tensor.coding->restore = subtract_one;
    if (hf.ends_with(".self_attn.per_dim_scale")) tensor.coding->restore = inverse_softplus;
  }
  return out;
}

std::optional<ChatTemplate> GgufModel::chat_template() const {
  // A family with one template of its own is a good guess at what can't be expressed; Llama's is none.
  ChatTemplate out{.source = gguf.source(),
                   .text = text_of(gguf, "tokenizer.chat_template"),
                   .required = architecture == GgufArchitecture::kLlama};
  if (out.text.empty()) return std::nullopt;
  const GgufValue* tokens = gguf.find("tokenizer.ggml.tokens");
  const auto* list = tokens == nullptr ? nullptr : std::get_if<GgufArray>(tokens);
  if (list == nullptr || list->type != GgufType::kString) return out;
  for (const char* name : {"bos", "eos"}) {
    const std::string key = std::string(name) + "_token_id";
    if (!generation_config.contains(key)) continue;
    const Json& ids = generation_config[key];
    const auto id = (ids.is_array() ? ids[0] : ids).get<int64_t>();
    if (id < list->count) out.tokens[std::string(name) + "_token"] = list->strings[static_cast<size_t>(id)];
  }
  return out;
}

void GgufModel::adapt(models::ModelPlan& plan) const {
  plan.canonical_name = [this, canonical = plan.canonical_name](const std::string& tensor) {
    return canonical(name(tensor));
  };
  if (projector != GgufProjector::kLlava || !encoder || encoder->find_tensor("v.post_ln.weight") != nullptr)
    return;
  for (models::Weight& weight : plan.weights) {
    if (!weight.name.starts_with("vision_tower.vision_model.post_layernorm.")) continue;
    const float value = weight.name.ends_with(".weight") ? 1.0f : 0.0f;
    weight.source = {.generate = [value](std::span<float> out) { std::fill(out.begin(), out.end(), value); }};
  }
}

}  // namespace dovetail::convert
