#include "convert/weight_stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/number_text.h"
#include "convert/ggml_types.h"
#include "convert/quantize.h"
#include "package/values.h"

namespace dovetail::convert {
namespace {

using models::ModelPlan;
using models::Weight;
using package::first_non_finite;
using package::load_value;
using package::TensorCacheWriter;

constexpr int64_t kBlockBytes = int64_t{2} << 20;  // of the checkpoint
constexpr size_t kBlocksPerWave = 16;  // converted together, written while the next ones are converted
// Tensors that share a shard stay in memory until they are complete; so many bytes of them may be open at
// once.
constexpr int64_t kOpenBytes = int64_t{256} << 20;

constexpr const char* kWider = "choose a quantization with a wider type: q4bf16_1, q4f32_1, q0bf16 or q0f32";

using Buffer = std::unique_ptr<std::byte[]>;

// Rows [row_begin, row_end) of the weights [first, last), which share their sources. Of a weight that is
// stored transposed, all rows of its groups [group_begin, group_end): its tensors are written group by group.
struct Block {
  size_t first = 0;
  size_t last = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t group_begin = 0;
  int64_t group_end = 0;
  std::vector<Buffer> values;  // by weight: words or plain values
  std::vector<Buffer> scales;  // by weight: null when it is not quantized
};

// Bytes of so many values of a tensor in its file, blocks not counted whole.
int64_t stored_bytes(const CheckpointTensor& tensor, int64_t values) {
  if (!tensor.coding) return values * dtype_bytes(*tensor.dtype);
  const GgmlTypeInfo& info = ggml_type_info(tensor.coding->type);
  return values * info.block_bytes / info.block_values;
}

// " at [1, 37]"; nothing for a single value.
std::string place(const std::vector<int64_t>& shape, int64_t index) {
  std::string out;
  for (size_t i = shape.size(); i > 0; --i) {
    out = std::to_string(index % shape[i - 1]) + (out.empty() ? "" : ", ") + out;
    index /= shape[i - 1];
  }
  return out.empty() ? "" : " at [" + out + "]";
}

class Stream {
 public:
  Stream(const ModelPlan& plan, const Checkpoint& checkpoint, const Mapping& mapping, Rounding rounding,
         TensorCacheWriter& writer, ThreadPool& pool, Progress& progress, const std::atomic<bool>* cancel)
      : plan_(plan),
        checkpoint_(checkpoint),
        mapping_(mapping),
        rounding_(rounding),
        writer_(writer),
        pool_(pool),
        progress_(progress),
        cancel_(cancel) {}

  void run() {
    std::vector<Block> blocks = make_blocks();
    std::span<Block> written;
    for (size_t begin = 0; begin < blocks.size() || !written.empty(); begin += kBlocksPerWave) {
      const size_t count = std::min(kBlocksPerWave, blocks.size() - std::min(begin, blocks.size()));
      const std::span<Block> wave = std::span(blocks).subspan(std::min(begin, blocks.size()), count);
      // Task 0 writes the previous wave while the others convert this one.
      pool_.run(static_cast<int64_t>(count) + 1, [&](int64_t task, int) {
        if (task == 0) {
          for (Block& block : written) write(block);
        } else {
          convert(wave[static_cast<size_t>(task) - 1]);
        }
      });
      written = wave;
    }
    if (flagged_.empty()) return;
    std::vector<Problem> problems;
    for (const auto& [tensor, weight] : flagged_) problems.push_back(bad_value(tensor, weight));
    throw Error(ErrorCode::kNumeric, std::move(problems));
  }

 private:
  const Weight& weight(size_t index) const { return plan_.weights[mapping_.weights[index].weight]; }
  DType stored_dtype(size_t index) const {
    const Weight& w = weight(index);
    return plan_.parameters[w.first_parameter + (w.quantized ? 1 : 0)].dtype;
  }

  int64_t group_values() const { return models::group_size(plan_.quantization->bits); }
  int64_t group_count(int64_t cols) const { return (cols + group_values() - 1) / group_values(); }
  GroupMode mode(size_t index) const {
    return {plan_.quantization->model_dtype, plan_.quantization->bits, weight(index).transposed, rounding_};
  }
  int64_t group_bytes() const { return 4 * models::group_words(plan_.quantization->bits); }

  // Groups of weight `index` in a block. Weights that share their sources may differ in width.
  int64_t block_groups(const Block& block, size_t index) const {
    return weight(index).transposed ? block.group_end - block.group_begin
                                    : group_count(mapping_.weights[index].cols);
  }

  // The first column of weight `index` that a block has, and their number.
  std::pair<int64_t, int64_t> block_columns(const Block& block, size_t index) const {
    const int64_t cols = mapping_.weights[index].cols;
    if (!weight(index).transposed) return {0, cols};
    const int64_t first = block.group_begin * group_values();
    return {first, std::min(cols, block.group_end * group_values()) - first};
  }

  bool same_parts(const MappedWeight& a, const MappedWeight& b) const {
    return !a.parts.empty() && a.rows == b.rows && a.stride == b.stride && a.stride > a.cols &&
           std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(),
                      [](const auto& x, const auto& y) { return x.tensor == y.tensor && x.rows == y.rows; });
  }

  // Bytes of a weight's tensors that are too small to get a file of their own.
  int64_t open_bytes(size_t index) const {
    const Weight& w = weight(index);
    int64_t total = 0;
    for (size_t i = w.first_parameter; i < w.first_parameter + (w.quantized ? 2 : 1); ++i) {
      const int64_t bytes = plan_.parameters[i].bytes();
      if (bytes < package::kShardBytes / 2) total += bytes;
    }
    return total;
  }

  std::vector<Block> make_blocks() const {
    std::vector<Block> blocks;
    const std::vector<MappedWeight>& weights = mapping_.weights;
    for (size_t first = 0; first < weights.size();) {
      size_t last = first + 1;
      int64_t cols = weights[first].cols, open = open_bytes(first);
      while (last < weights.size() && !weight(first).transposed && !weight(last).transposed &&
             same_parts(weights[first], weights[last]) && open + open_bytes(last) <= kOpenBytes) {
        open += open_bytes(last);
        cols += weights[last++].cols;
      }
      const int64_t rows = weights[first].rows, groups = group_count(weights[first].cols);
      const bool at_once = weights[first].parts.empty() || weight(first).source.transform;
      const bool by_group = weight(first).transposed && !at_once;
      // Four groups at least: a row's values of a block are read from one place.
      const int64_t row_step = at_once || by_group ? rows : std::max<int64_t>(1, kBlockBytes / (4 * cols));
      const int64_t group_step =
          by_group ? std::max<int64_t>(4, kBlockBytes / (4 * rows * group_values())) : groups;
      for (int64_t row = 0; row < rows; row += row_step) {
        for (int64_t group = 0; group < groups; group += group_step) {
          blocks.push_back({.first = first,
                            .last = last,
                            .row_begin = row,
                            .row_end = std::min(rows, row + row_step),
                            .group_begin = group,
                            .group_end = std::min(groups, group + group_step)});
        }
      }
      first = last;
    }
    return blocks;
  }

  void check_cancelled() const {
    if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) {
      throw Error(ErrorCode::kCancelled, "conversion cancelled; nothing was left behind");
    }
  }

  void convert(Block& block) {
    check_cancelled();
    for (size_t i = block.first; i < block.last; ++i) {
      const MappedWeight& mapped = mapping_.weights[i];
      const int64_t rows = block.row_end - block.row_begin;
      const int64_t groups = block_groups(block, i);
      const int64_t width = dtype_bytes(stored_dtype(i));
      if (weight(i).quantized) {
        block.values.push_back(
            std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(rows * groups * group_bytes())));
        block.scales.push_back(
            std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(rows * groups * width)));
      } else {
        block.values.push_back(
            std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(rows * mapped.cols * width)));
        block.scales.push_back(nullptr);
      }
      if (mapped.parts.empty()) {
        std::vector<float> values(static_cast<size_t>(mapped.elements()));
        weight(i).source.generate(values);
        if (!convert_rows(block, i, DType::kFloat32, reinterpret_cast<const std::byte*>(values.data()),
                          mapped.cols, 0, rows))
          throw Error(ErrorCode::kNumeric, Problem{.message = "a computed value does not fit into " +
                                                              std::string(dtype_name(stored_dtype(i))),
                                                   .field = weight(i).name});
        continue;
      }
      if (weight(i).source.transform) {
        const size_t source = mapped.parts.front().tensor;
        const CheckpointTensor& tensor = checkpoint_.tensors[source];
        std::vector<float> values(static_cast<size_t>(mapped.elements()));
        if (tensor.coding) {
          checkpoint_.read(tensor, mapped.cols, 0, rows, 0, mapped.cols, values.data());
        } else {
          convert_values(*tensor.dtype, checkpoint_.bytes(tensor).data(), mapped.elements(), DType::kFloat32,
                         reinterpret_cast<std::byte*>(values.data()));
        }
        weight(i).source.transform(values);
        if (!convert_rows(block, i, DType::kFloat32, reinterpret_cast<const std::byte*>(values.data()),
                          mapped.cols, 0, rows))
          flag(source, i);
        continue;
      }
      int64_t part_begin = 0;
      for (const MappedWeight::Part& part : mapped.parts) {
        const int64_t begin = std::max(block.row_begin, part_begin);
        const int64_t end = std::min(block.row_end, part_begin + part.rows);
        if (begin < end) {
          const CheckpointTensor& tensor = checkpoint_.tensors[part.tensor];
          bool fits = true;
          if (tensor.coding) {
            const auto [first, cols] = block_columns(block, i);
            const auto values =
                std::make_unique_for_overwrite<float[]>(static_cast<size_t>((end - begin) * cols));
            checkpoint_.read(tensor, mapped.stride, begin - part_begin, end - part_begin,
                             mapped.column + first, cols, values.get());
            fits = convert_rows(block, i, DType::kFloat32, reinterpret_cast<const std::byte*>(values.get()),
                                cols, begin, end, first);
          } else {
            const std::byte* data =
                checkpoint_.bytes(tensor).data() +
                ((begin - part_begin) * mapped.stride + mapped.column) * dtype_bytes(*tensor.dtype);
            fits = convert_rows(block, i, *tensor.dtype, data, mapped.stride, begin, end);
          }
          if (!fits) flag(part.tensor, i);
        }
        part_begin += part.rows;
      }
    }
    release(block);
  }

  // Rows [begin, end) of weight `index`; `data` is the first of them, from column `first_col` on. False when
  // what is stored is not finite.
  bool convert_rows(Block& block, size_t index, DType source, const std::byte* data, int64_t stride,
                    int64_t begin, int64_t end, int64_t first_col = 0) {
    const MappedWeight& mapped = mapping_.weights[index];
    const DType dtype = stored_dtype(index);
    std::byte* values = block.values[index - block.first].get();
    std::byte* scales = block.scales[index - block.first].get();
    const int64_t first = begin - block.row_begin;
    const int64_t row_bytes = stride * dtype_bytes(source);
    if (scales != nullptr && weight(index).transposed) {
      const int64_t skipped = block_columns(block, index).first - first_col;
      return convert_transposed(block, index, source, data + skipped * dtype_bytes(source), row_bytes, begin,
                                end);
    }
    if (scales != nullptr) {
      const int64_t groups = group_count(mapped.cols);
      for (int64_t row = 0; row < end - begin; ++row) {
        quantize_row(mode(index), source, data + row * row_bytes, mapped.cols,
                     reinterpret_cast<uint32_t*>(values + (first + row) * groups * group_bytes()),
                     scales + (first + row) * groups * dtype_bytes(dtype));
      }
      return first_non_finite(dtype, scales + first * groups * dtype_bytes(dtype), (end - begin) * groups) <
             0;
    }
    std::byte* out = values + first * mapped.cols * dtype_bytes(dtype);
    if (stride == mapped.cols) {
      convert_values(source, data, (end - begin) * mapped.cols, dtype, out);
    } else {
      for (int64_t row = 0; row < end - begin; ++row) {
        convert_values(source, data + row * row_bytes, mapped.cols, dtype,
                       out + row * mapped.cols * dtype_bytes(dtype));
      }
    }
    // A value without dimensions may be infinite: a limit that does not limit.
    if (plan_.parameters[weight(index).first_parameter].shape.empty())
      return !std::isnan(load_value(dtype, out, 0));
    return first_non_finite(dtype, out, (end - begin) * mapped.cols) < 0;
  }

  // Rows [begin, end) of the block's groups, the first of which begins at `data`, spread over the columns of
  // the stored tensors. False when a scale is not finite.
  bool convert_transposed(Block& block, size_t index, DType source, const std::byte* data, int64_t row_bytes,
                          int64_t begin, int64_t end) const {
    const MappedWeight& mapped = mapping_.weights[index];
    const DType dtype = stored_dtype(index);
    const int64_t width = dtype_bytes(dtype), groups = block.group_end - block.group_begin;
    const int64_t words = groups * group_bytes() / 4;
    const int64_t cols = block_columns(block, index).second;
    std::byte* const values = block.values[index - block.first].get();
    std::byte* const scales = block.scales[index - block.first].get();
    std::vector<uint32_t> row_words(static_cast<size_t>(words));
    std::vector<std::byte> row_scales(static_cast<size_t>(groups * width));
    bool finite = true;
    for (int64_t row = begin; row < end; ++row) {
      quantize_row(mode(index), source, data + (row - begin) * row_bytes, cols, row_words.data(),
                   row_scales.data());
      for (int64_t i = 0; i < words; ++i)
        std::memcpy(values + (i * mapped.rows + row) * 4, &row_words[static_cast<size_t>(i)], 4);
      for (int64_t i = 0; i < groups; ++i) {
        std::memcpy(scales + (i * mapped.rows + row) * width, &row_scales[static_cast<size_t>(i * width)],
                    static_cast<size_t>(width));
      }
      finite = finite && first_non_finite(dtype, row_scales.data(), groups) < 0;
    }
    return finite;
  }

  void flag(size_t tensor, size_t index) {
    std::lock_guard lock(mutex_);
    flagged_.emplace(tensor, index);
  }

  // The first value of a tensor that does not go into weight `index`, as the file has it.
  Problem bad_value(size_t tensor_index, size_t index) const {
    constexpr int64_t kChunk = 1 << 16;  // whole blocks of every type
    const CheckpointTensor& tensor = checkpoint_.tensors[tensor_index];
    const DType dtype = stored_dtype(index);
    // Eight bits are not rounded to the stored type before they are scaled (convert/quantize.cc).
    const float divisor = weight(index).quantized && plan_.quantization->bits == 8
                              ? static_cast<float>(models::zero_point(8))
                              : 1.0f;
    Problem out{.source = checkpoint_.files[tensor.file].name, .field = printable(tensor.name)};
    std::vector<float> values(static_cast<size_t>(std::min(kChunk, tensor.elements())));
    for (int64_t begin = 0; begin < tensor.elements(); begin += kChunk) {
      check_cancelled();
      const int64_t count = std::min(kChunk, tensor.elements() - begin);
      const std::byte* data = checkpoint_.bytes(tensor).data() + stored_bytes(tensor, begin);
      if (tensor.coding) {
        dequantize(tensor.coding->type, data, {values.data(), static_cast<size_t>(count)});
      } else {
        convert_values(*tensor.dtype, data, count, DType::kFloat32,
                       reinterpret_cast<std::byte*>(values.data()));
      }
      for (int64_t i = 0; i < count; ++i) {
        const float value = values[static_cast<size_t>(i)], scaled = value / divisor;
        std::byte stored[4];
        convert_values(DType::kFloat32, reinterpret_cast<const std::byte*>(&scaled), 1, dtype, stored);
        if (first_non_finite(dtype, stored, 1) < 0) continue;
        const std::string at = place(tensor.shape, begin + i);
        if (std::isfinite(value)) {
          out.message =
              "value " + number_text(value) + at + " does not fit into " + std::string(dtype_name(dtype));
          out.hint = kWider;
        } else {
          out.message = "value" + at + " is " + (std::isnan(value) ? "NaN" : "infinite");
          out.hint = "the checkpoint is damaged, or its training diverged";
        }
        return out;
      }
    }
    // All of them fit before the model's definition changes them.
    out.message = "a value, as the model takes it, does not fit into " + std::string(dtype_name(dtype));
    out.hint = kWider;
    return out;
  }

  // The mapped pages of a block are not needed again.
  void release(const Block& block) const {
    const MappedWeight& mapped = mapping_.weights[block.first];
    if (block.group_end < group_count(mapped.cols)) return;
    int64_t part_begin = 0;
    for (const MappedWeight::Part& part : mapped.parts) {
      const int64_t begin = std::max(block.row_begin, part_begin);
      const int64_t end = std::min(block.row_end, part_begin + part.rows);
      if (begin < end) {
        const CheckpointTensor& tensor = checkpoint_.tensors[part.tensor];
        const int64_t from = stored_bytes(tensor, (begin - part_begin) * mapped.stride);
        checkpoint_.files[tensor.file].mapping->release(
            static_cast<size_t>(tensor.offset + from),
            static_cast<size_t>(stored_bytes(tensor, (end - part_begin) * mapped.stride) - from));
      }
      part_begin += part.rows;
    }
  }

  void write(Block& block) {
    int64_t read = 0;
    for (size_t i = block.first; i < block.last; ++i) {
      check_cancelled();
      const Weight& w = weight(i);
      const MappedWeight& mapped = mapping_.weights[i];
      const auto& parameters = plan_.parameters;
      if (block.row_begin == 0 && block.group_begin == 0) {
        if (ids_.size() < i + 1) ids_.resize(i + 1);
        ids_[i].first = writer_.begin(parameters[w.first_parameter].name, parameters[w.first_parameter].shape,
                                      parameters[w.first_parameter].dtype);
        if (w.quantized) {
          const models::Parameter& scale = parameters[w.first_parameter + 1];
          ids_[i].second = writer_.begin(scale.name, scale.shape, scale.dtype);
        }
      }
      const int64_t rows = block.row_end - block.row_begin;
      const int64_t groups = block_groups(block, i);
      const int64_t width = dtype_bytes(stored_dtype(i));
      const int64_t bytes = w.quantized ? rows * groups * group_bytes() : rows * mapped.cols * width;
      writer_.write(ids_[i].first, {block.values[i - block.first].get(), static_cast<size_t>(bytes)});
      if (w.quantized) {
        writer_.write(ids_[i].second,
                      {block.scales[i - block.first].get(), static_cast<size_t>(rows * groups * width)});
      }
      if (!mapped.parts.empty())
        read +=
            stored_bytes(checkpoint_.tensors[mapped.parts[0].tensor], rows * block_columns(block, i).second);
    }
    block.values.clear();
    block.scales.clear();
    progress_.advance(read);
  }

  const ModelPlan& plan_;
  const Checkpoint& checkpoint_;
  const Mapping& mapping_;
  Rounding rounding_;
  TensorCacheWriter& writer_;
  ThreadPool& pool_;
  Progress& progress_;
  const std::atomic<bool>* cancel_;
  std::vector<std::pair<size_t, size_t>> ids_;  // by weight: the writer's ids of its tensors
  std::map<size_t, size_t> flagged_;            // tensors with bad values, and a weight that is made of each
  std::mutex mutex_;
};

}  // namespace

int64_t source_bytes(const Mapping& mapping, const Checkpoint& checkpoint) {
  int64_t total = 0;
  for (const MappedWeight& mapped : mapping.weights) {
    if (!mapped.parts.empty())
      total += stored_bytes(checkpoint.tensors[mapped.parts[0].tensor], mapped.elements());
  }
  return total;
}

void stream_weights(const ModelPlan& plan, const Checkpoint& checkpoint, const Mapping& mapping,
                    Rounding rounding, TensorCacheWriter& writer, ThreadPool& pool, Progress& progress,
                    const std::atomic<bool>* cancel) {
  Stream(plan, checkpoint, mapping, rounding, writer, pool, progress, cancel).run();
}

}  // namespace dovetail::convert
