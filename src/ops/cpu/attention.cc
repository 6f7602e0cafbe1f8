// Attention over pages, and the local attention of the audio tower.
//
// The keys of a page lie [head_dim][16 positions]: a vector of scores is Σ_d q[d] * keys[d], in ascending d,
// one fma each. The softmax runs over blocks of four pages that begin at multiples of 64 positions, whatever
// the chunk; values are added in ascending position. So a query's result depends on its own range only, not
// on the tile it is computed in.
#include "ops/cpu/kernels.h"
#include "ops/cpu/math.h"
#include "ops/cpu/simd.h"

namespace dovetail::ops::DOVETAIL_LEVEL {
namespace {

constexpr int64_t kPage = KvPages::page_size;
constexpr int kPageVectors = kPage / kLanes;
constexpr int64_t kBlockPages = 4;
constexpr int64_t kBlock = kBlockPages * kPage;
// Up to this many rows a tile reads float16 pages directly; above, a page is converted once.
constexpr int64_t kDirectRows = 4;

// Register tiles: rows and pages of scores, rows and vectors of values.
constexpr int kScoreRows = 6;
#if defined(DOVETAIL_WIDE)
constexpr int kScorePages = 4;
constexpr int kValueVectors = 5;
#else
constexpr int kScorePages = 1;
constexpr int kValueVectors = 3;
#endif
constexpr int kValueRows = 4;
static_assert(kBlockPages % kScorePages == 0);

constexpr float kMinusInfinity = -__builtin_inff();

// Where the rows of a tile keep their state. Row = query * heads + head.
struct State {
  int64_t width;  // head_dim, rounded up to whole vectors
  const float** q;
  float* scores;   // [rows][kBlock]
  float* sums;     // [rows][width], weighted values so far
  float* largest;  // [rows]
  float* total;    // [rows]
  float* rescale;  // [rows], factor of this block for what was summed before
  int64_t* begin;  // [rows], positions of this block that the row sees
  int64_t* end;
  float* keys;    // kBlockPages pages as float32
  float* values;  // the same, each position with zeros up to width
};

// Bytes of each array rounded up, so that all are aligned to 64.
DOVETAIL_INLINE uint8_t* take(uint8_t*& memory, int64_t count, int64_t size) {
  uint8_t* const array = memory;
  memory += round_up(count * size, 64);
  return array;
}

DOVETAIL_INLINE State lay_out(uint8_t* memory, int64_t rows, int64_t dim) {
  const int64_t n = round_up(rows, kLanes);
  State s;
  s.width = round_up(dim, kLanes);
  s.q = reinterpret_cast<const float**>(take(memory, n, 8));
  s.scores = reinterpret_cast<float*>(take(memory, n * kBlock, 4));
  s.sums = reinterpret_cast<float*>(take(memory, n * s.width, 4));
  s.largest = reinterpret_cast<float*>(take(memory, n, 4));
  s.total = reinterpret_cast<float*>(take(memory, n, 4));
  s.rescale = reinterpret_cast<float*>(take(memory, n, 4));
  s.begin = reinterpret_cast<int64_t*>(take(memory, n, 8));
  s.end = reinterpret_cast<int64_t*>(take(memory, n, 8));
  s.keys = reinterpret_cast<float*>(take(memory, kBlockPages * kPage * dim, 4));
  s.values = reinterpret_cast<float*>(take(memory, kBlockPages * kPage * s.width, 4));
  return s;
}

// Scores of R rows against P pages: scores[r * kBlock + p * kPage + position].
template <typename Type, int R, int P>
DOVETAIL_INLINE void score(const float* const* q, int64_t dim, const uint8_t* const* pages, float* scores) {
  F acc[R][P][kPageVectors];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kPageVectors; ++v) acc[r][p][v] = zero();
    }
  }
  for (int64_t d = 0; d < dim; ++d) {
    F k[P][kPageVectors];
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kPageVectors; ++v)
        k[p][v] = Type::get(pages[p] + (d * kPage + v * kLanes) * Type::kBytes);
    }
    for (int r = 0; r < R; ++r) {
      const F a = set1(q[r][d]);
      for (int p = 0; p < P; ++p) {
        for (int v = 0; v < kPageVectors; ++v) acc[r][p][v] = fma(a, k[p][v], acc[r][p][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kPageVectors; ++v)
        store(scores + r * kBlock + p * kPage + v * kLanes, acc[r][p][v]);
    }
  }
}

// All pages of a block against many rows.
void score_rows(const float* const* q, int64_t rows, int64_t dim, const uint8_t* const* pages,
                float* scores) {
  for (int64_t p = 0; p < kBlockPages; p += kScorePages) {
    float* const to = scores + p * kPage;
    int64_t r = 0;
    for (; r + kScoreRows <= rows; r += kScoreRows)
      score<F32, kScoreRows, kScorePages>(q + r, dim, pages + p, to + r * kBlock);
    for (; r + 2 <= rows; r += 2) score<F32, 2, kScorePages>(q + r, dim, pages + p, to + r * kBlock);
    if (r < rows) score<F32, 1, kScorePages>(q + r, dim, pages + p, to + r * kBlock);
  }
}

// Four pages at once against each row: enough independent sums for the latency of fma.
template <typename Type>
void score_few(const float* const* q, int64_t rows, int64_t dim, const uint8_t* const* pages, float* scores) {
#if defined(DOVETAIL_WIDE)
  if (rows == 4) return score<Type, 4, kBlockPages>(q, dim, pages, scores);
  if (rows == 3) return score<Type, 3, kBlockPages>(q, dim, pages, scores);
  if (rows == 2) return score<Type, 2, kBlockPages>(q, dim, pages, scores);
  score<Type, 1, kBlockPages>(q, dim, pages, scores);
#else
  if (rows == 1) return score<Type, 1, kBlockPages>(q, dim, pages, scores);
  for (int p = 0; p < kBlockPages; p += 2) {
    if (rows == 2) score<Type, 2, 2>(q, dim, pages + p, scores + p * kPage);
    if (rows == 3) score<Type, 3, 2>(q, dim, pages + p, scores + p * kPage);
    if (rows == 4) {
      score<Type, 2, 2>(q, dim, pages + p, scores + p * kPage);
      score<Type, 2, 2>(q + 2, dim, pages + p, scores + 2 * kBlock + p * kPage);
    }
  }
#endif
}

// Scores become weights relative to the largest score so far.
void soften(const State& s, int64_t row, float scale, float cap) {
  constexpr int kVectors = kBlock / kLanes;
  float* const scores = s.scores + row * kBlock;
  F value[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    value[v] = mul(load(scores + v * kLanes), set1(scale));
    if (cap > 0) value[v] = mul(set1(cap), tanh(div(value[v], set1(cap))));
  }
  if (s.begin[row] > 0 || s.end[row] < kBlock) {
    const float begin = static_cast<float>(s.begin[row]), end = static_cast<float>(s.end[row]);
    alignas(64) float index[kLanes];
    for (int i = 0; i < kLanes; ++i) index[i] = static_cast<float>(i);
    for (int v = 0; v < kVectors; ++v) {
      const F position = add(load(index), set1(static_cast<float>(v * kLanes)));
      value[v] = select(less(position, set1(begin)), set1(kMinusInfinity), value[v]);
      value[v] = select(less(position, set1(end)), value[v], set1(kMinusInfinity));
    }
  }
  F largest = set1(kMinusInfinity);
  for (int v = 0; v < kVectors; ++v) largest = max(value[v], largest);
  const float block_largest = horizontal_max(largest);
  const float before = s.largest[row];
  const float now = block_largest > before ? block_largest : before;
  const F limit = set1(now);
  F total = zero();
  for (int v = 0; v < kVectors; ++v) {
    const F weight = exp(sub(value[v], limit));
    store(scores + v * kLanes, weight);
    total = add(total, weight);
  }
  // Nothing was summed before the first block; -inf minus -inf would make a NaN of it.
  float factor[kLanes];
  store(factor, exp(set1(before - now)));
  s.rescale[row] = before == kMinusInfinity ? 0.0f : factor[0];
  s.largest[row] = now;
  s.total[row] = s.total[row] * s.rescale[row] + horizontal_sum(total);
}

// Values of a block: position i of page p begins at pages[p] + i * stride elements.
struct BlockValues {
  const uint8_t* const* pages;
  int64_t stride;
};

// sums = sums * rescale + Σ weight * value over the positions of the block that the rows see, for R rows and
// C vectors of the head. `lanes` is what the last vector has in memory.
template <typename Type, int R, int C>
DOVETAIL_INLINE void add_values(const State& s, int64_t row, BlockValues values, int64_t column,
                                int64_t lanes) {
  F acc[R][C];
  for (int r = 0; r < R; ++r) {
    const float* const sums = s.sums + (row + r) * s.width + column;
    const F factor = set1(s.rescale[row + r]);
    for (int c = 0; c < C; ++c) acc[r][c] = mul(load(sums + c * kLanes), factor);
  }
  const int64_t end = s.end[row];
  for (int64_t position = s.begin[row]; position < end;) {
    const int64_t page = position / kPage, page_end = smaller(end, (page + 1) * kPage);
    const uint8_t* source = values.pages[page] + (position % kPage * values.stride + column) * Type::kBytes;
    for (; position < page_end; ++position, source += values.stride * Type::kBytes) {
      F v[C];
      for (int c = 0; c < C; ++c) {
        const uint8_t* const p = source + c * kLanes * Type::kBytes;
        v[c] = c + 1 < C || lanes == kLanes ? Type::get(p) : Type::get_n(p, lanes);
      }
      for (int r = 0; r < R; ++r) {
        const F weight = set1(s.scores[(row + r) * kBlock + position]);
        for (int c = 0; c < C; ++c) acc[r][c] = fma(weight, v[c], acc[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float* const sums = s.sums + (row + r) * s.width + column;
    for (int c = 0; c < C; ++c) store(sums + c * kLanes, acc[r][c]);
  }
}

// The vectors of a head in as few passes as the registers allow, all about as wide.
template <typename Type, int R>
void add_all_values(const State& s, int64_t row, BlockValues values) {
  const int64_t vectors = s.width / kLanes, passes = (vectors + kValueVectors - 1) / kValueVectors;
  for (int64_t pass = 0, first = 0; pass < passes; ++pass) {
    const int64_t count = (vectors - first + passes - pass - 1) / (passes - pass);
    const int64_t column = first * kLanes,
                  lanes = smaller(kLanes, values.stride - column - (count - 1) * kLanes);
    if (count == 1) add_values<Type, R, 1>(s, row, values, column, lanes);
    if (count == 2) add_values<Type, R, 2>(s, row, values, column, lanes);
    if (count == 3) add_values<Type, R, 3>(s, row, values, column, lanes);
#if defined(DOVETAIL_WIDE)
    if (count == 4) add_values<Type, R, 4>(s, row, values, column, lanes);
    if (count == 5) add_values<Type, R, 5>(s, row, values, column, lanes);
#endif
    first += count;
  }
}

template <typename Type>
void add_values_of_rows(const State& s, int64_t rows, BlockValues values) {
  for (int64_t row = 0; row < rows;) {
    if (s.begin[row] >= s.end[row]) {
      ++row;
      continue;
    }
    // Rows that see the same positions share the loads.
    int64_t same = 1;
    while (same < kValueRows && row + same < rows && s.begin[row + same] == s.begin[row] &&
           s.end[row + same] == s.end[row]) {
      ++same;
    }
    if (same == kValueRows) {
      add_all_values<Type, kValueRows>(s, row, values);
    } else {
      same = 1;
      add_all_values<Type, 1>(s, row, values);
    }
    row += same;
  }
}

// With zeros up to a whole vector.
template <typename Type>
void convert(const uint8_t* source, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, Type::get(source + i * Type::kBytes));
  if (i < count) store(out + i, Type::get_n(source + i * Type::kBytes, count - i));
}

template <typename Type>
void attention_of_type(const AttentionTile& tile, const KvPages& kv, uint8_t* memory) {
  const int64_t dim = kv.head_dim, heads = tile.head_end - tile.head_begin;
  const int64_t rows = (tile.query_end - tile.query_begin) * heads;
  const State s = lay_out(memory, rows, dim);
  int64_t first = INT64_MAX, last = 0;
  for (int64_t i = tile.query_begin; i < tile.query_end; ++i) {
    first = smaller(first, tile.begin[i]);
    last = larger(last, tile.end[i]);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = (i - tile.query_begin) * heads + h;
      s.q[row] = tile.q + (i * tile.heads + tile.head_begin + h) * dim;
      s.largest[row] = kMinusInfinity;
      s.total[row] = 0.0f;
    }
  }
  memset(s.sums, 0, static_cast<size_t>(rows * s.width) * sizeof(float));
  const bool direct = rows <= kDirectRows;
  const int64_t page_bytes = kPage * dim * Type::kBytes;

  for (int64_t block = first / kBlock * kBlock; block < last; block += kBlock) {
    // Only pages that some row sees may be touched, and of the values only positions that some row sees.
    const int64_t seen_begin = larger(first - block, 0), seen_end = smaller(last - block, kBlock);
    const int64_t page_begin = seen_begin / kPage, page_end = (seen_end + kPage - 1) / kPage;
    const uint8_t* keys[kBlockPages];
    const uint8_t* values[kBlockPages];
    for (int64_t p = 0; p < kBlockPages; ++p) {
      const int64_t source = smaller(larger(p, page_begin), page_end - 1);
      const int64_t page = int64_t{kv.pages[block / kPage + source]} * kv.kv_heads + tile.kv_head;
      keys[p] = bytes(kv.keys) + page * page_bytes;
      values[p] = bytes(kv.values) + page * page_bytes;
    }
    int64_t row_begin = rows, row_end = 0;  // that see this block
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = tile.query_begin + row / heads;
      s.begin[row] = larger(tile.begin[i] - block, 0);
      s.end[row] = smaller(tile.end[i] - block, kBlock);
      if (s.begin[row] >= s.end[row]) continue;
      row_begin = smaller(row_begin, row);
      row_end = row + 1;
    }
    if (direct) {
      score_few<Type>(s.q, rows, dim, keys, s.scores);
    } else {
      for (int64_t position = seen_begin; position < seen_end; ++position) {
        const int64_t p = position / kPage;
        convert<Type>(values[p] + position % kPage * dim * Type::kBytes, dim, s.values + position * s.width);
      }
      for (int64_t p = 0; p < kBlockPages; ++p) {
        convert<Type>(keys[p], dim * kPage, s.keys + p * kPage * dim);
        keys[p] = bytes(s.keys + p * kPage * dim);
        values[p] = bytes(s.values + p * kPage * s.width);
      }
      score_rows(s.q + row_begin, row_end - row_begin, dim, keys, s.scores + row_begin * kBlock);
    }
    for (int64_t row = row_begin; row < row_end; ++row) {
      if (s.begin[row] < s.end[row]) soften(s, row, tile.scale, tile.softcap);
    }
    if (direct) {
      add_values_of_rows<Type>(s, rows, {values, dim});
    } else {
      add_values_of_rows<F32>(s, rows, {values, s.width});
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* const out = tile.out + (s.q[row] - tile.q);
    const F total = set1(s.total[row]);
    for (int64_t d = 0; d < dim; d += kLanes) {
      const int64_t n = smaller(kLanes, dim - d);
      store_n(out + d, div(load(s.sums + row * s.width + d), total), n);
    }
  }
}

template <typename Type>
DOVETAIL_INLINE void put(uint8_t* p, F a, int64_t n) {
  if constexpr (Type::kBytes == 2) {
    store_f16_n(p, a, n);
  } else {
    store_n(reinterpret_cast<float*>(p), a, n);
  }
}

template <typename Type>
void store_kv_of_type(const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv) {
  const int64_t dim = kv.head_dim;
  for (int64_t i = 0; i < m; ++i) {
    const int64_t page = kv.pages[(first + i) / kPage], slot = (first + i) % kPage;
    for (int64_t head = 0; head < kv.kv_heads; ++head, k += dim, v += dim) {
      const int64_t base = (page * kv.kv_heads + head) * kPage * dim;
      uint8_t* const keys = static_cast<uint8_t*>(kv.keys) + (base + slot) * Type::kBytes;
      uint8_t* const values = static_cast<uint8_t*>(kv.values) + (base + slot * dim) * Type::kBytes;
      for (int64_t d = 0; d < dim; d += kLanes) {
        const int64_t n = smaller(kLanes, dim - d);
        put<Type>(values + d * Type::kBytes, load_n(v + d, n), n);
        uint8_t column[kLanes * Type::kBytes];
        put<Type>(column, load_n(k + d, n), n);
        for (int64_t j = 0; j < n; ++j) {
          memcpy(keys + (d + j) * kPage * Type::kBytes, column + j * Type::kBytes, Type::kBytes);
        }
      }
    }
  }
}

}  // namespace

void store_kv(const float* k, const float* v, int64_t m, int64_t first, const KvPages& kv) {
  if (kv.type == DType::kFloat16) return store_kv_of_type<F16>(k, v, m, first, kv);
  store_kv_of_type<F32>(k, v, m, first, kv);
}

size_t attention_scratch(int64_t rows, int64_t head_dim) {
  const int64_t n = round_up(rows, kLanes);
  const int64_t width = round_up(head_dim, kLanes);
  const int64_t floats = n * (kBlock + width + 3) + kBlockPages * kPage * (head_dim + width);
  constexpr int64_t kArrays = 10;
  return static_cast<size_t>(floats * 4 + n * 24 + kArrays * 64);
}

void attention(const AttentionTile& tile, const KvPages& kv, void* scratch) {
  uint8_t* const memory = static_cast<uint8_t*>(scratch);
  if (kv.type == DType::kFloat16) return attention_of_type<F16>(tile, kv, memory);
  attention_of_type<F32>(tile, kv, memory);
}

void local_relative_attention(const LocalAttention& args, int64_t row_begin, int64_t row_end, void* scratch) {
  float* const weights = static_cast<float*>(scratch);
  const int64_t row = args.heads * args.dim;
  const F cap = set1(args.softcap);
  for (int64_t i = row_begin; i < row_end; ++i) {
    const int64_t first = larger(0, i - args.window + 1), count = i - first + 1;
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t at = head * args.dim;
      const float* const q = args.q + i * row + at;
      for (int64_t j = first; j <= i; ++j) {
        const float* const k = args.k + j * row + at;
        const float* const relative = args.relative + (args.window - (i - j)) * row + at;
        F sum = zero();
        for (int64_t d = 0; d < args.dim; d += kLanes) {
          const int64_t n = smaller(kLanes, args.dim - d);
          sum = fma(load_n(q + d, n), add(load_n(k + d, n), load_n(relative + d, n)), sum);
        }
        weights[j - first] = horizontal_sum(sum);
      }
      for (int64_t j = 0; j < count; j += kLanes) {
        const int64_t n = smaller(kLanes, count - j);
        F score = load_n(weights + j, n);
        if (args.softcap > 0) score = mul(cap, tanh(div(score, cap)));
        store_n(weights + j, score, n);
      }
      float most = kMinusInfinity;
      for (int64_t j = 0; j < count; ++j) most = weights[j] > most ? weights[j] : most;
      const F largest = set1(most);
      for (int64_t j = 0; j < count; j += kLanes) {
        const int64_t n = smaller(kLanes, count - j);
        store_n(weights + j, exp(sub(load_n(weights + j, n), largest)), n);
      }
      float total = 0.0f;
      for (int64_t j = 0; j < count; ++j) total += weights[j];
      for (int64_t d = 0; d < args.dim; d += kLanes) {
        const int64_t n = smaller(kLanes, args.dim - d);
        F sum = zero();
        for (int64_t j = first; j <= i; ++j) {
          sum = fma(set1(weights[j - first]), load_n(args.v + j * row + at + d, n), sum);
        }
        store_n(args.out + i * row + at + d, div(sum, set1(total)), n);
      }
    }
  }
}

}  // namespace dovetail::ops::DOVETAIL_LEVEL
