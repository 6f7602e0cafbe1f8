// What the tests of the models share: a checkpoint converted and bound in this process, and comparisons.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/convert.h"
#include "models/kv_cache.h"
#include "models/parameters.h"
#include "ops/ops.h"
#include "package/tensor_cache.h"

namespace dovetail::models {

// One checkpoint under one quantization. `Config` is the run-time configuration of `Model`.
template <class Model, class Config>
class Loaded {
 public:
  Loaded(const std::filesystem::path& checkpoint, const Config& config, const std::string& quantization)
      : tree(find_quantization(quantization)), model(tree, config) {
    namespace fs = std::filesystem;
    const fs::path folder =
        fs::path(::testing::TempDir()) / ("models-test-" + quantization + "-" + std::to_string(::getpid()));
    fs::remove_all(folder);
    // The references were computed from MLC's bytes.
    convert::convert({.checkpoint = checkpoint,
                      .output = folder,
                      .quantization = &tree.quantization(),
                      .rounding = convert::Rounding::kMlc});
    cache = package::TensorCache::open(folder);
    fs::remove_all(folder);  // the mappings stay
    std::vector<TensorRef> tensors;
    for (const Parameter& parameter : tree.parameters()) {
      const package::StoredTensor& stored = cache.get(parameter.name);
      tensors.push_back({cache.bytes(stored).data(), stored.shape, stored.dtype});
    }
    tree.bind(tensors);
  }

  // Has the sequence 0.
  std::unique_ptr<KvCache> new_cache(const ops::Context& context, int64_t sequences = 1) const {
    auto out = std::make_unique<KvCache>(model.kv_layers(), KvCacheSize{sequences, 2048, 1024, 16},
                                         kv_dtype(tree.quantization(), context.precision));
    out->add_sequence(0);
    return out;
  }

  ParameterTree tree;
  Model model;
  package::TensorCache cache;
};

inline float largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float out = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= out)) out = difference;  // NaN counts
  }
  return out;
}

inline int32_t best(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// By how much the best logit leads the second.
inline float lead(std::span<const float> logits) {
  std::vector<float> sorted(logits.begin(), logits.end());
  std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
  return sorted[0] - sorted[1];
}

// Kullback-Leibler divergence of the distributions, in nats.
inline double divergence(std::span<const float> reference, std::span<const float> actual) {
  const auto log_sum = [](std::span<const float> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (float value : x) sum += std::exp(value - top);
    return top + std::log(sum);
  };
  const double a = log_sum(reference), b = log_sum(actual);
  double out = 0;
  for (size_t i = 0; i < reference.size(); ++i)
    out += std::exp(reference[i] - a) * ((reference[i] - a) - (actual[i] - b));
  return out;
}

// The instruction-set levels of this build that this machine can run.
inline std::vector<ops::Level> runnable_levels() {
  std::vector<ops::Level> out;
  for (const ops::Level level : ops::built_levels()) {
    if (ops::cpu_supports(level)) out.push_back(level);
  }
  return out;
}

inline std::string level_label(ops::Level level) { return level == ops::Level::kAvx512 ? "avx512" : "avx2"; }

class EveryLevel : public ::testing::TestWithParam<ops::Level> {
 protected:
  void SetUp() override { RecordProperty("instruction_set", std::string(ops::level_name(GetParam()))); }
};

}  // namespace dovetail::models
