#include "library/program.h"

#include <array>

namespace dovetail::library {
namespace ffi = tvm::ffi;
namespace {

// Collects what is wrong with the functions, so that all of it is reported at once.
class Binder {
 public:
  explicit Binder(const Library& library) : library_(library) {}

  LibraryFunction required(const std::string& name, int64_t arguments, const std::string& use) {
    std::optional<LibraryFunction> function = optional(name, arguments, use);
    if (function) return *function;
    if (!library_.find(name)) {
      problems_.push_back({.message = "the library lacks a function",
                           .source = library_.path().string(),
                           .field = name,
                           .expected = use,
                           .hint = kRebuild});
    }
    return {};
  }

  std::optional<LibraryFunction> optional(const std::string& name, int64_t arguments,
                                          const std::string& use) {
    std::optional<LibraryFunction> function = library_.find(name);
    if (!function) return std::nullopt;
    const std::optional<int64_t> count = function->argument_count();
    if (!count || *count == arguments) return function;
    problems_.push_back({.message = "a function of the library takes another number of arguments",
                         .source = library_.path().string(),
                         .field = name,
                         .expected = std::to_string(arguments) + " for " + use,
                         .actual = std::to_string(*count),
                         .hint = kRebuild});
    return std::nullopt;
  }

  void finish() {
    if (!problems_.empty()) throw Error(ErrorCode::kMismatch, std::move(problems_));
  }

 private:
  static constexpr const char* kRebuild =
      "the library is another version's: compile it again with 'dovetail compile'";
  const Library& library_;
  std::vector<Problem> problems_;
};

std::array<int64_t, 2> row_shape(size_t count) { return {1, static_cast<int64_t>(count)}; }

ffi::Shape one(int64_t value) { return ffi::Shape({value}); }

}  // namespace

Program::Program(const Library& library, const contract::Program& program) {
  Binder bind(library);
  const auto role = [&](std::string_view name) { return contract::find_named(program.exports, name); };
  const auto role_function = [&](std::string_view name, int64_t arguments) {
    const std::string* function = role(name);
    const std::string use = "role " + std::string(name);
    return function != nullptr ? bind.required(*function, arguments, use) : LibraryFunction();
  };
  tokens_ = role("prefill_tokens") != nullptr && role("decode_tokens") != nullptr;
  embed_ = role_function("embed_tokens", 2);
  create_kv_cache_ = role_function("create_kv_cache", 5);
  prefill_ = tokens_ ? role_function("prefill_tokens", 5) : role_function("prefill_embeds", 3);
  decode_ = tokens_ ? role_function("decode_tokens", 3) : role_function("decode_embeds", 3);
  if (!prefill_.name().empty())
    prefill_all_ = bind.optional(prefill_.name() + "_all", tokens_ ? 5 : 3, "the logits of every position");
  for (const auto& [name, function] : program.adapters) {
    const std::string* dtype = contract::find_named(program.adapter_dtypes, name);
    adapters_[name] = {.run = bind.required(function, 2, "adapter " + name),
                       .rows = bind.optional(function + "_length", 1, "the rows of adapter " + name),
                       .uint32 = dtype != nullptr && *dtype == "uint32"};
  }
  const std::string kv = "the KV cache";
  clear_ = bind.required("kv_state_clear", 1, kv);
  add_sequence_ = bind.required("kv_state_add_sequence", 2, kv);
  remove_sequence_ = bind.required("kv_state_remove_sequence", 2, kv);
  fork_sequence_ = bind.required("kv_state_fork_sequence", 4, kv);
  pop_ = bind.required("kv_state_popn", 3, kv);
  begin_forward_ = bind.required("kv_state_begin_forward", 3, kv);
  end_forward_ = bind.required("kv_state_end_forward", 1, kv);
  available_pages_ = bind.required("attention_kv_cache_get_num_available_pages", 1, kv);
  total_length_ = bind.required("attention_kv_cache_get_total_sequence_length", 1, kv);
  bind_parameters_ = bind.optional("bind_parameters", 2, "the copies of the parameters");
  set_precision_ = bind.optional("set_precision", 1, "the precision");
  set_threads_ = bind.optional("set_num_threads", 1, "the number of threads");
  products_done_ = bind.optional("products_done", 0, "the count of products");
  bind.finish();
}

void Program::bind_parameters(const std::function<void(size_t)>& copied) const {
  if (!bind_parameters_) return;
  const size_t count = parameters_.size();
  (*bind_parameters_)(parameters_, ffi::Function::FromTyped([&](int64_t position) {
                        if (position >= 0 && static_cast<size_t>(position) < count)
                          copied(static_cast<size_t>(position));
                      }));
}

Rows Program::embed(std::span<const int32_t> ids) const {
  use_precision();
  const std::array<int64_t, 1> shape = {static_cast<int64_t>(ids.size())};
  const auto result = embed_.get<ffi::Tensor>(borrow_tensor(ids.data(), shape, DType::kInt32), parameters_);
  Rows rows = float_rows(result, embed_.name());
  if (rows.rows != shape[0]) {
    throw Error(ErrorCode::kMismatch,
                Problem{.message = "the embedding has another number of rows than tokens",
                        .field = embed_.name(),
                        .expected = std::to_string(shape[0]),
                        .actual = std::to_string(rows.rows)});
  }
  return rows;
}

Rows Program::prefill(std::span<const float> embeddings, std::span<const int32_t> ids,
                      std::span<const int32_t> modality_ids) const {
  return run_prefill(prefill_, embeddings, ids, modality_ids);
}

Rows Program::prefill_all(std::span<const float> embeddings, std::span<const int32_t> ids,
                          std::span<const int32_t> modality_ids) const {
  if (!prefill_all_) {
    throw Error(ErrorCode::kUnsupported, "the library gives no logits but the last position's");
  }
  return run_prefill(*prefill_all_, embeddings, ids, modality_ids);
}

Rows Program::run_prefill(const LibraryFunction& function, std::span<const float> embeddings,
                          std::span<const int32_t> ids, std::span<const int32_t> modality_ids) const {
  use_precision();
  const std::array<int64_t, 2> shape = row_shape(ids.size());
  const std::array<int64_t, 3> embedding_shape = {1, shape[1],
                                                  static_cast<int64_t>(embeddings.size()) / shape[1]};
  const ffi::Tensor embedded = borrow_tensor(embeddings.data(), embedding_shape, DType::kFloat32);
  if (!tokens_) return logits_of(function, function(embedded, kv_, parameters_));
  return logits_of(function,
                   function(embedded, borrow_tensor(ids.data(), shape, DType::kInt32),
                            borrow_tensor(modality_ids.data(), shape, DType::kInt32), kv_, parameters_));
}

Rows Program::decode(std::span<const int32_t> ids) const {
  use_precision();
  const std::array<int64_t, 2> shape = {static_cast<int64_t>(ids.size()), 1};
  if (tokens_) {
    return logits_of(decode_, decode_(borrow_tensor(ids.data(), shape, DType::kInt32), kv_, parameters_));
  }
  const Rows rows = embed(ids);
  const std::array<int64_t, 3> embedding_shape = {rows.rows, 1, rows.width};
  return logits_of(decode_,
                   decode_(borrow_tensor(rows.data, embedding_shape, DType::kFloat32), kv_, parameters_));
}

// Array{logits, KV state}. The logits are [1, sequences, vocab] or [sequences, 1, vocab].
Rows Program::logits_of(const LibraryFunction& function, const ffi::Any& result) const {
  const auto array = result.try_cast<ffi::Array<ffi::Any>>();
  if (!array || array->empty()) throw function.wrong_result(result);
  auto logits = (*array)[0].try_cast<ffi::Tensor>();
  if (!logits) throw function.wrong_result((*array)[0]);
  if (logits->ndim() == 3 && logits->size(1) == 1 && logits->IsContiguous()) {
    const std::array<int64_t, 2> shape = {logits->size(0), logits->size(2)};
    const std::array<int64_t, 2> strides = {shape[1], 1};
    logits = logits->as_strided(ffi::ShapeView(shape.data(), 2), ffi::ShapeView(strides.data(), 2));
  }
  return float_rows(*logits, function.name());
}

const Program::Adapter& Program::adapter(std::string_view name) const {
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) {
    throw Error(ErrorCode::kInternal, "the program has no adapter named " + std::string(name));
  }
  return found->second;
}

Rows Program::run_adapter(std::string_view name, const ffi::Tensor& input) const {
  use_precision();
  const LibraryFunction& function = adapter(name).run;
  return float_rows(function.get<ffi::Tensor>(input, parameters_), function.name());
}

Rows Program::run_adapter(std::string_view name, std::span<const uint8_t> pixels, int64_t height,
                          int64_t width) const {
  const std::array<int64_t, 4> shape = {1, height, width, 3};
  if (!adapter(name).uint32) return run_adapter(name, borrow_tensor(pixels.data(), shape, DType::kUInt8));
  const std::vector<uint32_t> wide(pixels.begin(), pixels.end());
  return run_adapter(name, borrow_tensor(wide.data(), shape, DType::kUInt32));
}

std::optional<int64_t> Program::adapter_rows(std::string_view name, int64_t samples) const {
  const std::optional<LibraryFunction>& rows = adapter(name).rows;
  if (!rows) return std::nullopt;
  return rows->get<int64_t>(samples);
}

void Program::create_kv_cache(const KvCacheSizes& sizes) {
  kv_ = create_kv_cache_.get<ffi::ObjectRef>(one(sizes.max_batch), one(sizes.max_total_length),
                                             one(sizes.prefill_chunk), one(sizes.page_size),
                                             one(sizes.sliding_window ? 1 : 0));
}

void Program::kv_clear() const { clear_(kv_); }
void Program::kv_add_sequence(int64_t sequence) const { add_sequence_(kv_, sequence); }
void Program::kv_remove_sequence(int64_t sequence) const { remove_sequence_(kv_, sequence); }
void Program::kv_fork_sequence(int64_t parent, int64_t child, int64_t position) const {
  fork_sequence_(kv_, parent, child, position);
}

bool Program::kv_pop(int64_t sequence, int64_t count) const {
  try {
    pop_(kv_, sequence, count);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMismatch && error.code() != ErrorCode::kLimit) throw;
    return false;
  }
}

void Program::kv_begin_forward(std::span<const int64_t> sequences, std::span<const int64_t> lengths) const {
  begin_forward_(kv_, ffi::Shape(sequences.begin(), sequences.end()),
                 ffi::Shape(lengths.begin(), lengths.end()));
}

void Program::kv_end_forward() const { end_forward_(kv_); }
int64_t Program::kv_available_pages() const { return available_pages_.get<int64_t>(kv_); }
int64_t Program::kv_total_length() const { return total_length_.get<int64_t>(kv_); }

bool Program::set_precision(const std::string& precision) {
  if (!set_precision_) return false;
  (*set_precision_)(ffi::String(precision));
  precision_ = precision;
  return true;
}

void Program::use_precision() const {
  if (set_precision_) (*set_precision_)(ffi::String(precision_));
}

bool Program::set_threads(int threads) const {
  if (!set_threads_) return false;
  (*set_threads_)(static_cast<int64_t>(threads));
  return true;
}

std::optional<Program::Products> Program::products_done() const {
  if (!products_done_) return std::nullopt;
  const auto counts = products_done_->get<ffi::Shape>();
  if (counts.size() != 4) throw products_done_->wrong_result(counts);
  return Products{counts[0], counts[1], counts[2], counts[3]};
}

}  // namespace dovetail::library
