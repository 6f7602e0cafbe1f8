#include "media/resize.h"

#include <algorithm>
#include <cmath>

namespace dovetail::media {
namespace {

constexpr int kChannels = 3;
constexpr int kCoefficientBits = 22;

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// The source positions that make one position of the result: `count` from `first`, weights from `weights`.
struct Taps {
  int64_t first = 0;
  int64_t count = 0;
  size_t weights = 0;
};

struct Axis {
  std::vector<Taps> taps;        // one for each kept position
  std::vector<int32_t> weights;  // in units of 2^-22
};

// One axis of `source` positions scaled to `scaled`, of which `kept` from `offset` are wanted.
Axis make_axis(int64_t source, int64_t scaled, int64_t offset, int64_t kept, Filter filter) {
  const double scale = static_cast<double>(source) / static_cast<double>(scaled);
  const double filter_scale = std::max(scale, 1.0);
  const double support = (filter == Filter::kBilinear ? 1.0 : 2.0) * filter_scale;
  Axis axis;
  axis.taps.reserve(static_cast<size_t>(kept));
  std::vector<double> values;
  for (int64_t position = offset; position < offset + kept; ++position) {
    const double center = (static_cast<double>(position) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min(source, static_cast<int64_t>(center + support + 0.5));
    values.clear();
    double sum = 0;
    for (int64_t i = first; i < end; ++i) {
      const double x = (static_cast<double>(i) - center + 0.5) * (1.0 / filter_scale);
      values.push_back(filter == Filter::kBilinear ? triangle(x) : cubic(x));
      sum += values.back();
    }
    axis.taps.push_back({first, end - first, axis.weights.size()});
    for (double value : values) {
      const double weight = (sum != 0 ? value / sum : value) * (1 << kCoefficientBits);
      axis.weights.push_back(static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5));
    }
  }
  return axis;
}

// The weights' magnitudes sum to less than 1.5, so that 255 times the sum stays below 2^31.
uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kCoefficientBits, 0, 255)); }

constexpr int32_t kHalf = 1 << (kCoefficientBits - 1);

void resize_row(const uint8_t* row, const Axis& axis, uint8_t* out) {
  for (const Taps& taps : axis.taps) {
    const uint8_t* in = row + taps.first * kChannels;
    const int32_t* weights = axis.weights.data() + taps.weights;
    int32_t red = kHalf, green = kHalf, blue = kHalf;
    for (int64_t i = 0; i < taps.count; ++i, in += kChannels) {
      red += in[0] * weights[i];
      green += in[1] * weights[i];
      blue += in[2] * weights[i];
    }
    *out++ = to_byte(red);
    *out++ = to_byte(green);
    *out++ = to_byte(blue);
  }
}

// Adds a row of samples times their weight.
void add_row(const uint8_t* row, int32_t weight, std::vector<int32_t>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += row[i] * weight;
}

// Pillow from version 13 on scales vertically first when the height shrinks much more than the width.
bool vertical_first(Size source, const ResizePlan& plan) {
  return plan.height < source.height && source.height - plan.height > 2 * (source.width - plan.width);
}

}  // namespace

Filter usual_filter(ResizeMode mode) {
  return mode == ResizeMode::kStretch ? Filter::kBilinear : Filter::kBicubic;
}

ResizePlan plan_resize(ResizeMode mode, int64_t source_width, int64_t source_height, int64_t target_width,
                       int64_t target_height) {
  if (mode == ResizeMode::kStretch) return {target_width, target_height, 0, 0};
  const double scale = std::max(static_cast<double>(target_width) / static_cast<double>(source_width),
                                static_cast<double>(target_height) / static_cast<double>(source_height));
  const auto scaled = [&](int64_t side) {
    return static_cast<int64_t>(std::floor(static_cast<double>(side) * scale + 0.5));
  };
  const int64_t width = std::max(scaled(source_width), target_width);
  const int64_t height = std::max(scaled(source_height), target_height);
  return {width, height, (width - target_width) / 2, (height - target_height) / 2};
}

std::vector<uint8_t> resize_rgb(std::span<const uint8_t> pixels, Size source, const ResizePlan& plan,
                                Size target, Filter filter) {
  const Axis columns = make_axis(source.width, plan.width, plan.left, target.width, filter);
  const Axis rows = make_axis(source.height, plan.height, plan.top, target.height, filter);
  const auto source_row = static_cast<size_t>(source.width * kChannels);
  const auto target_row = static_cast<size_t>(target.width * kChannels);
  const auto row_of_source = [&](int64_t y) { return pixels.data() + static_cast<size_t>(y) * source_row; };
  std::vector<uint8_t> result(static_cast<size_t>(target.height) * target_row);
  uint8_t* out = result.data();

  if (vertical_first(source, plan)) {
    // Only the columns that the result needs.
    const auto begin = static_cast<size_t>(columns.taps.front().first * kChannels);
    const auto end = static_cast<size_t>((columns.taps.back().first + columns.taps.back().count) * kChannels);
    std::vector<int32_t> sums(end - begin);
    std::vector<uint8_t> line(source_row);
    for (const Taps& taps : rows.taps) {
      std::fill(sums.begin(), sums.end(), kHalf);
      for (int64_t i = 0; i < taps.count; ++i) {
        add_row(row_of_source(taps.first + i) + begin, rows.weights[taps.weights + static_cast<size_t>(i)],
                sums);
      }
      std::transform(sums.begin(), sums.end(), line.begin() + static_cast<ptrdiff_t>(begin), to_byte);
      resize_row(line.data(), columns, out);
      out += target_row;
    }
    return result;
  }

  // Scaled rows are made when the first row of the result needs them; a ring keeps those still needed.
  int64_t ring_rows = 1;
  for (const Taps& taps : rows.taps) ring_rows = std::max(ring_rows, taps.count);
  std::vector<uint8_t> ring(static_cast<size_t>(ring_rows) * target_row);
  const auto ring_row = [&](int64_t y) {
    return ring.data() + static_cast<size_t>(y % ring_rows) * target_row;
  };
  std::vector<int32_t> sums(target_row);
  int64_t made = rows.taps.front().first;
  for (const Taps& taps : rows.taps) {
    for (made = std::max(made, taps.first); made < taps.first + taps.count; ++made) {
      resize_row(row_of_source(made), columns, ring_row(made));
    }
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int64_t i = 0; i < taps.count; ++i) {
      add_row(ring_row(taps.first + i), rows.weights[taps.weights + static_cast<size_t>(i)], sums);
    }
    out = std::transform(sums.begin(), sums.end(), out, to_byte);
  }
  return result;
}

}  // namespace dovetail::media
