// Source of the tile kernel, compiled once per instruction set. The including file defines SPARSEREEL_ISA (the
// namespace), kLanes (floats per vector) and kColumns (registers per row in a product). This source calls no inline
// function of the standard library: each compilation would contain a copy of it, and the linker might keep the copy for
// the newest instruction set and use it on every machine.
#include <cstring>

#include "attention/cpu/arithmetic.h"
#include "attention/cpu/quantize_constants.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu::SPARSEREEL_ISA {
namespace {

using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntVec = int32_t __attribute__((vector_size(kLanes * sizeof(float))));

constexpr float kMinusInfinity = -__builtin_inff();
constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));  // any alignment; compiles to one unaligned load
  return v;
}
inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof(v));
}
inline Vec broadcast(float x) {
  return x - Vec{};  // x + Vec{} would turn -0 into 0, so the compiler would have to emit an addition
}
inline void prefetch(const float* from, int64_t floats) {
  for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(from + i);  // one cache line each
}
/// Returns b if a or b is NaN. exp2() passes its argument as b, so that the weight of a NaN score is NaN and reaches
/// the output.
inline Vec max(Vec a, Vec b) {
  return a > b ? a : b;
}
inline float max(float a, float b) {
  return a > b ? a : b;
}

template <typename To, typename From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

inline float lane_max(Vec v) {
  float result = v[0];
  for (int64_t i = 1; i < kLanes; ++i) result = max(result, v[i]);
  return result;
}

inline float lane_sum(Vec v) {
  float result = 0;
  for (int64_t i = 0; i < kLanes; ++i) result += v[i];
  return result;
}

/// Returns 2^x with a relative error of about 1e-7 for x up to 127, and 0 for x below -126.5 (including -inf). Adding
/// 1.5 * 2^23 + 127 rounds x to a whole number n and leaves n + 127 in the low bits. The rest f = x - n, in [-0.5,
/// 0.5], goes through a minimax polynomial of 2^f.
inline Vec exp2(Vec x) {
  constexpr float magic = 12582912.0F + 127.0F;
  x = max(broadcast(-127.0F), x);
  const Vec biased = x + magic;
  const Vec f = x - (biased - magic);
  Vec p = broadcast(0.0001534581242594868F);
  p = p * f + 0.0013399930903688073F;
  p = p * f + 0.009618489071726799F;
  p = p * f + 0.05550328642129898F;
  p = p * f + 0.24022646248340607F;
  p = p * f + 0.6931471824645996F;
  p = p * f + 1.0F;
  return p * bit_cast<Vec>(bit_cast<IntVec>(biased) << 23);
}

/// Returns the nearest e4m3 value of 0 <= x <= 448, ties to even. Below 2^-6, e4m3 has steps of 2^-9; above, it has a
/// mantissa of 3 bits.
inline Vec round_e4m3(Vec x) {
  constexpr float magic = 24576.0F;  // 1.5 * 2^(23 - 9)
  const Vec small = (x + magic) - magic;
  const IntVec bits = bit_cast<IntVec>(x);
  const Vec normal = bit_cast<Vec>((bits + 0x7FFFF + ((bits >> 20) & 1)) & ~0xFFFFF);
  return x < 0.015625F ? small : normal;
}

/// Returns the nearest whole number of 0 <= x < 2^22, ties to even, at most 255. Keeps NaN.
inline Vec round_uint8(Vec x) {
  constexpr float magic = 12582912.0F;  // 1.5 * 2^23
  const Vec whole = (x + magic) - magic;
  return whole > kUint8Max ? broadcast(kUint8Max) : whole;
}

/// Computes sum [kRows][kWidth vectors] = a [kRows][length] times b [length][kWidth vectors]. Element (r, i) of a is at
/// a[r * a_row + i * a_step]; row i of b is at b + i * b_row. length is at least 1: if the loop might not run, GCC 12
/// would keep the sums in memory.
template <int kRows, int kWidth>
struct Product {
  Vec sum[kRows][kWidth] = {};

  Product(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_row, int64_t length) {
    int64_t i = 0;
    do {
      Vec x[kWidth];
      for (int c = 0; c < kWidth; ++c) x[c] = load(b + i * b_row + c * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Vec y = broadcast(a[r * a_row + i * a_step]);
        for (int c = 0; c < kWidth; ++c) sum[r][c] += y * x[c];
      }
    } while (++i < length);
  }
};

/// Computes scores[kRows][kWidth vectors] = q [head_dim][kRowGroup] times the first kWidth vectors of the columns of
/// keys [head_dim][64].
template <int kRows, int kWidth>
void multiply_columns(const float* q, const float* keys, int64_t head_dim, float* scores) {
  const Product<kRows, kWidth> product(q, 1, kRowGroup, keys, kBlock, head_dim);
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kWidth; ++c) store(scores + r * kBlock + c * kLanes, product.sum[r][c]);
}

/// Computes scores[kRows][64] = q [head_dim][kRowGroup] times keys [head_dim][64]. Only the first `count` scores are
/// needed.
template <int kRows>
void multiply_keys(const float* q, const float* keys, int64_t count, int64_t head_dim, float* scores) {
  int64_t i = 0;
  for (; i + (kColumns - 1) * kLanes < count; i += kColumns * kLanes)
    multiply_columns<kRows, kColumns>(q, keys + i, head_dim, scores + i);
  for (; i < count; i += kLanes) multiply_columns<kRows, 1>(q, keys + i, head_dim, scores + i);
}

template <int kCount>
struct Count {
  static constexpr int value = kCount;
};

/// The factors of multiply_values(). Outputs so far are multiplied by alpha; the product that is added to them is
/// multiplied by factor and by scale.
struct Gains {
  const float* alpha;   // [rows], factors of the outputs so far
  const float* factor;  // [rows], factors of the product; null if there are none
  const float* scale;   // [padded_dim], further factors of the product

  Gains at(int64_t row, int64_t column) const { return {alpha + row, factor + row, scale + column}; }
};

/// Computes out[kRows][kWidth vectors] = out * alpha[kRows] + p [kRows][64] times values [keys][stride]. If kScales is
/// true, the product is also multiplied by factor[kRows] and scale[kWidth vectors].
template <bool kScales, int kRows, int kWidth>
void multiply_values(const float* p, const float* values, int64_t keys, int64_t stride, const Gains& gains,
                     float* out) {
  const Product<kRows, kWidth> product(p, kBlock, 1, values, stride, keys);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kWidth; ++c) {
      float* to = out + r * stride + c * kLanes;
      Vec sum = product.sum[r][c];
      if constexpr (kScales) sum *= load(gains.scale + c * kLanes) * gains.factor[r];
      store(to, load(to) * gains.alpha[r] + sum);
    }
  }
}

template <bool kScales, int kRows>
void multiply_all_values(const float* p, const float* values, int64_t keys, int64_t stride, const Gains& gains,
                         float* out) {
  const int64_t vectors = stride / kLanes;
  const auto multiply = [&](int64_t c, auto width) {
    const Gains its = kScales ? gains.at(0, c * kLanes) : gains;
    multiply_values<kScales, kRows, decltype(width)::value>(p, values + c * kLanes, keys, stride, its,
                                                            out + c * kLanes);
  };
  int64_t c = 0;
  for (; c + kColumns <= vectors; c += kColumns) multiply(c, Count<kColumns>{});
  if constexpr (kColumns > 2) {
    for (; c + 2 <= vectors; c += 2) multiply(c, Count<2>{});
  }
  for (; c < vectors; ++c) multiply(c, Count<1>{});
}

/// Calls f(first row, number of rows as a constant) for groups that together cover `rows` rows: groups of six, and a
/// last one of two or four if at most four rows are left. A group may reach past the last row.
template <typename F>
void for_row_groups(int64_t rows, const F& f) {
  int64_t r = 0;
  for (; r + 4 < rows; r += 6) f(r, Count<6>{});
  if (r + 2 < rows) {
    f(r, Count<4>{});
  } else if (r < rows) {
    f(r, Count<2>{});
  }
}

/// A panel: 64 keys and their values, or 64 means.
struct Panel {
  const float* keys;
  const float* values;
  const float* key_scale;    // [64], only in 8-bit arithmetic
  const float* value_scale;  // [padded_dim], only for int8_values
  int64_t count;             // number of keys that are not padding, or of means
  int64_t columns;           // `count`, rounded up to whole vectors
  int64_t first_key;         // index of the first key; negative for means, which every row sees
  float log2_weight;         // added to the scores after the maxima are taken
};

template <Arithmetic kArithmetic>
class TileRun {
  static constexpr bool kInt8 = kArithmetic != Arithmetic::exact, kE4m3 = kArithmetic == Arithmetic::int8;
  static constexpr bool kInt8Values = kArithmetic == Arithmetic::int8_values;

 public:
  explicit TileRun(const Tile& tile)
      : tile_(tile),
        stride_(padded_dim(tile.head_dim)),
        q_(tile.scratch),
        out_(q_ + kPaddedRows * stride_),
        scores_(out_ + kPaddedRows * stride_),
        sums_(scores_ + kPaddedRows * kBlock),
        offset_(kE4m3 ? static_cast<float>(kE4m3MaxLog2) - tile.means.log2_weight : 0.0F) {
    std::memset(tile.scratch, 0, static_cast<size_t>(tile_scratch_floats(tile.head_dim)) * sizeof(float));
    for (float& m : max_) m = kMinusInfinity;
    // Rows may be a page apart, so loading them one after the other would be slow. Prefetch all of them first.
    for (int64_t r = 0; r < tile.rows; ++r) prefetch(tile.q + r * tile.q_stride, tile.head_dim);
    for (int64_t r = 0; r < tile.rows; ++r) load_query(r);
  }

  Counts run() {
    Counts counts;
    const int64_t first = kept_from(0);
    const float* first_keys = first < tile_.key_blocks ? block(first).keys : nullptr;
    for (int64_t c = 0; c < tile_.means.count; c += kBlock) {
      const bool last = c + kBlock >= tile_.means.count;
      score(means(c));
      accumulate(means(c), last ? first_keys : means(c + kBlock).keys);
    }
    for (int64_t j = first, next = 0; j < tile_.key_blocks; j = next) {
      next = kept_from(j + 1);
      const bool last = next == tile_.key_blocks;
      ++counts.kept_blocks;
      const float rise = score(block(j));
      if (tile_.pv_threshold < static_cast<float>(kNeverSkip) && !last && !(rise + tile_.pv_threshold > 0)) {
        ++counts.skipped_pv_blocks;
      } else {
        accumulate(block(j), last ? nullptr : block(next).keys);
      }
    }
    for (int64_t r = 0; r < tile_.rows; ++r) finish(r);
    return counts;
  }

 private:
  Panel block(int64_t j) const {
    const int64_t first = j * kBlock, left = tile_.key_length - first;
    return {.keys = tile_.keys + first * tile_.head_dim,
            .values = tile_.values + first * stride_,
            .key_scale = kInt8 ? tile_.int8.key_scale + first : nullptr,
            .value_scale = kInt8Values ? tile_.int8.block_scale + j * stride_ : nullptr,
            .count = left < kBlock ? left : kBlock,
            .columns = left < kBlock ? (left + kLanes - 1) / kLanes * kLanes : kBlock,
            .first_key = first,
            .log2_weight = 0};
  }

  /// Returns the panel that begins with mean c.
  Panel means(int64_t c) const {
    const int64_t left = tile_.means.count - c;
    return {.keys = tile_.means.keys + c * tile_.head_dim,
            .values = tile_.means.values + c * stride_,
            .key_scale = kInt8 ? tile_.means.key_scale + c : nullptr,
            .value_scale = tile_.int8.value_scale,
            .count = left < kBlock ? left : kBlock,
            .columns = left < kBlock ? (left + kLanes - 1) / kLanes * kLanes : kBlock,
            .first_key = -1,
            .log2_weight = tile_.means.log2_weight};
  }

  /// Returns the first kept block at or after block j; key_blocks if there is none.
  int64_t kept_from(int64_t j) const {
    while (j < tile_.key_blocks && tile_.kept[j] == 0) ++j;
    return j;
  }

  int64_t visible_keys(int64_t r) const {
    if (!tile_.causal) return tile_.key_length;
    const int64_t sees = tile_.first_row_sees + r;
    return sees < 0 ? 0 : sees < tile_.key_length ? sees : tile_.key_length;
  }

  /// Stores query r in its group of rows, scaled so that scores come out in log2 units. The int8 emulation rounds the
  /// query to whole numbers.
  void load_query(int64_t r) {
    const float* from = tile_.q + r * tile_.q_stride;
    float* to = q_ + r / kRowGroup * kRowGroup * tile_.head_dim + r % kRowGroup;
    const float log2_scale = static_cast<float>(tile_.scale * kLog2e);
    if constexpr (kInt8) {
      float largest = 0;
      double smoothing = 0;
      for (int64_t d = 0; d < tile_.head_dim; ++d) {
        largest = max(largest, __builtin_fabsf(from[d] * tile_.int8.balance[d]));
        smoothing += static_cast<double>(from[d]) * tile_.int8.key_mean[d];
      }
      const auto scale = static_cast<float>(largest / kInt8Max + kInt8MinScale);
      for (int64_t d = 0; d < tile_.head_dim; ++d)
        to[d * kRowGroup] = __builtin_nearbyintf(from[d] * tile_.int8.balance[d] / scale);
      query_scale_[r] = scale * log2_scale;
      smoothing_[r] = smoothing * tile_.scale;
    } else {
      for (int64_t d = 0; d < tile_.head_dim; ++d) to[d * kRowGroup] = from[d] * log2_scale;
    }
  }

  /// Computes the scores of a panel in log2 units, -inf where masked. Returns the largest rise of a row's maximum. In
  /// score() and accumulate(), each group of rows also prefetches a part of what the next matrix product reads.
  float score(const Panel& panel) {
    for_row_groups(tile_.rows, [&](int64_t r, auto count) {
      constexpr int kRows = decltype(count)::value;
      prefetch(panel.values + r * stride_, kRows * stride_);
      multiply_keys<kRows>(q_ + r * tile_.head_dim, panel.keys, panel.count, tile_.head_dim, scores_ + r * kBlock);
    });
    float rise = kMinusInfinity;
    for (int64_t r = 0; r < tile_.rows; ++r) {
      float* row = scores_ + r * kBlock;
      if constexpr (kInt8) {
        for (int64_t i = 0; i < panel.columns; i += kLanes)
          store(row + i, load(row + i) * load(panel.key_scale + i) * query_scale_[r]);
      }
      const int64_t visible = panel.first_key < 0 ? panel.count : visible_keys(r) - panel.first_key;
      for (int64_t i = visible < 0 ? 0 : visible; i < panel.columns; ++i) row[i] = kMinusInfinity;
      Vec top = load(row);
      for (int64_t i = kLanes; i < panel.columns; i += kLanes) top = max(load(row + i), top);
      block_max_[r] = lane_max(top);
      if (block_max_[r] > kMinusInfinity) rise = max(block_max_[r] - max_[r], rise);
    }
    return rise;
  }

  /// Adds a panel to the output. next_keys: the keys of the next panel, to prefetch; null if there is none.
  void accumulate(const Panel& panel, const float* next_keys) {
    update_maxima();
    if constexpr (kInt8Values) update_factors(panel.log2_weight);
    for (int64_t r = 0; r < tile_.rows; ++r) {
      float* row = scores_ + r * kBlock;
      const float base = kInt8Values ? finite(block_max_[r]) : finite(max_[r]) - offset_ - panel.log2_weight;
      Vec sum = kInt8Values ? Vec{} : load(sums_ + r * 16) * alpha_[r];
      for (int64_t i = 0; i < panel.columns; i += kLanes) {
        Vec p = load(row + i) - base;
        if constexpr (kInt8Values) {
          p = round_uint8(exp2(p + kUint8MaxLog2));  // p is 0 for the row's largest score, so the weight is exactly 255
        } else {
          p = kE4m3 ? round_e4m3(exp2(p)) : exp2(p);
        }
        store(row + i, p);
        sum += p;
      }
      if constexpr (kInt8Values) sum = load(sums_ + r * 16) * alpha_[r] + sum * factor_[r];
      store(sums_ + r * 16, sum);
    }
    for_row_groups(tile_.rows, [&](int64_t r, auto count) {
      constexpr int kRows = decltype(count)::value;
      if (next_keys != nullptr) prefetch(next_keys + r * tile_.head_dim, kRows * tile_.head_dim);
      multiply_all_values<kInt8Values, kRows>(scores_ + r * kBlock, panel.values, panel.count, stride_,
                                              {alpha_ + r, factor_ + r, panel.value_scale}, out_ + r * stride_);
    });
  }

  /// Returns `max`, or 0 if it is -inf. A row without keys has the maximum -inf; its scores are -inf, so its weights
  /// become 0.
  static float finite(float max) { return max > kMinusInfinity ? max : 0; }

  /// Raises the maximum of each row to the block's maximum if that is larger, and sets alpha to the factors that
  /// rescale the rows' sums.
  void update_maxima() {
    for (int64_t r = 0; r < tile_.rows; ++r) {
      const float before = max_[r];
      max_[r] = max(block_max_[r], before);
      alpha_[r] = before - finite(max_[r]);
    }
    for (int64_t r = 0; r < tile_.rows; r += kLanes) store(alpha_ + r, exp2(load(alpha_ + r)));
  }

  /// Sets factor to the weight of a P of 1 in the current panel, relative to the weight of the row's maximum.
  void update_factors(float log2_weight) {
    for (int64_t r = 0; r < tile_.rows; ++r)
      factor_[r] = block_max_[r] - finite(max_[r]) + (log2_weight - kUint8MaxLog2);
    for (int64_t r = 0; r < tile_.rows; r += kLanes) store(factor_ + r, exp2(load(factor_ + r)));
  }

  void finish(int64_t r) {
    const float* from = out_ + r * stride_;
    float* to = tile_.out + r * tile_.out_stride;
    const bool empty = max_[r] == kMinusInfinity;
    const float sum = lane_sum(load(sums_ + r * 16));
    const float inverse = empty ? 0.0F : 1 / sum;
    for (int64_t d = 0; d < tile_.head_dim; ++d) to[d] = from[d] * inverse;
    if constexpr (kInt8) {
      for (int64_t d = 0; d < tile_.head_dim && !empty; ++d)
        to[d] = to[d] * tile_.int8.value_scale[d] + tile_.int8.value_mean[d];
    }
    if (tile_.lse == nullptr) return;
    double lse = kLn2 * (max_[r] + __builtin_log2(static_cast<double>(sum)));
    if constexpr (kInt8) lse += smoothing_[r] - kLn2 * offset_;
    tile_.lse[r] = empty ? kMinusInfinity : static_cast<float>(lse);
  }

  const Tile& tile_;
  const int64_t stride_;
  float* const q_;       // [groups][head_dim][kRowGroup]
  float* const out_;     // [kPaddedRows][stride_], before division by the row's sum
  float* const scores_;  // [kPaddedRows][64], scores, then weights
  float* const sums_;    // [kPaddedRows][16], one partial sum per lane
  const float offset_;   // log2 of the weight of a score at the row's maximum; see weight_offset()
  float max_[kPaddedRows];
  float block_max_[kPaddedRows];
  float alpha_[kBlock + 16] = {}, factor_[kBlock + 16] = {};  // padded to whole vectors
  float query_scale_[kPaddedRows];
  double smoothing_[kPaddedRows];
};

}  // namespace

Counts run_tile(const Tile& tile) {
  if (tile.int8.key_scale == nullptr) return TileRun<Arithmetic::exact>(tile).run();
  return tile.int8.block_scale == nullptr ? TileRun<Arithmetic::int8>(tile).run()
                                          : TileRun<Arithmetic::int8_values>(tile).run();
}

}  // namespace sparsereel::attention::cpu::SPARSEREEL_ISA
