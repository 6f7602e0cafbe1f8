// Choosing the next token from logits (docs/engine.md, "Sampling").
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace dovetail::engine {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the most likely token
  double top_p = 1.0;        // in (0, 1]
  uint64_t seed = 0;
};

class Sampler {
 public:
  // Ids from `active_vocab` on are padding of the vocabulary and never chosen.
  // Throws Error kUsage when an option is out of range.
  Sampler(const SamplingOptions& options, int64_t active_vocab);

  // The same logits in the same order give the same tokens for the same options, on every machine.
  // Throws Error kNumeric when a logit of the active vocabulary is NaN or infinite.
  int32_t next(std::span<const float> logits);

 private:
  double uniform();

  SamplingOptions options_;
  int64_t active_vocab_;
  std::mt19937_64 generator_;
  std::vector<std::pair<double, int32_t>> candidates_;  // weight, id; kept to avoid an allocation per token
};

}  // namespace dovetail::engine
