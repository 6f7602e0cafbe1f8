#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/reference/reference.h"

namespace dovetail::ops::reference {
namespace {

constexpr int64_t kPage = KvPages::page_size;

int64_t key_index(const KvPages& kv, int64_t position, int64_t head, int64_t d) {
  return ((kv.pages[position / kPage] * int64_t{kv.kv_heads} + head) * kv.head_dim + d) * kPage +
         position % kPage;
}

int64_t value_index(const KvPages& kv, int64_t position, int64_t head, int64_t d) {
  return ((kv.pages[position / kPage] * int64_t{kv.kv_heads} + head) * kPage + position % kPage) *
             kv.head_dim +
         d;
}

float read(const void* base, int64_t index, DType type) {
  return type == DType::kFloat32 ? static_cast<const float*>(base)[index]
                                 : f16_to_f32(static_cast<const uint16_t*>(base)[index]);
}

void write(void* base, int64_t index, DType type, float value) {
  if (type == DType::kFloat32) {
    static_cast<float*>(base)[index] = value;
  } else {
    static_cast<uint16_t*>(base)[index] = f32_to_f16(value);
  }
}

double capped(double score, double cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

// Turns scores into softmax weights.
template <typename Float>
void softmax(Float* scores, int64_t count) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::fmax(largest, scores[i]);
  for (int64_t i = 0; i < count; ++i) sum += std::exp(scores[i] - largest);
  for (int64_t i = 0; i < count; ++i) scores[i] = static_cast<Float>(std::exp(scores[i] - largest) / sum);
}

}  // namespace

void store_kv(const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t head = 0; head < kv.kv_heads; ++head) {
      for (int64_t d = 0; d < kv.head_dim; ++d, ++k, ++v) {
        write(kv.keys, key_index(kv, first + i, head, d), kv.type, *k);
        write(kv.values, value_index(kv, first + i, head, d), kv.type, *v);
      }
    }
  }
}

size_t attention_scratch(int64_t, int64_t) { return 0; }

void attention(const AttentionTile& tile, const KvPages& kv, void*) {
  const int64_t dim = kv.head_dim;
  for (int64_t i = tile.query_begin; i < tile.query_end; ++i) {
    for (int64_t head = tile.head_begin; head < tile.head_end; ++head) {
      const float* const q = tile.q + (i * tile.heads + head) * dim;
      float* const out = tile.out + (i * tile.heads + head) * dim;
      // Two passes over the keys: the largest score first, then the weighted sum.
      auto score = [&](int64_t position) {
        double sum = 0;
        for (int64_t d = 0; d < dim; ++d) {
          sum += static_cast<double>(q[d]) * read(kv.keys, key_index(kv, position, tile.kv_head, d), kv.type);
        }
        return capped(sum * tile.scale, tile.softcap);
      };
      double largest = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t s = tile.begin[i]; s < tile.end[i]; ++s) largest = std::fmax(largest, score(s));
      for (int64_t s = tile.begin[i]; s < tile.end[i]; ++s) total += std::exp(score(s) - largest);
      for (int64_t d = 0; d < dim; ++d) out[d] = 0;
      for (int64_t s = tile.begin[i]; s < tile.end[i]; ++s) {
        const double weight = std::exp(score(s) - largest) / total;
        for (int64_t d = 0; d < dim; ++d) {
          const double v = read(kv.values, value_index(kv, s, tile.kv_head, d), kv.type);
          out[d] = static_cast<float>(out[d] + weight * v);
        }
      }
    }
  }
}

void local_relative_attention(const LocalAttention& args, int64_t row_begin, int64_t row_end, void* scratch) {
  float* const weights = static_cast<float*>(scratch);
  const int64_t row = args.heads * args.dim;
  for (int64_t i = row_begin; i < row_end; ++i) {
    const int64_t first = std::max<int64_t>(0, i - args.window + 1);
    for (int64_t head = 0; head < args.heads; ++head) {
      const float* const q = args.q + i * row + head * args.dim;
      for (int64_t j = first; j <= i; ++j) {
        const float* const k = args.k + j * row + head * args.dim;
        const float* const r = args.relative + (args.window - (i - j)) * row + head * args.dim;
        double sum = 0;
        for (int64_t d = 0; d < args.dim; ++d)
          sum += static_cast<double>(q[d]) * (static_cast<double>(k[d]) + r[d]);
        weights[j - first] = static_cast<float>(capped(sum, args.softcap));
      }
      softmax(weights, i - first + 1);
      for (int64_t d = 0; d < args.dim; ++d) {
        double sum = 0;
        for (int64_t j = first; j <= i; ++j) {
          sum += static_cast<double>(weights[j - first]) * args.v[j * row + head * args.dim + d];
        }
        args.out[i * row + head * args.dim + d] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace dovetail::ops::reference
