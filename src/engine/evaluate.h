// How well a model predicts a text: perplexity, and divergence from another model's predictions.
//
// The text is cut into windows of `context` tokens that begin `stride` tokens apart. A window is computed
// from an empty KV cache, after the conversation template's leading tokens (BOS), and of its tokens those are
// scored that no earlier window scored: every token but the first is scored once, with at least context -
// stride tokens before it from the second window on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace dovetail::engine {

struct EvaluateOptions {
  int64_t context = 0;  // tokens of a window, leading ones included
  int64_t stride = 0;   // 1 … context - 1
  // Told after every pass how many tokens are computed and how many there are in all.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct Perplexity {
  int64_t tokens = 0;  // scored
  int64_t windows = 0;
  double mean_nll = 0;        // natural logarithm
  double perplexity = 0;      // exp(mean_nll)
  double standard_error = 0;  // of the perplexity, tokens taken as independent
};

struct Divergence {
  Perplexity model;
  Perplexity reference;
  // Kullback-Leibler divergence of the model's distribution from the reference's, sum p_ref log(p_ref / p),
  // in nats per scored token.
  double mean = 0;
  double median = 0;
  double percentile_99 = 0;
  double largest = 0;
  double same_top = 0;  // share of tokens where both think the same token most likely
};

// Throws Error kUsage for a context or stride that is out of range or a text shorter than two tokens;
// kNumeric for logits that are not finite.
Perplexity perplexity(Engine& model, std::span<const int32_t> text, const EvaluateOptions& options);
// Also kMismatch when the vocabularies differ.
Divergence divergence(Engine& model, Engine& reference, std::span<const int32_t> text,
                      const EvaluateOptions& options);

}  // namespace dovetail::engine
