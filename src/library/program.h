// A token_generation program of a compiled library as typed calls. Which pair of functions it has (tokens or
// embeddings) is invisible from here on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/artifact.h"
#include "library/functions.h"
#include "library/library.h"

namespace dovetail::library {

struct KvCacheSizes {
  int64_t max_batch = 1;
  int64_t max_total_length = 0;  // positions of all sequences together
  int64_t prefill_chunk = 0;
  int64_t page_size = 16;
  bool sliding_window = false;
};

class Program {
 public:
  // Binds the roles of `program` to functions and compares the number of arguments they take with what their
  // role says. Throws Error kMismatch listing every missing function and every other number.
  Program(const Library& library, const contract::Program& program);

  // The weights, in the order of the library's parameter list. Must come before any call below.
  void set_parameters(tvm::ffi::Array<tvm::ffi::Tensor> parameters) { parameters_ = std::move(parameters); }

  // Lets the library make its copies of the parameters now; `copied` hears each position in the list that
  // will not be read again. A library that only does so in its first call does nothing here.
  void bind_parameters(const std::function<void(size_t)>& copied) const;

  // [ids, hidden_size].
  Rows embed(std::span<const int32_t> ids) const;

  // One chunk that was announced with begin_forward: `embeddings` is [ids, hidden_size] row-major. Returns
  // the logits of each sequence's last position, [sequences, vocab].
  Rows prefill(std::span<const float> embeddings, std::span<const int32_t> ids,
               std::span<const int32_t> modality_ids) const;
  // The same with the logits of every position, [ids, vocab], in a library that can.
  bool has_prefill_all() const { return prefill_all_.has_value(); }
  Rows prefill_all(std::span<const float> embeddings, std::span<const int32_t> ids,
                   std::span<const int32_t> modality_ids) const;
  // One token for each sequence of the begin_forward. Returns [sequences, vocab].
  Rows decode(std::span<const int32_t> ids) const;

  // `input` is what the input's processor makes, in the shape and dtype that the contract states.
  // Returns [rows, hidden_size].
  Rows run_adapter(std::string_view adapter, const tvm::ffi::Tensor& input) const;
  // The same for a picture, RGB [height, width, 3]; widened when the library's adapter takes uint32.
  Rows run_adapter(std::string_view adapter, std::span<const uint8_t> pixels, int64_t height,
                   int64_t width) const;
  // How many rows run_adapter will return for that many samples; nullopt when the library does not say.
  std::optional<int64_t> adapter_rows(std::string_view adapter, int64_t samples) const;

  // Replaces the KV state.
  void create_kv_cache(const KvCacheSizes& sizes);
  void kv_clear() const;
  void kv_add_sequence(int64_t sequence) const;
  void kv_remove_sequence(int64_t sequence) const;
  // The child begins with the parent's first `position` positions.
  void kv_fork_sequence(int64_t parent, int64_t child, int64_t position) const;
  // Takes the last `count` positions off. False when the state no longer holds what the shorter sequence
  // would need (a sliding window has moved past it); the sequence is then unchanged.
  bool kv_pop(int64_t sequence, int64_t count) const;
  void kv_begin_forward(std::span<const int64_t> sequences, std::span<const int64_t> lengths) const;
  void kv_end_forward() const;
  int64_t kv_available_pages() const;
  int64_t kv_total_length() const;

  // "int8", which is the default, or "exact", for all calls of this program. False when the library has only
  // one precision.
  bool set_precision(const std::string& precision);
  // For all programs of the same library. False when it can't change its threads.
  bool set_threads(int threads) const;

  // What products with weight matrices have done since the library was loaded; nullopt when it does not
  // count. A multiplication with its addition is two operations.
  struct Products {
    int64_t float_operations = 0, float_nanoseconds = 0, int8_operations = 0, int8_nanoseconds = 0;
  };
  std::optional<Products> products_done() const;

 private:
  struct Adapter {
    LibraryFunction run;
    std::optional<LibraryFunction> rows;
    bool uint32 = false;  // takes pixels as uint32
  };
  Rows run_prefill(const LibraryFunction& function, std::span<const float> embeddings,
                   std::span<const int32_t> ids, std::span<const int32_t> modality_ids) const;
  // The precision belongs to the library: another program of the same file may have chosen its own.
  void use_precision() const;
  Rows logits_of(const LibraryFunction& function, const tvm::ffi::Any& result) const;
  const Adapter& adapter(std::string_view name) const;

  bool tokens_ = false;  // the token pair is used
  LibraryFunction embed_;
  LibraryFunction prefill_;
  std::optional<LibraryFunction> prefill_all_;
  LibraryFunction decode_;
  LibraryFunction create_kv_cache_;
  LibraryFunction clear_;
  LibraryFunction add_sequence_;
  LibraryFunction remove_sequence_;
  LibraryFunction fork_sequence_;
  LibraryFunction pop_;
  LibraryFunction begin_forward_;
  LibraryFunction end_forward_;
  LibraryFunction available_pages_;
  LibraryFunction total_length_;
  std::optional<LibraryFunction> bind_parameters_;
  std::optional<LibraryFunction> set_precision_;
  std::string precision_ = "int8";
  std::optional<LibraryFunction> set_threads_;
  std::optional<LibraryFunction> products_done_;
  std::map<std::string, Adapter, std::less<>> adapters_;
  tvm::ffi::Array<tvm::ffi::Tensor> parameters_;
  tvm::ffi::ObjectRef kv_;
};

}  // namespace dovetail::library
