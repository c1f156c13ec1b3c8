// The scalar reference of attention. For each head it prepares keys and values; to emulate 8-bit arithmetic it smooths
// and rounds them. Then it computes one query block at a time, with online softmax over the key blocks.
#include "tests/support/reference_attention.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/cpu/balance.h"
#include "attention/cpu/quantize.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

using Matrix = std::vector<double>;  // [tokens, head_dim]

/// One head's keys and values after smoothing and rounding, if the arithmetic rounds.
struct Head {
  Matrix k, v;
  std::vector<double> k_mean, v_mean;  // [head_dim], subtracted from k and v; zero in exact arithmetic
  std::vector<float> balance;          // [head_dim], divisor of k and factor of q; one in exact arithmetic
  std::vector<double> v_scale;         // [head_dim], scale of v if v holds e4m3 numbers; otherwise one
  Matrix cell_k, cell_v;               // [cells, head_dim], means of the cells in full blocks of video tokens
};

Matrix read(const View<const float>& view, int64_t b, int64_t h, int64_t tokens, int64_t head_dim) {
  Matrix m(static_cast<size_t>(tokens * head_dim));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) m[t * head_dim + d] = view.row(b, t, h)[d];
  return m;
}

/// Subtracts the mean of the first `tokens` tokens from these tokens. Returns the mean, [head_dim].
std::vector<double> center(Matrix& m, int64_t tokens, int64_t head_dim) {
  std::vector<double> mean(static_cast<size_t>(head_dim), 0.0);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) mean[d] += m[t * head_dim + d] / static_cast<double>(tokens);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) m[t * head_dim + d] -= mean[d];
  return mean;
}

/// Returns the mean square of each of the head_dim channels over the first `tokens` tokens.
std::vector<double> squares(const Matrix& m, int64_t tokens, int64_t head_dim) {
  std::vector<double> sum(static_cast<size_t>(head_dim), 0.0);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) sum[d] += m[t * head_dim + d] * m[t * head_dim + d];
  for (double& s : sum) s /= static_cast<double>(std::max<int64_t>(tokens, 1));
  return sum;
}

/// Divides each channel of the zero-mean keys of head h by a factor, which the head stores in `balance`. The queries of
/// all heads that share these keys are multiplied by the same factors, so scores do not change.
void balance_keys(const KernelParams& params, int64_t b, int64_t h, Head& head) {
  const int64_t tokens = params.key_length(b), head_dim = params.head_dim;
  const int64_t queries = balanced_queries(params.queries, params.keys, tokens);
  std::vector<double> q_squares(static_cast<size_t>(head_dim), 0.0);
  for (int64_t i = 0; i < params.group(); ++i) {
    const Matrix q = read(params.q, b, h * params.group() + i, queries, head_dim);
    const std::vector<double> its = squares(q, queries, head_dim);
    for (size_t d = 0; d < its.size(); ++d) q_squares[d] += its[d] / static_cast<double>(params.group());
  }
  balance_channels(q_squares, squares(head.k, tokens, head_dim), head.balance);
  for (size_t i = 0; i < head.k.size(); ++i) head.k[i] /= head.balance[i % head.balance.size()];
}

void round_keys(Matrix& k, int64_t tokens, int64_t head_dim) {
  for (int64_t block = 0; block < tokens; block += kBlock) {
    const int64_t end = std::min(block + kBlock, tokens);
    double largest[kKeyGroups] = {};
    for (int64_t t = block; t < end; ++t)
      for (int64_t d = 0; d < head_dim; ++d)
        largest[key_group(t - block)] = std::max(largest[key_group(t - block)], std::abs(k[t * head_dim + d]));
    for (int64_t t = block; t < end; ++t) {
      const double scale = int8_scale(largest[key_group(t - block)]);
      for (int64_t d = 0; d < head_dim; ++d) k[t * head_dim + d] = round_int8(k[t * head_dim + d] / scale) * scale;
    }
  }
}

void round_query(double* q, int64_t head_dim) {
  double largest = 0;
  for (int64_t d = 0; d < head_dim; ++d) largest = std::max(largest, std::abs(q[d]));
  const double scale = int8_scale(largest);
  for (int64_t d = 0; d < head_dim; ++d) q[d] = round_int8(q[d] / scale) * scale;
}

/// Rounds v to e4m3 numbers, in units of a scale for each channel. Returns the scales.
std::vector<double> round_values(Matrix& v, int64_t tokens, int64_t head_dim) {
  std::vector<double> scales;
  for (int64_t d = 0; d < head_dim; ++d) {
    double largest = 0;
    for (int64_t t = 0; t < tokens; ++t) largest = std::max(largest, std::abs(v[t * head_dim + d]));
    const double scale = scales.emplace_back(largest > 0 ? largest / kE4m3Max : 1);
    for (int64_t t = 0; t < tokens; ++t) v[t * head_dim + d] = round_e4m3(v[t * head_dim + d] / scale);
  }
  return scales;
}

/// Rounds v, or the means of its cells, to int8. Each channel has one scale per 64 rows.
void round_int8_values(Matrix& v, int64_t head_dim) {
  const int64_t tokens = static_cast<int64_t>(v.size()) / head_dim;
  for (int64_t block = 0; block < tokens; block += kBlock)
    for (int64_t d = 0; d < head_dim; ++d) {
      const int64_t end = std::min(block + kBlock, tokens);
      double largest = 0;
      for (int64_t t = block; t < end; ++t) largest = std::max(largest, std::abs(v[t * head_dim + d]));
      const double scale = largest > 0 ? largest / kInt8Max : 1;
      for (int64_t t = block; t < end; ++t) v[t * head_dim + d] = std::nearbyint(v[t * head_dim + d] / scale) * scale;
    }
}

/// Returns the means [cells, head_dim] of the first `cells` cells. A cell is `cell` consecutive rows of m.
Matrix cell_means(const Matrix& m, int64_t cells, int64_t cell, int64_t head_dim) {
  Matrix means(static_cast<size_t>(cells * head_dim), 0.0);
  for (int64_t t = 0; t < cells * cell; ++t)
    for (int64_t d = 0; d < head_dim; ++d)
      means[t / cell * head_dim + d] += m[t * head_dim + d] / static_cast<double>(cell);
  return means;
}

/// Rounds the mean keys of cells to int8, in records of 64 cells. In a record, blocks with equal mean_group() share a
/// scale.
void round_cell_keys(Matrix& k, int64_t cell, int64_t head_dim) {
  const int64_t cells = static_cast<int64_t>(k.size()) / head_dim;
  for (int64_t record = 0; record < cells; record += kBlock) {
    const int64_t end = std::min(record + kBlock, cells);
    double largest[kKeyGroups] = {};
    for (int64_t c = record; c < end; ++c)
      for (int64_t d = 0; d < head_dim; ++d) {
        double& of_group = largest[mean_group(c * cell / kBlock)];
        of_group = std::max(of_group, std::abs(k[c * head_dim + d]));
      }
    for (int64_t c = record; c < end; ++c) {
      const double scale = int8_scale(largest[mean_group(c * cell / kBlock)]);
      for (int64_t d = 0; d < head_dim; ++d) k[c * head_dim + d] = round_int8(k[c * head_dim + d] / scale) * scale;
    }
  }
}

/// Adds the cells' means of the prepared keys and values to the head.
void add_means(const KernelParams& params, int64_t b, Head& head) {
  if (params.mean_cell == 0) return;
  const int64_t cells = params.video_keys(b) / kBlock * (kBlock / params.mean_cell);
  head.cell_k = cell_means(head.k, cells, params.mean_cell, params.head_dim);
  head.cell_v = cell_means(head.v, cells, params.mean_cell, params.head_dim);
}

/// Prepares key head h of batch entry b.
Head prepare(const KernelParams& params, int64_t b, int64_t h, Arithmetic arithmetic) {
  const int64_t tokens = params.key_length(b), head_dim = params.head_dim;
  Head head{.k = read(params.k, b, h, tokens, head_dim),
            .v = read(params.v, b, h, tokens, head_dim),
            .k_mean = std::vector<double>(static_cast<size_t>(head_dim), 0.0),
            .v_mean = std::vector<double>(static_cast<size_t>(head_dim), 0.0),
            .balance = std::vector<float>(static_cast<size_t>(head_dim), 1.0F),
            .v_scale = std::vector<double>(static_cast<size_t>(head_dim), 1.0),
            .cell_k = {},
            .cell_v = {}};
  if (arithmetic == Arithmetic::exact) {
    add_means(params, b, head);
    return head;
  }
  head.k_mean = center(head.k, tokens, head_dim);
  head.v_mean = center(head.v, tokens, head_dim);
  balance_keys(params, b, h, head);
  round_keys(head.k, tokens, head_dim);
  const bool int8_values = arithmetic == Arithmetic::int8_values;
  if (int8_values) {
    round_int8_values(head.v, head_dim);
  } else {
    head.v_scale = round_values(head.v, tokens, head_dim);
  }
  add_means(params, b, head);
  round_cell_keys(head.cell_k, params.mean_cell, head_dim);
  if (int8_values) {
    round_int8_values(head.cell_v, head_dim);
  } else {
    for (double& v : head.cell_v) v = round_e4m3(v);
  }
  return head;
}

/// The running state of one query row.
struct Row {
  std::vector<double> q;       // balanced, and rounded unless the arithmetic is exact
  std::vector<double> scores;  // scores with the current key block, in log2 units; -inf where masked
  std::vector<double> out;
  double block_max = kNoScore;
  double max = kNoScore;
  double sum = 0;
  double smoothing = 0;  // the amount by which subtracting K's mean lowered every score, in natural units
};

class RowOfBlocks {
 public:
  RowOfBlocks(const KernelParams& params, const Head& head, Arithmetic arithmetic, int64_t b, int64_t h, int64_t block)
      : params_(params),
        head_(head),
        arithmetic_(arithmetic),
        b_(b),
        h_(h),
        block_(block),
        first_(block * kBlock),
        offset_(arithmetic == Arithmetic::int8 ? weight_offset(params.mean_cell) : 0),
        rows_(static_cast<size_t>(std::min(kBlock, params.queries - first_))) {
    for (size_t r = 0; r < rows_.size(); ++r) start(rows_[r], first_ + static_cast<int64_t>(r));
  }

  Counts run(const uint8_t* kept, int64_t key_blocks, double pv_threshold) {
    int64_t last = key_blocks - 1;
    while (last >= 0 && kept[last] == 0) --last;
    Counts counts{.kept_blocks = 0, .skipped_pv_blocks = 0, .mean_blocks = blocks_of(add_cells(kept))};
    for (int64_t j = 0; j <= last; ++j) {
      if (kept[j] == 0) continue;
      ++counts.kept_blocks;
      const double rise = score(j);
      if (pv_threshold < kNeverSkip && j != last && !(rise + pv_threshold > 0)) {
        ++counts.skipped_pv_blocks;
      } else {
        for (Row& row : rows_) accumulate(row, j);
      }
    }
    for (size_t r = 0; r < rows_.size(); ++r) finish(rows_[r], first_ + static_cast<int64_t>(r));
    return counts;
  }

 private:
  void start(Row& row, int64_t query) const {
    const float* q = params_.q.row(b_, query, h_);
    row.q.assign(q, q + params_.head_dim);
    row.out.assign(static_cast<size_t>(params_.head_dim), 0.0);
    row.scores.resize(kBlock);
    for (size_t d = 0; d < row.q.size(); ++d) {
      row.smoothing += row.q[d] * head_.k_mean[d] * params_.scale;
      row.q[d] *= head_.balance[d];
    }
    if (arithmetic_ != Arithmetic::exact) round_query(row.q.data(), params_.head_dim);
  }

  /// Attends to the cells' means of the blocks that are not computed and have means, 64 cells at a time. `kept` is
  /// nonzero for computed blocks. Returns the number of cells.
  int64_t add_cells(const uint8_t* kept) {
    std::vector<int64_t> cells;
    for (int64_t j = 0; j < params_.blocks_with_means(b_, block_); ++j)
      for (int64_t c = 0; kept[j] == 0 && c < kBlock / params_.mean_cell; ++c)
        cells.push_back(j * (kBlock / params_.mean_cell) + c);
    const std::span<const int64_t> all = cells;
    for (size_t first = 0; first < all.size(); first += kBlock)
      for (Row& row : rows_) add_panel(row, all.subspan(first, std::min<size_t>(kBlock, all.size() - first)));
    return static_cast<int64_t>(cells.size());
  }

  void add_panel(Row& row, std::span<const int64_t> cells) const {
    double top = kNoScore;
    for (size_t i = 0; i < cells.size(); ++i) {
      row.scores[i] = score_of(row, &head_.cell_k[cells[i] * params_.head_dim]);
      top = std::max(top, row.scores[i]);
    }
    row.block_max = top;
    raise_maximum(row, top);
    for (size_t i = 0; i < cells.size(); ++i)
      add_value(row, row.scores[i], static_cast<double>(params_.mean_cell), &head_.cell_v[cells[i] * params_.head_dim]);
  }

  double score_of(const Row& row, const double* key) const {
    double score = 0;
    for (size_t d = 0; d < row.q.size(); ++d) score += row.q[d] * key[d];
    return score * params_.scale * std::numbers::log2e;
  }

  /// Raises a row's maximum to `score` if it is lower, and rescales the row's sums to the new maximum.
  static void raise_maximum(Row& row, double score) {
    const double max = std::max(row.max, score), alpha = std::exp2(row.max - max);
    row.sum *= alpha;
    for (double& o : row.out) o *= alpha;
    row.max = max;
  }

  /// Returns the softmax weight of a score, rounded as the arithmetic rounds it, times `times`, the number of tokens
  /// that have this score.
  double weight(const Row& row, double score, double times) const {
    if (arithmetic_ == Arithmetic::int8_values)
      return std::nearbyint(kUint8Max * std::exp2(score - row.block_max)) / kUint8Max * times *
             std::exp2(row.block_max - row.max);
    const double exact = times * std::exp2(score - row.max + offset_);
    return arithmetic_ == Arithmetic::int8 ? round_e4m3(exact) : exact;
  }

  /// Adds `value` [head_dim] to a row's output with the weight of `times` tokens that have this score.
  void add_value(Row& row, double score, double times, const double* value) const {
    const double p = weight(row, score, times);
    row.sum += p;
    for (size_t d = 0; d < row.out.size(); ++d) row.out[d] += p * value[d];
  }

  /// Computes the scores of key block j for every query row. Returns the largest difference between a row's maximum in
  /// this block and its maximum before; the result is at most 0 if no maximum rose.
  double score(int64_t j) {
    double rise = kNoScore;
    for (size_t r = 0; r < rows_.size(); ++r) {
      Row& row = rows_[r];
      const int64_t visible = params_.visible_keys(b_, first_ + static_cast<int64_t>(r));
      row.block_max = kNoScore;
      for (int64_t i = 0; i < kBlock; ++i) {
        const int64_t key = j * kBlock + i;
        double s = kNoScore;
        if (key < visible) s = score_of(row, &head_.k[key * params_.head_dim]);
        row.scores[i] = s;
        row.block_max = std::max(row.block_max, s);
      }
      if (row.block_max > kNoScore) rise = std::max(rise, row.block_max - row.max);
    }
    return rise;
  }

  void accumulate(Row& row, int64_t j) const {
    if (row.block_max == kNoScore) return;
    raise_maximum(row, row.block_max);
    for (int64_t i = 0; i < kBlock; ++i) {
      if (row.scores[i] == kNoScore) continue;
      add_value(row, row.scores[i], 1, &head_.v[(j * kBlock + i) * params_.head_dim]);
    }
  }

  void finish(const Row& row, int64_t query) const {
    float* out = params_.out.row(b_, query, h_);
    const bool empty = row.max == kNoScore;
    for (size_t d = 0; d < row.out.size(); ++d)
      out[d] = empty ? 0.0F : static_cast<float>(row.out[d] / row.sum * head_.v_scale[d] + head_.v_mean[d]);
    if (params_.lse == nullptr) return;
    params_.lse[(b_ * params_.heads + h_) * params_.queries + query] = static_cast<float>(
        empty ? kNoScore : std::numbers::ln2 * (row.max + std::log2(row.sum) - offset_) + row.smoothing);
  }

  const KernelParams& params_;
  const Head& head_;
  const Arithmetic arithmetic_;
  const int64_t b_, h_, block_, first_;
  const double offset_;  // log2 of the weight of a score at the row's maximum
  std::vector<Row> rows_;
};

}  // namespace

Counts reference_attention(const KernelParams& params, const BlockMap& map, std::span<const double> pv_thresholds,
                           Arithmetic arithmetic, const ParallelFor& parallel) {
  std::atomic<int64_t> kept{0}, skipped{0}, means{0};
  for (int64_t i = 0; i < params.batch * params.heads; ++i) {
    const int64_t b = i / params.heads, h = i % params.heads;
    const Head head = prepare(params, b, h / params.group(), arithmetic);
    parallel(map.query_blocks, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const Counts counts = RowOfBlocks(params, head, arithmetic, b, h, block)
                                  .run(map.row(b, h, block), map.key_blocks, pv_thresholds[static_cast<size_t>(h)]);
        kept += counts.kept_blocks;
        skipped += counts.skipped_pv_blocks;
        means += counts.mean_blocks;
      }
    });
  }
  return {.kept_blocks = kept, .skipped_pv_blocks = skipped, .mean_blocks = means};
}

}  // namespace sparsereel::attention::cpu
