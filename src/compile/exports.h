// What a compiled library exports: a model's functions under the TVM FFI ABI, with MLC's names and argument
// order. The file that `dovetail compile` writes instantiates Exports with one model and configuration. Every
// argument is checked here; what lies below trusts its sizes. docs/library-abi.md lists the functions.
#pragma once

#include <tvm/ffi/tvm_ffi.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/kv_cache.h"
#include "models/parameters.h"
#include "models/rows.h"
#include "ops/ops.h"

namespace dovetail::compiled {

namespace ffi = tvm::ffi;

// The KV cache as the frontend holds it. `owner` tells caches of other libraries in the same process apart.
class KvCacheObject : public ffi::Object {
 public:
  KvCacheObject(std::span<const models::KvLayer> layers, const models::KvCacheSize& size, DType dtype,
                const void* owner)
      : cache(layers, size, dtype), owner(owner) {}
  models::KvCache cache;
  const void* owner;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("dovetail.KVCache", KvCacheObject, ffi::Object);
};

class KvCacheRef : public ffi::ObjectRef {
 public:
  explicit KvCacheRef(ffi::ObjectPtr<KvCacheObject> data) : ffi::ObjectRef(std::move(data)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(KvCacheRef, ffi::ObjectRef, KvCacheObject);
};

struct CpuAllocator {
  void AllocData(DLTensor* tensor) {
    size_t bytes = (static_cast<size_t>(tensor->dtype.bits) + 7) / 8;
    for (int i = 0; i < tensor->ndim; ++i) bytes *= static_cast<size_t>(tensor->shape[i]);
    tensor->data = std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

inline ffi::Tensor new_tensor(std::initializer_list<int64_t> shape) {
  return ffi::Tensor::FromNDAlloc(CpuAllocator(), ffi::Shape(shape), DLDataType{kDLFloat, 32, 1},
                                  DLDevice{kDLCPU, 0});
}

inline float* floats(const ffi::Tensor& tensor) { return static_cast<float*>(tensor.data_ptr()); }

inline std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    out += (i ? ", " : "") + (shape[i] < 0 ? std::string("n") : std::to_string(shape[i]));
  return out + "]";
}

// Checks one tensor argument and gives its data. -1 in `shape` stands for any size.
template <class T>
const T* checked(const ffi::TensorView& tensor, const char* name, std::vector<int64_t> shape) {
  constexpr auto code = static_cast<uint8_t>(std::is_floating_point_v<T> ? kDLFloat
                                             : std::is_signed_v<T>       ? kDLInt
                                                                         : kDLUInt);
  constexpr DLDataType wanted{code, 8 * sizeof(T), 1};
  const std::vector<int64_t> actual(tensor.shape().begin(), tensor.shape().end());
  bool fits = actual.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 || shape[i] == actual[i];
  const DLDataType dtype = tensor.dtype();
  const bool same_type = dtype.code == wanted.code && dtype.bits == wanted.bits && dtype.lanes == 1;
  if (!fits || !same_type) {
    TVM_FFI_THROW(ValueError) << name << ": expected " << ffi::DLDataTypeToString(wanted) << " "
                              << shape_text(shape) << ", got " << ffi::DLDataTypeToString(dtype) << " "
                              << shape_text(actual);
  }
  if (tensor.device().device_type != kDLCPU)
    TVM_FFI_THROW(ValueError) << name << ": expected a tensor on the CPU";
  if (!tensor.IsContiguous()) TVM_FFI_THROW(ValueError) << name << ": expected a contiguous tensor";
  const auto* data = static_cast<const std::byte*>(tensor.data_ptr()) + tensor.byte_offset();
  if (reinterpret_cast<uintptr_t>(data) % alignof(T) != 0)
    TVM_FFI_THROW(ValueError) << name << ": not aligned";
  return reinterpret_cast<const T*>(data);
}

[[noreturn]] inline void throw_ffi_error(const Error& error) {
  const char* kind = "RuntimeError";
  if (error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kMismatch) kind = "ValueError";
  if (error.code() == ErrorCode::kLimit) kind = "IndexError";
  throw ffi::Error(kind, error.what(), "");
}

// Runs `body`; errors of the layers below become TVM FFI errors.
template <class Body>
auto guarded(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw_ffi_error(error);
  }
}

// `Model` is a model template on `Config`; Config::get() is the configuration, Config::quantization() its
// quantization. Calls from several threads take turns.
template <class Model, class Config>
class Exports {
 public:
  static ffi::Tensor embed(ffi::TensorView ids, ffi::Array<ffi::Tensor> params) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      const std::span<const int32_t> tokens = self.token_ids(ids, "input_ids", {-1});
      ffi::Tensor out = new_tensor({static_cast<int64_t>(tokens.size()), self.model_.hidden_size()});
      self.model_.embed(self.context_, tokens, floats(out));
      return out;
    });
  }

  // Logits of the last position of every sequence, [1, sequences, vocab].
  static ffi::Array<ffi::Any> prefill_tokens(ffi::TensorView embeddings, ffi::TensorView ids,
                                             ffi::TensorView modality_ids, KvCacheRef kv,
                                             ffi::Array<ffi::Tensor> params) {
    return run_prefill_tokens(embeddings, ids, modality_ids, kv, params, models::LogitRows::kLast);
  }

  // Logits of every position, [1, positions, vocab].
  static ffi::Array<ffi::Any> prefill_tokens_all(ffi::TensorView embeddings, ffi::TensorView ids,
                                                 ffi::TensorView modality_ids, KvCacheRef kv,
                                                 ffi::Array<ffi::Tensor> params) {
    return run_prefill_tokens(embeddings, ids, modality_ids, kv, params, models::LogitRows::kAll);
  }

  static ffi::Array<ffi::Any> decode_tokens(ffi::TensorView ids, KvCacheRef kv,
                                            ffi::Array<ffi::Tensor> params) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      models::KvCache& cache = own_cache(kv);
      const int64_t batch = begun_one_each(cache);
      const std::span<const int32_t> tokens = self.token_ids(ids, "token_ids", {batch, 1});
      ffi::Tensor logits = new_tensor({batch, 1, self.model_.vocab_size()});
      self.model_.decode_tokens(self.context_, cache, tokens, floats(logits));
      return ffi::Array<ffi::Any>{logits, kv};
    });
  }

  static ffi::Array<ffi::Any> prefill(ffi::TensorView embeddings, KvCacheRef kv,
                                      ffi::Array<ffi::Tensor> params) {
    return run_prefill(embeddings, kv, params, models::LogitRows::kLast);
  }

  static ffi::Array<ffi::Any> prefill_all(ffi::TensorView embeddings, KvCacheRef kv,
                                          ffi::Array<ffi::Tensor> params) {
    return run_prefill(embeddings, kv, params, models::LogitRows::kAll);
  }

  static ffi::Array<ffi::Any> decode(ffi::TensorView embeddings, KvCacheRef kv,
                                     ffi::Array<ffi::Tensor> params) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      models::KvCache& cache = own_cache(kv);
      const int64_t batch = begun_one_each(cache);
      const float* rows = checked<float>(embeddings, "embeddings", {batch, 1, self.model_.hidden_size()});
      ffi::Tensor logits = new_tensor({batch, 1, self.model_.vocab_size()});
      self.model_.prefill(self.context_, cache, rows, floats(logits));
      return ffi::Array<ffi::Any>{logits, kv};
    });
  }

  static ffi::Tensor image_embed(ffi::TensorView pixels, ffi::Array<ffi::Tensor> params) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      const int64_t size = self.model_.image_size();
      const uint8_t* data = checked<uint8_t>(pixels, "pixels", {1, size, size, 3});
      const std::vector<float> rows =
          self.model_.image(self.context_, {data, static_cast<size_t>(size * size * 3)});
      const int64_t hidden = self.model_.hidden_size();
      ffi::Tensor out = new_tensor({static_cast<int64_t>(rows.size()) / hidden, hidden});
      std::copy(rows.begin(), rows.end(), floats(out));
      return out;
    });
  }

  static ffi::Tensor audio_embed(ffi::TensorView samples, ffi::Array<ffi::Tensor> params) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      const float* data = checked<float>(samples, "samples", {-1});
      const int64_t count = samples.size(0);
      self.check_sample_count(count);
      const std::vector<float> rows = self.model_.audio()(self.context_, {data, static_cast<size_t>(count)});
      const int64_t hidden = self.model_.hidden_size();
      ffi::Tensor out = new_tensor({static_cast<int64_t>(rows.size()) / hidden, hidden});
      std::copy(rows.begin(), rows.end(), floats(out));
      return out;
    });
  }

  // Rows that audio_embed returns for so many samples.
  static int64_t audio_embed_length(int64_t samples) {
    return guarded([&] {
      instance().check_sample_count(samples);
      return instance().model_.audio().rows(samples);
    });
  }

  static KvCacheRef create_kv_cache(ffi::Shape max_sequences, ffi::Shape max_total_length,
                                    ffi::Shape prefill_chunk, ffi::Shape page_size,
                                    ffi::Shape support_sliding_window) {
    return guarded(
        [&] {
          const auto one = [](const ffi::Shape& shape, const char* name) {
            if (shape.size() != 1)
              TVM_FFI_THROW(ValueError) << name << ": expected a shape of one element, got " << shape.size();
            return shape[0];
          };
          // Windows belong to layers here, so a cache-wide window has nothing to act on.
          if (one(support_sliding_window, "support_sliding_window") != 0) {
            TVM_FFI_THROW(ValueError)
                << "support_sliding_window: expected 0, the windows of this model belong to its layers";
          }
          const models::KvCacheSize size{
              one(max_sequences, "max_batch_size"), one(max_total_length, "max_total_seq_len"),
              one(prefill_chunk, "prefill_chunk_size"), one(page_size, "page_size")};
          Exports& self = instance();
          const std::lock_guard lock(self.mutex_);
          return KvCacheRef(ffi::make_object<KvCacheObject>(
              self.model_.kv_layers(), size,
              models::kv_dtype(Config::quantization(), self.context_.precision), &self));
        });
  }

  static void kv_clear(KvCacheRef kv) {
    with_cache(kv, [](auto& cache) { cache.clear(); });
  }
  static void kv_add(KvCacheRef kv, int64_t id) {
    with_cache(kv, [&](auto& cache) { cache.add_sequence(id); });
  }
  static void kv_remove(KvCacheRef kv, int64_t id) {
    with_cache(kv, [&](auto& cache) { cache.remove_sequence(id); });
  }
  static void kv_fork(KvCacheRef kv, int64_t parent, int64_t child, int64_t position) {
    with_cache(kv, [&](auto& cache) { cache.fork_sequence(parent, child, position); });
  }
  static void kv_popn(KvCacheRef kv, int64_t id, int64_t count) {
    with_cache(kv, [&](auto& cache) { cache.popn(id, count); });
  }
  static void kv_begin(KvCacheRef kv, ffi::Shape ids, ffi::Shape lengths) {
    with_cache(kv, [&](auto& cache) {
      cache.begin_forward({ids.data(), ids.size()}, {lengths.data(), lengths.size()});
    });
  }
  static void kv_end(KvCacheRef kv) {
    with_cache(kv, [](auto& cache) { cache.end_forward(); });
  }
  static int64_t kv_available_pages(KvCacheRef kv) {
    return with_cache(kv, [](auto& cache) { return cache.available_pages(); });
  }
  static int64_t kv_total_length(KvCacheRef kv) {
    return with_cache(kv, [](auto& cache) { return cache.total_length(); });
  }

  // What the first function that is given `params` does by itself, with word of every parameter that will not
  // be read again: copied(position) can give its memory back before the next is copied.
  static void bind_parameters(ffi::Array<ffi::Tensor> params, ffi::Function copied) {
    guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params, [&](size_t position) { copied(static_cast<int64_t>(position)); });
    });
  }

  // "int8": activations are rounded to int8 before products with quantized weights; "exact": they stay
  // float32.
  static void set_precision(ffi::String precision) {
    Exports& self = instance();
    const std::lock_guard lock(self.mutex_);
    if (precision == "int8") {
      self.context_.precision = ops::Precision::kInt8;
    } else if (precision == "exact") {
      self.context_.precision = ops::Precision::kExact;
    } else {
      TVM_FFI_THROW(ValueError) << "precision: expected \"int8\" or \"exact\", got \""
                                << printable({precision.data(), precision.size()}) << "\"";
    }
  }

  // What the products of weight matrices have done since the library was loaded: operations and nanoseconds
  // of those in float32, then of those in int8.
  static ffi::Shape products_done() {
    Exports& self = instance();
    const std::lock_guard lock(self.mutex_);
    const ops::ProductCount &floats = self.context_.float_products, &int8 = self.context_.int8_products;
    return ffi::Shape({floats.operations, floats.nanoseconds, int8.operations, int8.nanoseconds});
  }

  // 0: as many as the process has CPUs.
  static void set_num_threads(int64_t threads) {
    if (threads < 0 || threads > 1024)
      TVM_FFI_THROW(ValueError) << "threads: expected 0 to 1024, got " << threads;
    Exports& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.context_.set_threads(static_cast<int>(threads));
  }

 private:
  Exports() : tree_(Config::quantization()), model_(tree_, Config{}) {}

  static Exports& instance() {
    static Exports self;
    return self;
  }

  // Binds the model to `params`; the caller holds the lock for as long as it uses them. The binding is kept
  // until another array comes and holds a reference to the tensors.
  void bind(const ffi::Array<ffi::Tensor>& params, const std::function<void(size_t)>& copied = {}) {
    if (bound_.has_value() && bound_->same_as(params)) return;
    std::vector<models::TensorRef> tensors;
    for (const ffi::Tensor& tensor : params) tensors.push_back(tensor_ref(tensor, tensors.size()));
    bound_.reset();
    tree_.bind(tensors, copied);
    bound_ = params;
  }

  static ffi::Array<ffi::Any> run_prefill_tokens(const ffi::TensorView& embeddings,
                                                 const ffi::TensorView& ids,
                                                 const ffi::TensorView& modality_ids, const KvCacheRef& kv,
                                                 const ffi::Array<ffi::Tensor>& params,
                                                 models::LogitRows wanted) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      models::KvCache& cache = own_cache(kv);
      const int64_t total = begun(cache);
      const float* rows = checked<float>(embeddings, "embeddings", {1, total, self.model_.hidden_size()});
      const std::span<const int32_t> tokens = self.token_ids(ids, "token_ids", {1, total});
      const int32_t* modality = checked<int32_t>(modality_ids, "modality_ids", {1, total});
      for (int64_t i = 0; i < total; ++i) {
        if (modality[i] != 0 && modality[i] != 1) {
          TVM_FFI_THROW(ValueError) << "modality_ids[0, " << i << "]: expected 0 or 1, got " << modality[i];
        }
      }
      ffi::Tensor logits = self.new_logits(cache, wanted);
      self.model_.prefill_tokens(self.context_, cache, rows, tokens,
                                 std::span(modality, static_cast<size_t>(total)), floats(logits), wanted);
      return ffi::Array<ffi::Any>{logits, kv};
    });
  }

  static ffi::Array<ffi::Any> run_prefill(const ffi::TensorView& embeddings, const KvCacheRef& kv,
                                          const ffi::Array<ffi::Tensor>& params, models::LogitRows wanted) {
    return guarded([&] {
      Exports& self = instance();
      const std::lock_guard lock(self.mutex_);
      self.bind(params);
      models::KvCache& cache = own_cache(kv);
      const float* rows =
          checked<float>(embeddings, "embeddings", {1, begun(cache), self.model_.hidden_size()});
      ffi::Tensor logits = self.new_logits(cache, wanted);
      self.model_.prefill(self.context_, cache, rows, floats(logits), wanted);
      return ffi::Array<ffi::Any>{logits, kv};
    });
  }

  ffi::Tensor new_logits(const models::KvCache& cache, models::LogitRows wanted) const {
    const int64_t rows =
        wanted == models::LogitRows::kAll ? begun(cache) : static_cast<int64_t>(cache.batch().size());
    return new_tensor({1, rows, model_.vocab_size()});
  }

  static models::TensorRef tensor_ref(const ffi::Tensor& tensor, size_t index) {
    const DLDataType type = tensor.dtype();
    DType dtype = DType::kInt8;
    if (type.lanes == 1 && type.code == kDLFloat && type.bits == 32) dtype = DType::kFloat32;
    if (type.lanes == 1 && type.code == kDLFloat && type.bits == 16) dtype = DType::kFloat16;
    if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16) dtype = DType::kBFloat16;
    if (type.lanes == 1 && type.code == kDLUInt && type.bits == 32) dtype = DType::kUInt32;
    if (tensor.device().device_type != kDLCPU || !tensor.IsContiguous()) {
      TVM_FFI_THROW(ValueError) << "params[" << index << "]: expected a contiguous tensor on the CPU";
    }
    return {static_cast<const std::byte*>(tensor.data_ptr()) + tensor.byte_offset(),
            {tensor.shape().begin(), tensor.shape().end()},
            dtype};
  }

  std::span<const int32_t> token_ids(const ffi::TensorView& ids, const char* name,
                                     std::vector<int64_t> shape) const {
    const int32_t* data = checked<int32_t>(ids, name, std::move(shape));
    const int64_t count = ids.numel();
    for (int64_t i = 0; i < count; ++i) {
      if (data[i] < 0 || data[i] >= model_.vocab_size()) {
        TVM_FFI_THROW(ValueError) << name << "[" << i << "]: expected 0 … " << model_.vocab_size() - 1
                                  << ", got " << data[i];
      }
    }
    return {data, static_cast<size_t>(count)};
  }

  void check_sample_count(int64_t count) const {
    const int64_t least = model_.audio().min_samples(), most = model_.audio().max_samples();
    if (count < least || count > most) {
      TVM_FFI_THROW(ValueError) << "samples: expected " << least << " to " << most << " samples, got "
                                << count;
    }
  }

  static models::KvCache& own_cache(const KvCacheRef& kv) {
    if (kv->owner != &instance()) TVM_FFI_THROW(ValueError) << "kv_cache: made by another library";
    return const_cast<KvCacheObject*>(kv.get())->cache;
  }

  // Positions of the pass that was begun.
  static int64_t begun(const models::KvCache& cache) {
    int64_t total = 0;
    for (const auto& span : cache.batch()) total += span.count;
    if (total == 0) TVM_FFI_THROW(ValueError) << "kv_cache: kv_state_begin_forward was not called";
    return total;
  }

  // The same for a decode step: one position of each sequence.
  static int64_t begun_one_each(const models::KvCache& cache) {
    for (const auto& span : cache.batch()) {
      if (span.count != 1) {
        TVM_FFI_THROW(ValueError) << "kv_cache: decode takes one token of each sequence, sequence "
                                  << span.sequence << " was begun with " << span.count;
      }
    }
    return begun(cache);
  }

  template <class Body>
  static auto with_cache(const KvCacheRef& kv, Body&& body) {
    return guarded([&] {
      const std::lock_guard lock(instance().mutex_);
      return body(own_cache(kv));
    });
  }

  std::mutex mutex_;
  models::ParameterTree tree_;
  Model model_;
  ops::Context context_;
  std::optional<ffi::Array<ffi::Tensor>> bound_;
};

}  // namespace dovetail::compiled
