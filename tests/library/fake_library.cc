// A compiled library without a model, for tests of the loader and the engine. It repeats the user's last
// message: the next token is read off the KV state, in which every position is checked, so that a wrong id, a
// wrong row or a position too much changes the answer. Tests edit its metadata in place (fake_package.h).
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <thread>
#include <utility>
#include <vector>

namespace {
namespace ffi = tvm::ffi;

// The whole text is one line so that its length is plain to see; blanks at the end leave room for edits.
__attribute__((section(".dovetail.metadata"), used)) const char kMetadata[] =
    R"({"model_type":"fake","quantization":"q0f32","context_window_size":256,"sliding_window_size":-1,)"
    R"("prefill_chunk_size":16,"tensor_parallel_shards":1,"pipeline_parallel_stages":1,"kv_state_kind":"kv_cache",)"
    R"("max_batch_size":1,"params":[{"name":"scale","shape":[2],"dtype":"float32"},)"
    R"({"name":"words","shape":[3],"dtype":"uint32"}],"artifact":{"schema":"mlc.compiled-program",)"
    R"("schema_version":1,"interface_id":"sha256:1111111111111111111111111111111111111111111111111111111111111111",)"
    R"("parameter_schema_id":"sha256:2222222222222222222222222222222222222222222222222222222222222222",)"
    R"("programs":{"generation":{"kind":"token_generation","exports":{"embed_tokens":"embed",)"
    R"("prefill_tokens":"prefill_tokens","decode_tokens":"decode_tokens",)"
    R"("create_kv_cache":"create_tir_paged_kv_cache"},"adapters":{"audio":"audio_embed","image":"image_embed"},)"
    R"("adapter_dtypes":{"image":"uint8" }}},)"
    R"("resources":{"required_features":[],"max_storage_buffer_binding_size":12,)"
    R"("estimated_device_memory_bytes":20}},"dovetail":{"target":{"arch":"x86_64","cpu":["x86-64-v2"]},)"
    R"("decode_bytes":20}})";

constexpr int64_t kHidden = 4;
constexpr int64_t kVocab = 368;
constexpr int64_t kActiveVocab = 360;
constexpr int32_t kTurnBegin = 4;
constexpr int32_t kTurnEnd = 5;
constexpr int32_t kFirstPrintable = 265;  // the token of ' '
constexpr int32_t kSlow = kFirstPrintable + '%' - ' ';
constexpr int64_t kUserHeader = 6;   // <|turn>user\n
constexpr int64_t kModelHeader = 7;  // <|turn>model\n
constexpr int64_t kPopLimit = 64;    // pretends to be a sliding window
constexpr int64_t kSamplesPerRow = 100;

struct Heap {
  void AllocData(DLTensor* tensor) { tensor->data = std::malloc(ffi::GetDataSize(*tensor) + 1); }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

ffi::Tensor floats(std::initializer_list<int64_t> shape) {
  return ffi::Tensor::FromNDAlloc(Heap{}, ffi::ShapeView(shape.begin(), shape.size()),
                                  DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
}

// What each position shows when it is repeated: its id, or the printable character of an adapter's row.
class StateObj : public ffi::Object {
 public:
  std::map<int64_t, std::vector<int32_t>> sequences;
  int64_t active = -1;
  int64_t expected = 0;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("dovetail.test.State", StateObj, ffi::Object);
};

class State : public ffi::ObjectRef {
 public:
  explicit State(ffi::ObjectPtr<StateObj> object) : ffi::ObjectRef(std::move(object)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(State, ffi::ObjectRef, StateObj);
};

using Parameters = ffi::Array<ffi::Tensor>;

void check(const Parameters& parameters) {
  if (parameters.size() != 2) TVM_FFI_THROW(ValueError) << "expected 2 parameters, got " << parameters.size();
  const auto* scale = static_cast<const float*>(parameters[0].data_ptr());
  const auto* words = static_cast<const uint32_t*>(parameters[1].data_ptr());
  if (scale[0] != 1.0f || scale[1] != 0.5f) TVM_FFI_THROW(ValueError) << "parameter scale has other values";
  if (words[0] != 7 || words[2] != 9) TVM_FFI_THROW(ValueError) << "parameter words has other values";
}

bool exact = false;
int64_t exact_calls = 0, int8_calls = 0;  // of embed

ffi::Tensor embed(const ffi::Tensor& ids, const Parameters& parameters) {
  check(parameters);
  ++(exact ? exact_calls : int8_calls);
  ffi::Tensor out = floats({ids.size(0), kHidden});
  auto* rows = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < ids.size(0); ++i) {
    const int32_t id = static_cast<const int32_t*>(ids.data_ptr())[i];
    if (id < 0 || id >= kVocab) TVM_FFI_THROW(IndexError) << "token " << id << " is not in the vocabulary";
    for (int64_t c = 0; c < kHidden; ++c) rows[i * kHidden + c] = c == 0 ? static_cast<float>(id) : 0.0f;
  }
  return out;
}

// Repeats the user's last message, then ends the turn. A '%' is repeated for ever, and slowly.
int32_t next_token(const std::vector<int32_t>& shown) {
  if (shown.back() == kSlow) return kSlow;
  const auto size = static_cast<int64_t>(shown.size());
  int64_t model_turn = size - 1;
  while (model_turn >= 0 && shown[model_turn] != kTurnBegin) --model_turn;
  int64_t user_turn = model_turn - 1;
  while (user_turn >= 0 && shown[user_turn] != kTurnBegin) --user_turn;
  if (user_turn < 0) return kTurnEnd;
  const int64_t at = user_turn + kUserHeader + (size - model_turn - kModelHeader);
  return at >= 0 && at < model_turn ? shown[at] : kTurnEnd;
}

// A '!' to be said is a failed computation; padding ids look most likely of all.
ffi::Array<ffi::Any> answer(const State& state, std::initializer_list<int64_t> shape) {
  ffi::Tensor logits = floats(shape);
  auto* values = static_cast<float*>(logits.data_ptr());
  const int32_t next = next_token(state->sequences[state->active]);
  for (int64_t i = 0; i < kVocab; ++i) values[i] = i >= kActiveVocab ? 1e9f : (i == next ? 10.0f : 0.0f);
  if (next == kFirstPrintable + '!' - ' ') values[next] = std::numeric_limits<float>::quiet_NaN();
  return ffi::Array<ffi::Any>{logits, state};
}

void append(const State& state, const float* rows, const int32_t* ids, const int32_t* modality,
            int64_t count) {
  if (count != state->expected) TVM_FFI_THROW(ValueError) << "expected " << state->expected << " positions";
  std::vector<int32_t>& shown = state->sequences[state->active];
  for (int64_t i = 0; i < count; ++i) {
    const float* row = rows + i * kHidden;
    const bool from_adapter = row[1] == 1.0f;
    if (modality != nullptr && (modality[i] == 1) != from_adapter)
      TVM_FFI_THROW(ValueError) << "modality differs";
    if (ids != nullptr && !from_adapter && row[0] != static_cast<float>(ids[i])) {
      TVM_FFI_THROW(ValueError) << "embedding and token id disagree";
    }
    shown.push_back(static_cast<int32_t>(row[0]));
  }
  state->expected = 0;
}

ffi::Array<ffi::Any> prefill_tokens(const ffi::Tensor& embeddings, const ffi::Tensor& ids,
                                    const ffi::Tensor& modality, const State& state,
                                    const Parameters& parameters) {
  check(parameters);
  append(state, static_cast<const float*>(embeddings.data_ptr()), static_cast<const int32_t*>(ids.data_ptr()),
         static_cast<const int32_t*>(modality.data_ptr()), embeddings.size(1));
  return answer(state, {1, 1, kVocab});
}

ffi::Array<ffi::Any> decode_tokens(const ffi::Tensor& ids, const State& state, const Parameters& parameters) {
  const ffi::Tensor rows = embed(ids, parameters);
  if (*static_cast<const int32_t*>(ids.data_ptr()) == kSlow) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  append(state, static_cast<const float*>(rows.data_ptr()), static_cast<const int32_t*>(ids.data_ptr()),
         nullptr, 1);
  return answer(state, {1, 1, kVocab});
}

ffi::Array<ffi::Any> from_embeddings(const ffi::Tensor& embeddings, const State& state,
                                     const Parameters& parameters) {
  check(parameters);
  append(state, static_cast<const float*>(embeddings.data_ptr()), nullptr, nullptr, embeddings.size(1));
  return answer(state, {1, 1, kVocab});
}

int64_t adapter_calls = 0;

// Row r shows the character 'A' + 10 * (its first sample).
ffi::Tensor audio_embed(const ffi::Tensor& samples, const Parameters& parameters) {
  check(parameters);
  ++adapter_calls;
  const int64_t count = samples.size(0) / kSamplesPerRow;
  ffi::Tensor out = floats({count, kHidden});
  auto* rows = static_cast<float*>(out.data_ptr());
  for (int64_t r = 0; r < count; ++r) {
    const float sample = static_cast<const float*>(samples.data_ptr())[r * kSamplesPerRow];
    rows[r * kHidden] = static_cast<float>(kFirstPrintable + 'A' - ' ') + std::round(10.0f * sample);
    rows[r * kHidden + 1] = 1.0f;
    rows[r * kHidden + 2] = rows[r * kHidden + 3] = 0.0f;
  }
  return out;
}

// A row for each pixel: the character 'a' + its red / 10; 'A' when pixels are uint32.
ffi::Tensor image_embed(const ffi::Tensor& pixels, const Parameters& parameters) {
  check(parameters);
  ++adapter_calls;
  if (pixels.ndim() != 4 || pixels.size(0) != 1 || pixels.size(1) != 2 || pixels.size(2) != 3 ||
      pixels.size(3) != 3) {
    TVM_FFI_THROW(ValueError) << "pixels must be [1, 2, 3, 3]";
  }
  constexpr int64_t kPixels = 6;
  ffi::Tensor out = floats({kPixels, kHidden});
  auto* rows = static_cast<float*>(out.data_ptr());
  for (int64_t r = 0; r < kPixels; ++r) {
    const bool wide = pixels.dtype().bits == 32;
    const uint32_t red = wide ? static_cast<const uint32_t*>(pixels.data_ptr())[r * 3]
                              : static_cast<const uint8_t*>(pixels.data_ptr())[r * 3];
    rows[r * kHidden] = static_cast<float>(kFirstPrintable + (wide ? 'A' : 'a') - ' ' + red / 10);
    rows[r * kHidden + 1] = 1.0f;
    rows[r * kHidden + 2] = rows[r * kHidden + 3] = 0.0f;
  }
  return out;
}

int64_t audio_length(int64_t samples) { return samples / kSamplesPerRow; }

State create(const ffi::Shape& batch, const ffi::Shape& total, const ffi::Shape& chunk,
             const ffi::Shape& page, const ffi::Shape& window) {
  for (const ffi::Shape& size : {batch, total, chunk, page, window}) {
    if (size.size() != 1) TVM_FFI_THROW(ValueError) << "sizes are shapes of one element";
  }
  return State(ffi::make_object<StateObj>());
}

std::vector<int32_t>& sequence(const State& state, int64_t id) {
  const auto found = state->sequences.find(id);
  if (found == state->sequences.end()) TVM_FFI_THROW(InternalError) << "unknown sequence " << id;
  return found->second;
}

void add_sequence(const State& state, int64_t id) {
  if (!state->sequences.try_emplace(id).second) TVM_FFI_THROW(InternalError) << "sequence exists";
}

void pop(const State& state, int64_t id, int64_t count) {
  std::vector<int32_t>& shown = sequence(state, id);
  if (count > kPopLimit) TVM_FFI_THROW(ValueError) << "the window has moved past it";
  shown.resize(shown.size() - static_cast<size_t>(count));
}

void begin_forward(const State& state, const ffi::Shape& ids, const ffi::Shape& lengths) {
  sequence(state, ids[0]);
  if (lengths[0] > 16) TVM_FFI_THROW(ValueError) << "longer than the prefill chunk";
  state->active = ids[0];
  state->expected = lengths[0];
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(_metadata, [] { return ffi::String(kMetadata); });
TVM_FFI_DLL_EXPORT_TYPED_FUNC(embed, embed);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(prefill_tokens, prefill_tokens);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(decode_tokens, decode_tokens);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(prefill_embeds, from_embeddings);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(decode_embeds, from_embeddings);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(audio_embed, audio_embed);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(audio_embed_length, audio_length);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(image_embed, image_embed);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(adapter_calls, [] { return adapter_calls; });
TVM_FFI_DLL_EXPORT_TYPED_FUNC(create_tir_paged_kv_cache, create);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_clear, [](const State& state) { state->sequences.clear(); });
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_add_sequence, add_sequence);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_remove_sequence,
                              [](const State& state, int64_t id) { state->sequences.erase(id); });
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_fork_sequence,
                              [](const State& state, int64_t parent, int64_t child, int64_t at) {
                                std::vector<int32_t> copy = sequence(state, parent);
                                copy.resize(static_cast<size_t>(at));
                                state->sequences[child] = copy;
                              });
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_popn, pop);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_begin_forward, begin_forward);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kv_state_end_forward, [](const State& state) {
  if (state->expected != 0) TVM_FFI_THROW(ValueError) << "positions are missing";
});
TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_kv_cache_get_num_available_pages,
                              [](const State&) { return int64_t{16}; });
TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_kv_cache_get_total_sequence_length, [](const State& state) {
  int64_t total = 0;
  for (const auto& [id, shown] : state->sequences) total += static_cast<int64_t>(shown.size());
  return total;
});
TVM_FFI_DLL_EXPORT_TYPED_FUNC(set_num_threads, [](int64_t) {});
TVM_FFI_DLL_EXPORT_TYPED_FUNC(set_precision, [](const ffi::String& name) {
  if (name != "exact" && name != "int8") TVM_FFI_THROW(ValueError) << "unknown precision " << name;
  exact = name == "exact";
});
// As if every embedding were a product of one operation.
TVM_FFI_DLL_EXPORT_TYPED_FUNC(products_done, [] { return ffi::Shape({exact_calls, 0, int8_calls, 0}); });

// Wrong in one way each, under names as long as the right one's.
TVM_FFI_DLL_EXPORT_TYPED_FUNC(image_extra, [](const ffi::Tensor& pixels, const Parameters& parameters) {
  ffi::Tensor out = floats({7, kHidden});
  std::memcpy(out.data_ptr(), image_embed(pixels, parameters).data_ptr(), 6 * kHidden * sizeof(float));
  return out;
});
TVM_FFI_DLL_EXPORT_TYPED_FUNC(decode_tokenx, [](const ffi::Tensor& ids, const ffi::Tensor&,
                                                const State& state, const Parameters& parameters) {
  return decode_tokens(ids, state, parameters);
});
TVM_FFI_DLL_EXPORT_TYPED_FUNC(audio_extra, audio_embed);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(audio_extra_length,
                              [](int64_t samples) { return samples / kSamplesPerRow + 1; });
