// Which tensors of a checkpoint become which weights of a model. Everything that is missing, has the wrong
// shape or belongs to nothing is found here, before the first byte is converted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/checkpoint.h"
#include "models/plan.h"

namespace dovetail::convert {

// One weight as a matrix, and where its rows come from. Tensors are stacked: the weight's rows are the first
// `rows` rows of each part in turn, columns [column, column + cols) of each.
struct MappedWeight {
  struct Part {
    size_t tensor = 0;  // index into Checkpoint::tensors
    int64_t rows = 0;
  };

  size_t weight = 0;        // index into ModelPlan::weights
  std::vector<Part> parts;  // empty: the values are computed
  int64_t rows = 0;         // 1-D weights have one column, scalars one row and column
  int64_t cols = 0;
  int64_t stride = 0;  // columns of the parts
  int64_t column = 0;

  int64_t elements() const { return rows * cols; }
};

// Tensors of the checkpoint that are not used, on purpose.
struct SkippedTensors {
  std::string name;  // a prefix of canonical names, or a whole one
  std::string reason;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct Mapping {
  std::vector<MappedWeight> weights;  // in the order of ModelPlan::weights
  std::vector<SkippedTensors> skipped;
  std::vector<std::string> notes;  // what the user should know and nothing else says
};

// Throws Error kMismatch with all problems.
Mapping map_weights(const models::ModelPlan& plan, const Checkpoint& checkpoint);

}  // namespace dovetail::convert
