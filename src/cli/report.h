// Readable output of the commands that describe something: aligned rows and a table of a model's parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dovetail::cli {

// "label            value" on stdout. On a terminal the label is bold and a long value is broken at spaces;
// elsewhere a row is one line. Control bytes of either are shown as \xNN.
void print_row(std::string_view label, std::string_view value);

// A heading above rows that belong together.
void print_heading(std::string_view text);

// Columns of the terminal that stdout is; 0: it is none.
size_t terminal_columns();

// `text` broken at spaces, for a place where `indent` columns are taken: lines after the first begin with so
// many blanks.
std::string wrapped(std::string_view text, size_t indent, size_t columns);

// "1 tensor", "25 tensors".
std::string counted(int64_t count, std::string_view noun);

// "4.94 billion", "2.35 million", "999".
std::string count_text(int64_t count);

// A number with `digits` decimals.
std::string decimal(double value, int digits);

// A document on stdout. What is not UTF-8, such as the name of a file, is shown with U+FFFD.
void print_document(const Json& document);

struct SizedTensor {
  std::string name;
  int64_t bytes = 0;
};

// Sums of tensors by part of the model, the largest first; layers count together.
void print_parts(const std::vector<SizedTensor>& tensors);

}  // namespace dovetail::cli
