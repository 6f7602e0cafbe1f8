// Llama: text only.
#pragma once

#include "models/llama_text.h"

namespace dovetail::models {

template <class ConfigSource>
class Llama {
 public:
  Llama(ParameterTree& tree, const ConfigSource& source) : text_(tree, source.get(), "") {}

  int32_t vocab_size() const { return text_.config().vocab_size; }
  int32_t hidden_size() const { return text_.config().hidden_size; }
  std::vector<KvLayer> kv_layers() const { return text_.kv_layers(); }
  std::vector<std::vector<float>*> rotary_tables() { return text_.rotary_tables(); }
  void embed(ops::Context& context, std::span<const int32_t> ids, float* out) const {
    text_.embed(context, ids, out);
  }
  // Appends the positions of kv.batch(): embeddings [total, hidden], logits [wanted rows, vocab].
  void prefill(ops::Context& context, KvCache& kv, const float* embeddings, float* logits,
               LogitRows wanted = LogitRows::kLast) {
    text_.forward(context, kv, embeddings, logits, wanted);
  }

 private:
  LlamaText text_;
};

}  // namespace dovetail::models
