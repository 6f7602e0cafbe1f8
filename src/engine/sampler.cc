#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/number_text.h"

namespace dovetail::engine {
namespace {

void check_range(const char* name, double value, double low, bool low_included, double high) {
  const bool above = low_included ? value >= low : value > low;
  if (above && value <= high) return;
  throw Error(ErrorCode::kUsage, Problem{.message = std::string(name) + " is out of range",
                                         .expected = (low_included ? "from " : "above ") + number_text(low) +
                                                     " to " + number_text(high),
                                         .actual = number_text(value)});
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, int64_t active_vocab)
    : options_(options), active_vocab_(active_vocab), generator_(options.seed) {
  check_range("temperature", options.temperature, 0.0, true, 100.0);
  check_range("top_p", options.top_p, 0.0, false, 1.0);
}

int32_t Sampler::next(std::span<const float> logits) {
  const std::span<const float> active = logits.first(std::min<size_t>(logits.size(), active_vocab_));
  int32_t best = 0;
  for (size_t i = 0; i < active.size(); ++i) {
    if (!std::isfinite(active[i])) {
      throw Error(ErrorCode::kNumeric,
                  Problem{.message = "the model computed a logit that is not a finite number",
                          .field = "logits[" + std::to_string(i) + "]",
                          .actual = std::to_string(active[i]),
                          .hint = "the weights may be damaged: check them with 'dovetail verify --deep'"});
    }
    if (active[i] > active[best]) best = static_cast<int32_t>(i);
  }
  if (options_.temperature == 0.0) return best;

  // Weights relative to the most likely token, in double, so that neither overflow nor float32 sums over a
  // large vocabulary matter.
  const double top = active[best];
  double total = 0.0;
  candidates_.clear();
  for (size_t i = 0; i < active.size(); ++i) {
    const double weight = std::exp((static_cast<double>(active[i]) - top) / options_.temperature);
    if (weight == 0.0) continue;
    candidates_.emplace_back(weight, static_cast<int32_t>(i));
    total += weight;
  }
  auto end = candidates_.end();
  if (options_.top_p < 1.0) {
    // The smallest set of most likely tokens whose probability reaches top_p; equal weights by ascending id.
    const auto less_likely = [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    };
    std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
    const double goal = options_.top_p * total;
    double sum = 0.0;
    auto kept = candidates_.end();
    while (kept != candidates_.begin() && sum < goal) {
      std::pop_heap(candidates_.begin(), kept, less_likely);
      --kept;
      sum += kept->first;
    }
    // The chosen ones lie at the end, most likely last.
    std::reverse(candidates_.begin(), candidates_.end());
    end = candidates_.begin() + (candidates_.end() - kept);
    total = sum;
  }
  double remaining = uniform() * total;
  for (auto it = candidates_.begin(); it != end; ++it) {
    remaining -= it->first;
    if (remaining < 0.0) return it->second;
  }
  return (end - 1)->second;  // rounding left a remainder of a few units in the last place
}

// In [0, 1) with 53 bits; std::uniform_real_distribution differs between standard libraries.
double Sampler::uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

}  // namespace dovetail::engine
