#include "models/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace dovetail::models {
namespace {

// Transposed weights come to the kernels by rows, whatever their size.
TEST(ParameterTree, TransposedWeightsAreBoundByRows) {
  std::mt19937 random(1);
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {31, 40}, {32, 256}, {70, 600}, {129, 1100}, {320, 64}}) {
    ParameterTree tree(find_quantization("q4f16_0"));
    ops::Matrix matrix;
    tree.matrix(matrix, "layer", rows, cols, from("layer.weight"));
    const Parameter &words = tree.parameters()[0], &scales = tree.parameters()[1];
    const int64_t count = words.shape[0], groups = scales.shape[0];
    ASSERT_EQ(words.shape[1], rows);
    ASSERT_EQ(count, 4 * groups);
    std::vector<uint32_t> stored_words(static_cast<size_t>(count * rows));
    std::vector<uint16_t> stored_scales(static_cast<size_t>(groups * rows));
    for (uint32_t& word : stored_words) word = static_cast<uint32_t>(random());
    for (uint16_t& scale : stored_scales) scale = static_cast<uint16_t>(random());
    const TensorRef tensors[] = {{stored_words.data(), words.shape, words.dtype},
                                 {stored_scales.data(), scales.shape, scales.dtype}};
    tree.bind(tensors);
    EXPECT_EQ(matrix.type, ops::Matrix::Type::kQ4);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < count; ++i) {
        uint32_t word;
        std::memcpy(&word, static_cast<const std::byte*>(matrix.data) + 4 * (row * count + i), 4);
        ASSERT_EQ(word, stored_words[static_cast<size_t>(i * rows + row)]) << rows << " " << cols;
      }
      for (int64_t i = 0; i < groups; ++i) {
        uint16_t scale;
        std::memcpy(&scale, static_cast<const std::byte*>(matrix.scales) + 2 * (row * groups + i), 2);
        ASSERT_EQ(scale, stored_scales[static_cast<size_t>(i * rows + row)]) << rows << " " << cols;
      }
    }
  }
}

// Tables from which single rows are taken stay where they are, also in modes that rearrange all others.
TEST(ParameterTree, GatheredTablesStayInPlace) {
  for (const char* name : {"q3f16_0", "q3f16_1", "q4f16_0", "q8f16_1"}) {
    ParameterTree tree(find_quantization(name));
    ops::Matrix table;
    tree.gathered_table(table, "table", 5, 100, from("table.weight"));
    std::vector<std::byte> words(static_cast<size_t>(tree.parameters()[0].bytes()));
    std::vector<std::byte> scales(static_cast<size_t>(tree.parameters()[1].bytes()));
    const TensorRef tensors[] = {{words.data(), tree.parameters()[0].shape, DType::kUInt32},
                                 {scales.data(), tree.parameters()[1].shape, DType::kFloat16}};
    tree.bind(tensors);
    EXPECT_EQ(table.data, words.data()) << name;
    EXPECT_EQ(tree.parameters()[0].shape[0], 5) << name;
    EXPECT_EQ(table.type == ops::Matrix::Type::kQ3Stored, tree.quantization().bits == 3) << name;
  }
}

// Whoever gives the tensors hears which will not be read again, each once, and none that is used in place.
TEST(ParameterTree, NamesWhatItHasCopied) {
  ParameterTree tree(find_quantization("q4f16_1"));
  ops::Matrix table, matrix, plain;
  std::vector<float> norm;
  tree.gathered_table(table, "table", 5, 64, from("table.weight"));
  tree.matrix(matrix, "layer", 3, 64, from("layer.weight"));
  tree.plain_matrix(plain, "plain.weight", {2, 32}, from("plain.weight"));
  tree.values(norm, "norm.weight", {64}, from("norm.weight"));
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorRef> tensors;
  for (const Parameter& parameter : tree.parameters()) {
    memory.emplace_back(static_cast<size_t>(parameter.bytes()));
    tensors.push_back({memory.back().data(), parameter.shape, parameter.dtype});
  }
  std::vector<size_t> copied;
  tree.bind(tensors, [&](size_t position) {
    copied.push_back(position);
    std::fill(memory[position].begin(), memory[position].end(), std::byte{0xff});  // all of it was read
  });
  EXPECT_EQ(copied, (std::vector<size_t>{2, 3, 4, 5}));  // not the table's words and scales
  EXPECT_EQ(static_cast<const std::byte*>(matrix.data)[0], std::byte{0});
  EXPECT_EQ(static_cast<const std::byte*>(plain.data)[127], std::byte{0});
  EXPECT_EQ(norm[63], 0.0f);
}

}  // namespace
}  // namespace dovetail::models
