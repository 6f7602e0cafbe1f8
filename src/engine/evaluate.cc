#include "engine/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dovetail::engine {
namespace {

constexpr int64_t kPass = 64;  // tokens that both models compute before their logits are compared

struct Window {
  int64_t begin;  // of the text
  int64_t end;
  int64_t first_scored;  // >= begin + 1: the first token of the text has nothing before it
};

struct Plan {
  std::vector<int32_t> leading;
  std::vector<Window> windows;
  int64_t total = 0;  // tokens to compute
};

Plan plan_windows(const Engine& model, std::span<const int32_t> text, const EvaluateOptions& options) {
  const std::vector<int64_t>& prefix = model.model().chat_config.conv_template.system_prefix_token_ids;
  Plan plan{.leading = {prefix.begin(), prefix.end()}};
  const auto leading = static_cast<int64_t>(plan.leading.size()), size = static_cast<int64_t>(text.size());
  const int64_t width = options.context - leading;
  std::vector<Problem> problems;
  if (options.context > model.context_window() || width < 2) {
    problems.push_back({.message = "the context can't be used",
                        .field = "context",
                        .expected = std::to_string(leading + 2) + " to " +
                                    std::to_string(model.context_window()) + " tokens",
                        .actual = std::to_string(options.context)});
  } else if (options.stride < 1 || options.stride >= width) {
    problems.push_back({.message = "the stride can't be used",
                        .field = "stride",
                        .expected = "1 to " + std::to_string(width - 1) + " tokens",
                        .actual = std::to_string(options.stride)});
  }
  if (size < 2) {
    problems.push_back({.message = "the text is too short",
                        .expected = "at least 2 tokens",
                        .actual = std::to_string(size)});
  }
  const auto outside = std::ranges::find_if(text, [&](int32_t id) { return id >= model.active_vocab(); });
  if (outside != text.end()) {
    problems.push_back({.message = "the text has a token that the model never says",
                        .expected = "below " + std::to_string(model.active_vocab()),
                        .actual = std::to_string(*outside)});
  }
  if (!problems.empty()) throw Error(ErrorCode::kUsage, std::move(problems));
  int64_t scored = 1;
  for (int64_t begin = 0; scored < size; begin += options.stride) {
    const int64_t end = std::min(begin + width, size);
    plan.windows.push_back({begin, end, scored});
    plan.total += leading + end - begin;
    scored = end;
  }
  return plan;
}

// Predictions of one position.
struct Scores {
  double log_normalizer = 0;
  int64_t top = 0;
};

Scores scores(std::span<const float> logits) {
  const auto top = std::ranges::max_element(logits);
  double sum = 0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value) - *top);
  const double log_normalizer = *top + std::log(sum);
  if (!std::isfinite(log_normalizer)) {
    throw Error(ErrorCode::kNumeric, Problem{.message = "the model's logits are not finite",
                                             .hint = "the package's weights or the library are damaged: "
                                                     "'dovetail verify --deep' checks the package"});
  }
  return {log_normalizer, top - logits.begin()};
}

class PerplexitySum {
 public:
  void add(double nll) {
    ++count_;
    const double difference = nll - mean_;
    mean_ += difference / static_cast<double>(count_);
    squares_ += difference * (nll - mean_);
  }
  Perplexity result(int64_t windows) const {
    const double variance = count_ > 1 ? squares_ / static_cast<double>(count_ - 1) : 0.0;
    return {.tokens = count_,
            .windows = windows,
            .mean_nll = mean_,
            .perplexity = std::exp(mean_),
            .standard_error = std::exp(mean_) * std::sqrt(variance / static_cast<double>(count_))};
  }

 private:
  double mean_ = 0;
  double squares_ = 0;  // of the differences from the mean
  int64_t count_ = 0;
};

// Computes all windows with all models, side by side; `row` gets the logits of each model at each scored
// token.
void run(std::span<Engine* const> models, std::span<const int32_t> text, const Plan& plan,
         const EvaluateOptions& options,
         const std::function<void(std::span<const std::span<const float>>, int32_t)>& row) {
  int64_t done = 0;
  for (const Window& window : plan.windows) {
    std::vector<int32_t> ids = plan.leading;
    ids.insert(ids.end(), text.begin() + window.begin, text.begin() + window.end);
    const int64_t shift = window.begin - static_cast<int64_t>(plan.leading.size());
    for (Engine* model : models) model->restart();
    for (int64_t begin = 0; begin < static_cast<int64_t>(ids.size()); begin += kPass) {
      const auto count = std::min(kPass, static_cast<int64_t>(ids.size()) - begin);
      std::vector<library::Rows> logits;
      for (Engine* model : models) {
        logits.push_back(
            model->append(std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count))));
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t target = shift + begin + i + 1;
        if (target < window.first_scored || target >= window.end) continue;
        std::vector<std::span<const float>> rows;
        for (size_t m = 0; m < models.size(); ++m)
          rows.push_back(logits[m].row(i).first(static_cast<size_t>(models[m]->active_vocab())));
        row(rows, text[static_cast<size_t>(target)]);
      }
      done += count;
      if (options.progress) options.progress(done, plan.total);
    }
  }
}

}  // namespace

Perplexity perplexity(Engine& model, std::span<const int32_t> text, const EvaluateOptions& options) {
  const Plan plan = plan_windows(model, text, options);
  PerplexitySum sum;
  Engine* const models[] = {&model};
  run(models, text, plan, options, [&](std::span<const std::span<const float>> rows, int32_t target) {
    sum.add(scores(rows[0]).log_normalizer - rows[0][static_cast<size_t>(target)]);
  });
  return sum.result(static_cast<int64_t>(plan.windows.size()));
}

Divergence divergence(Engine& model, Engine& reference, std::span<const int32_t> text,
                      const EvaluateOptions& options) {
  if (model.active_vocab() != reference.active_vocab()) {
    throw Error(ErrorCode::kMismatch,
                Problem{.message = "the two models have different vocabularies",
                        .expected = std::to_string(reference.active_vocab()) + " tokens",
                        .actual = std::to_string(model.active_vocab())});
  }
  const Plan plan = plan_windows(model, text, options);
  plan_windows(reference, text, options);  // its context window may be smaller
  PerplexitySum model_sum, reference_sum;
  std::vector<double> divergences;
  int64_t same = 0;
  Engine* const models[] = {&model, &reference};
  run(models, text, plan, options, [&](std::span<const std::span<const float>> rows, int32_t target) {
    const Scores a = scores(rows[0]), b = scores(rows[1]);
    model_sum.add(a.log_normalizer - rows[0][static_cast<size_t>(target)]);
    reference_sum.add(b.log_normalizer - rows[1][static_cast<size_t>(target)]);
    double sum = 0;
    for (size_t i = 0; i < rows[0].size(); ++i) {
      const double log_reference = rows[1][i] - b.log_normalizer;
      sum += std::exp(log_reference) * (log_reference - (rows[0][i] - a.log_normalizer));
    }
    divergences.push_back(std::max(sum, 0.0));
    same += a.top == b.top ? 1 : 0;
  });
  std::ranges::sort(divergences);
  const auto at = [&](double share) {
    return divergences[static_cast<size_t>(share * static_cast<double>(divergences.size() - 1))];
  };
  double total = 0;
  for (const double value : divergences) total += value;
  const auto count = static_cast<double>(divergences.size());
  const auto windows = static_cast<int64_t>(plan.windows.size());
  return {.model = model_sum.result(windows),
          .reference = reference_sum.result(windows),
          .mean = total / count,
          .median = at(0.5),
          .percentile_99 = at(0.99),
          .largest = divergences.back(),
          .same_top = static_cast<double>(same) / count};
}

}  // namespace dovetail::engine
