// The scalar reference: prepares a head (smoothing and rounding, if emulated), then runs online softmax a row of blocks
// at a time.
#include "attention/cpu/reference.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/cpu/quantize.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

using Matrix = std::vector<double>;  // [tokens, head_dim]

/// One head's keys and values as the arithmetic sees them.
struct Head {
  Matrix k, v;
  std::vector<double> k_mean, v_mean;  // [head_dim], taken off k and v; zero in exact arithmetic
};

Matrix read(const View<const float>& view, int64_t b, int64_t h, int64_t tokens, int64_t head_dim) {
  Matrix m(static_cast<size_t>(tokens * head_dim));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) m[t * head_dim + d] = view.row(b, t, h)[d];
  return m;
}

/// Takes the mean token off the first `tokens` rows and returns it.
std::vector<double> centre(Matrix& m, int64_t tokens, int64_t head_dim) {
  std::vector<double> mean(static_cast<size_t>(head_dim), 0.0);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) mean[d] += m[t * head_dim + d] / static_cast<double>(tokens);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < head_dim; ++d) m[t * head_dim + d] -= mean[d];
  return mean;
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

void round_values(Matrix& v, int64_t tokens, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; ++d) {
    double largest = 0;
    for (int64_t t = 0; t < tokens; ++t) largest = std::max(largest, std::abs(v[t * head_dim + d]));
    const double scale = largest > 0 ? largest / kE4m3Max : 1;
    for (int64_t t = 0; t < tokens; ++t) v[t * head_dim + d] = round_e4m3(v[t * head_dim + d] / scale) * scale;
  }
}

Head prepare(const Problem& problem, int64_t b, int64_t h, Arithmetic arithmetic) {
  const int64_t tokens = problem.key_length(b), head_dim = problem.head_dim;
  Head head{.k = read(problem.k, b, h, tokens, head_dim),
            .v = read(problem.v, b, h, tokens, head_dim),
            .k_mean = std::vector<double>(static_cast<size_t>(head_dim), 0.0),
            .v_mean = std::vector<double>(static_cast<size_t>(head_dim), 0.0)};
  if (arithmetic == Arithmetic::exact) return head;
  head.k_mean = centre(head.k, tokens, head_dim);
  head.v_mean = centre(head.v, tokens, head_dim);
  round_keys(head.k, tokens, head_dim);
  round_values(head.v, tokens, head_dim);
  return head;
}

/// The running state of one query row.
struct Row {
  std::vector<double> q;       // as the arithmetic sees it
  std::vector<double> scores;  // of the current block, log2 units; -inf where masked
  std::vector<double> out;
  double block_max = kMinusInfinity;
  double max = kMinusInfinity;
  double sum = 0;
  double smoothing = 0;  // what smoothing K took off every score, natural units
};

class RowOfBlocks {
 public:
  RowOfBlocks(const Problem& problem, const Head& head, Arithmetic arithmetic, int64_t b, int64_t h, int64_t block)
      : problem_(problem),
        head_(head),
        arithmetic_(arithmetic),
        b_(b),
        h_(h),
        first_(block * kBlock),
        rows_(static_cast<size_t>(std::min(kBlock, problem.queries - first_))) {
    for (size_t r = 0; r < rows_.size(); ++r) start(rows_[r], first_ + static_cast<int64_t>(r));
  }

  Counts run(const uint8_t* kept, int64_t key_blocks, double pv_threshold) {
    int64_t last = key_blocks - 1;
    while (last >= 0 && kept[last] == 0) --last;
    Counts counts;
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
    const float* q = problem_.q.row(b_, query, h_);
    row.q.assign(q, q + problem_.head_dim);
    row.out.assign(static_cast<size_t>(problem_.head_dim), 0.0);
    row.scores.resize(kBlock);
    for (size_t d = 0; d < row.q.size(); ++d) row.smoothing += row.q[d] * head_.k_mean[d] * problem_.scale;
    if (arithmetic_ == Arithmetic::int8) round_query(row.q.data(), problem_.head_dim);
  }

  /// Scores of key block j for every row; returns by how much the maximum rose at most over the rows (negative:
  /// nowhere).
  double score(int64_t j) {
    double rise = kMinusInfinity;
    for (size_t r = 0; r < rows_.size(); ++r) {
      Row& row = rows_[r];
      const int64_t visible = problem_.visible_keys(b_, first_ + static_cast<int64_t>(r));
      row.block_max = kMinusInfinity;
      for (int64_t i = 0; i < kBlock; ++i) {
        const int64_t key = j * kBlock + i;
        double s = kMinusInfinity;
        if (key < visible) {
          s = 0;
          for (int64_t d = 0; d < problem_.head_dim; ++d) s += row.q[d] * head_.k[key * problem_.head_dim + d];
          s *= problem_.scale * std::numbers::log2e;
        }
        row.scores[i] = s;
        row.block_max = std::max(row.block_max, s);
      }
      if (row.block_max > kMinusInfinity) rise = std::max(rise, row.block_max - row.max);
    }
    return rise;
  }

  void accumulate(Row& row, int64_t j) const {
    if (row.block_max == kMinusInfinity) return;
    const bool int8 = arithmetic_ == Arithmetic::int8;
    const double max = std::max(row.max, row.block_max);
    const double alpha = std::exp2(row.max - max);
    row.sum *= alpha;
    for (double& o : row.out) o *= alpha;
    for (int64_t i = 0; i < kBlock; ++i) {
      if (row.scores[i] == kMinusInfinity) continue;
      const double exact = std::exp2(row.scores[i] - max + (int8 ? kE4m3MaxLog2 : 0));
      const double p = int8 ? round_e4m3(exact) : exact;
      row.sum += p;
      const double* v = &head_.v[(j * kBlock + i) * problem_.head_dim];
      for (size_t d = 0; d < row.out.size(); ++d) row.out[d] += p * v[d];
    }
    row.max = max;
  }

  void finish(const Row& row, int64_t query) const {
    float* out = problem_.out.row(b_, query, h_);
    const bool empty = row.max == kMinusInfinity;
    for (size_t d = 0; d < row.out.size(); ++d)
      out[d] = empty ? 0.0F : static_cast<float>(row.out[d] / row.sum + head_.v_mean[d]);
    if (problem_.lse == nullptr) return;
    const double offset = arithmetic_ == Arithmetic::int8 ? kE4m3MaxLog2 : 0;
    problem_.lse[(b_ * problem_.heads + h_) * problem_.queries + query] = static_cast<float>(
        empty ? kMinusInfinity : std::numbers::ln2 * (row.max + std::log2(row.sum) - offset) + row.smoothing);
  }

  const Problem& problem_;
  const Head& head_;
  const Arithmetic arithmetic_;
  const int64_t b_, h_, first_;
  std::vector<Row> rows_;
};

}  // namespace

Counts reference_attention(const Problem& problem, const BlockMap& map, std::span<const double> pv_thresholds,
                           Arithmetic arithmetic, const ParallelFor& parallel) {
  std::atomic<int64_t> kept{0}, skipped{0};
  for (int64_t i = 0; i < problem.batch * problem.heads; ++i) {
    const int64_t b = i / problem.heads, h = i % problem.heads;
    const Head head = prepare(problem, b, h, arithmetic);
    parallel(map.query_blocks, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const Counts counts = RowOfBlocks(problem, head, arithmetic, b, h, block)
                                  .run(map.row(b, h, block), map.key_blocks, pv_thresholds[static_cast<size_t>(h)]);
        kept += counts.kept_blocks;
        skipped += counts.skipped_pv_blocks;
      }
    });
  }
  return {.kept_blocks = kept, .skipped_pv_blocks = skipped};
}

}  // namespace sparsereel::attention::cpu
