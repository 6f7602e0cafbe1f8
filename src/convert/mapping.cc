#include "convert/mapping.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/number_text.h"
#include "base/similar.h"
#include "package/values.h"

namespace dovetail::convert {
namespace {

using models::ModelPlan;
using models::Weight;

constexpr int64_t kMaxPaddingRows = 1024;
constexpr size_t kMaxSuggestions = 20;  // each compares with every unused name

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// Without dimensions of 1, which checkpoints add and leave out.
std::vector<int64_t> squeezed(std::span<const int64_t> shape) {
  std::vector<int64_t> out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](int64_t dim) { return dim != 1; });
  return out;
}

class Mapper {
 public:
  Mapper(const ModelPlan& plan, const Checkpoint& checkpoint)
      : plan_(plan), checkpoint_(checkpoint), used_(checkpoint.tensors.size(), false) {}

  Mapping run() {
    index_names();
    for (size_t i = 0; i < plan_.weights.size(); ++i) map_weight(i);
    check_unused();
    report_missing();
    check_limits();
    if (!problems_.empty()) throw Error(ErrorCode::kMismatch, std::move(problems_));
    return std::move(out_);
  }

 private:
  const CheckpointTensor& tensor(size_t index) const { return checkpoint_.tensors[index]; }

  void add(size_t index, std::string message, std::string expected = {}, std::string actual = {},
           std::string hint = {}) {
    problems_.push_back({.message = std::move(message),
                         .source = checkpoint_.files[tensor(index).file].name,
                         .field = printable(tensor(index).name),
                         .expected = std::move(expected),
                         .actual = std::move(actual),
                         .hint = std::move(hint)});
  }

  void index_names() {
    for (size_t i = 0; i < checkpoint_.tensors.size(); ++i) {
      names_.push_back(plan_.canonical_name ? plan_.canonical_name(tensor(i).name) : tensor(i).name);
      const auto [it, fresh] = by_name_.emplace(names_.back(), i);
      if (!fresh) {
        used_[i] = true;
        add(i, "means the same weight as \"" + printable(tensor(it->second).name) + "\"", "one of them");
      }
    }
  }

  void map_weight(size_t index) {
    const Weight& weight = plan_.weights[index];
    MappedWeight mapped{.weight = index};
    mapped.rows = weight.shape.empty() ? 1 : weight.shape[0];
    mapped.cols = 1;
    for (size_t i = 1; i < weight.shape.size(); ++i) mapped.cols *= weight.shape[i];
    mapped.stride = weight.source.columns > 0 ? weight.source.columns : mapped.cols;
    mapped.column = weight.source.column_begin;
    std::vector<size_t> parts;
    bool complete = true;
    for (const std::string& name : weight.source.tensors) {
      const auto it = by_name_.find(name);
      if (it == by_name_.end()) {
        // Several weights may share a source; it is missing once.
        if (std::find(missing_.begin(), missing_.end(), name) == missing_.end()) missing_.push_back(name);
        complete = false;
        continue;
      }
      used_[it->second] = true;
      complete &= readable(it->second);
      parts.push_back(it->second);
    }
    if (complete && !parts.empty() && !fit_shapes(weight, parts, mapped)) return;
    out_.weights.push_back(std::move(mapped));
  }

  bool readable(size_t index) {
    if (tensor(index).dtype) return true;
    if (std::find(refused_.begin(), refused_.end(), index) != refused_.end()) return false;
    refused_.push_back(index);
    add(index, "dtype is not one that can be converted", checkpoint_.readable_dtypes,
        printable(tensor(index).dtype_text),
        "take the original checkpoint, or one whose tensors have these types");
    return false;
  }

  bool fit_shapes(const Weight& weight, const std::vector<size_t>& parts, MappedWeight& mapped) {
    const bool whole = weight.source.columns == 0;
    const std::vector<int64_t>& wanted = weight.source.shape.empty() ? weight.shape : weight.source.shape;
    if (parts.size() == 1 && whole && squeezed(tensor(parts[0]).shape) == squeezed(wanted)) {
      mapped.parts = {{parts[0], mapped.rows}};
      return true;
    }
    if (!weight.source.shape.empty()) {
      add(parts[0], "wrong shape", shape_text(wanted), shape_text(tensor(parts[0]).shape),
          "config.json and the weights belong to different models, or config.json was edited");
      return false;
    }
    std::vector<int64_t> row_shape(weight.shape.begin() + (weight.shape.empty() ? 0 : 1), weight.shape.end());
    if (!whole) row_shape = {mapped.stride};
    int64_t rows = 0;
    bool fits = !weight.shape.empty();
    for (const size_t part : parts) {
      const std::vector<int64_t>& shape = tensor(part).shape;
      fits = fits && !shape.empty() &&
             std::equal(shape.begin() + 1, shape.end(), row_shape.begin(), row_shape.end());
      if (fits) rows += shape[0];
      if (fits) mapped.parts.push_back({part, shape[0]});
    }
    const int64_t padding = rows - mapped.rows;
    if (fits && padding > 0 && padding <= kMaxPaddingRows && parts.size() == 1 &&
        mapped.rows == plan_.vocab_size) {
      mapped.parts[0].rows = mapped.rows;
      note_padding(parts[0], padding);
      return true;
    }
    if (fits && padding == 0) return true;
    report_shapes(weight, parts, row_shape);
    return false;
  }

  void note_padding(size_t part, int64_t padding) {
    const std::string note = tensor(part).name + ": " + std::to_string(padding) +
                             " padding rows after the vocabulary of " + std::to_string(plan_.vocab_size) +
                             " are left out";
    if (std::find(out_.notes.begin(), out_.notes.end(), note) == out_.notes.end()) out_.notes.push_back(note);
  }

  void report_shapes(const Weight& weight, const std::vector<size_t>& parts,
                     const std::vector<int64_t>& row_shape) {
    if (std::find(misshapen_.begin(), misshapen_.end(), parts) != misshapen_.end()) return;
    misshapen_.push_back(parts);
    std::vector<int64_t> expected = row_shape;
    if (!weight.shape.empty()) expected.insert(expected.begin(), weight.shape[0]);
    std::string actual;
    for (const size_t part : parts) actual += (actual.empty() ? "" : " + ") + shape_text(tensor(part).shape);
    std::string message = "wrong shape";
    for (size_t i = 1; i < parts.size(); ++i)
      message += (i == 1 ? ", together with " : ", ") + printable(tensor(parts[i]).name);
    add(parts[0], std::move(message), shape_text(expected) + (parts.size() > 1 ? " in all" : ""), actual,
        "config.json and the weights belong to different models, or config.json was edited");
  }

  void check_unused() {
    for (const models::SkippedPart& part : plan_.skipped)
      out_.skipped.push_back({.name = part.prefix, .reason = part.reason});
    const size_t parts = out_.skipped.size();
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      const auto end = out_.skipped.begin() + static_cast<std::ptrdiff_t>(parts);
      const auto skipped = std::find_if(out_.skipped.begin(), end, [&](const SkippedTensors& part) {
        return names_[i].starts_with(part.name);
      });
      if (skipped != end) {
        ++skipped->tensors;
        skipped->bytes += tensor(i).bytes;
      } else if (const std::string reason = no_weight(i); !reason.empty()) {
        add_skipped(i, reason);
      } else if (!tied_head(i)) {
        unused_.push_back(i);
      }
    }
    std::erase_if(out_.skipped, [](const SkippedTensors& part) { return part.tensors == 0; });
  }

  // Why an unused tensor can't be a weight that the model lacks; empty when it can.
  std::string no_weight(size_t index) const {
    if (names_[index].ends_with(".rotary_emb.inv_freq")) return "computed from the configuration";
    if (tensor(index).elements() == 0) return "it holds no values";
    if (!tensor(index).dtype)
      return "the model has no such weight, nor any of the type " + printable(tensor(index).dtype_text, 40);
    return "";
  }

  void add_skipped(size_t index, std::string reason) {
    out_.skipped.push_back({.name = printable(names_[index]),
                            .reason = std::move(reason),
                            .tensors = 1,
                            .bytes = tensor(index).bytes});
  }

  std::string tied_field() const {
    return std::string(plan_.model_config.contains("text_config") ? "text_config." : "") +
           "tie_word_embeddings";
  }

  // An output head in a checkpoint whose model takes the embedding table for it: both must hold the same.
  bool tied_head(size_t index) {
    if (names_[index] != "lm_head.weight" && !names_[index].ends_with(".lm_head.weight")) return false;
    for (const MappedWeight& mapped : out_.weights) {
      const Weight& weight = plan_.weights[mapped.weight];
      if (mapped.parts.size() != 1 || !weight.name.ends_with("embed_tokens.weight")) continue;
      const CheckpointTensor& head = tensor(index);
      const CheckpointTensor& table = tensor(mapped.parts[0].tensor);
      const bool equal = head.dtype_text == table.dtype_text && head.shape == table.shape &&
                         head.bytes == table.bytes &&
                         std::memcmp(checkpoint_.bytes(head).data(), checkpoint_.bytes(table).data(),
                                     static_cast<size_t>(head.bytes)) == 0;
      if (equal) {
        add_skipped(index, "it equals the embedding table, which is used for both");
      } else {
        add(index, "the output head differs from the embedding table, which the model uses for both",
            table.dtype_text + " " + shape_text(table.shape) + " with the bytes of " + printable(table.name),
            head.dtype_text + " " + shape_text(head.shape) +
                (head.shape == table.shape ? " with other bytes" : ""),
            plan_.always_tied ? "models of the type " + plan_.model_type +
                                    " have no output head of their own, whatever config.json says; without "
                                    "this tensor the table is used"
                              : "if the model is not tied, set " + tied_field() +
                                    " to false in config.json; otherwise remove this tensor");
      }
      return true;
    }
    return false;
  }

  void report_missing() {
    std::vector<std::string> free;
    for (const size_t index : unused_) free.push_back(names_[index]);
    for (size_t i = 0; i < missing_.size(); ++i) {
      Problem problem{.message = "tensor is missing", .source = "checkpoint", .field = missing_[i]};
      if (const std::string* nearest = i < kMaxSuggestions ? most_similar(missing_[i], free) : nullptr) {
        problem.message += "; is it \"" + printable(tensor(by_name_.at(*nearest)).name) + "\"?";
      }
      if (missing_[i].ends_with("lm_head.weight")) {
        problem.hint =
            "if the output head is the embedding table, set " + tied_field() + " to true in config.json";
      }
      problems_.push_back(std::move(problem));
    }
    std::vector<std::string> known;
    for (const Weight& weight : plan_.weights)
      known.insert(known.end(), weight.source.tensors.begin(), weight.source.tensors.end());
    for (size_t i = 0; i < unused_.size(); ++i) {
      const std::string* nearest = i < kMaxSuggestions ? most_similar(names_[unused_[i]], known) : nullptr;
      add(unused_[i],
          "the model has no such weight" +
              (nearest ? "; the nearest one is \"" + *nearest + "\"" : std::string()),
          {}, tensor(unused_[i]).dtype_text + " " + shape_text(tensor(unused_[i]).shape));
    }
  }

  // Values are clamped between pairs of limits, single values each. An infinite one does not limit.
  void check_limits() {
    constexpr std::string_view kMin = "_min", kMax = "_max";
    for (const MappedWeight& mapped : out_.weights) {
      if (!plan_.weights[mapped.weight].shape.empty() || mapped.parts.size() != 1) continue;
      const size_t low = mapped.parts[0].tensor;
      std::string name = names_[low];
      if (!name.ends_with(kMin)) continue;
      const auto high = by_name_.find(name.replace(name.size() - kMin.size(), kMin.size(), kMax));
      if (high == by_name_.end() || !tensor(high->second).dtype || tensor(high->second).elements() != 1)
        continue;
      const float from = value(low), to = value(high->second);
      if (!(from > to)) continue;  // NaN is refused with all other values
      add(low, "the lower limit is above the upper one",
          "at most " + number_text(to) + ", which is " + printable(tensor(high->second).name),
          number_text(from), "the checkpoint is damaged");
    }
  }

  // Of a tensor that has only one.
  float value(size_t index) const {
    if (!tensor(index).coding)
      return package::load_value(*tensor(index).dtype, checkpoint_.bytes(tensor(index)).data(), 0);
    float out = 0;
    checkpoint_.read(tensor(index), 1, 0, 1, 0, 1, &out);
    return out;
  }

  const ModelPlan& plan_;
  const Checkpoint& checkpoint_;
  Mapping out_;
  std::vector<Problem> problems_;
  std::vector<bool> used_;          // by tensor
  std::vector<std::string> names_;  // canonical, by tensor
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<std::string> missing_;
  std::vector<size_t> unused_;
  std::vector<size_t> refused_;
  std::vector<std::vector<size_t>> misshapen_;
};

}  // namespace

Mapping map_weights(const ModelPlan& plan, const Checkpoint& checkpoint) {
  return Mapper(plan, checkpoint).run();
}

}  // namespace dovetail::convert
