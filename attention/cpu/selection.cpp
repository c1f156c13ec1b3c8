// Block selection: which key blocks each tile of queries keeps, of those that nothing forces.
#include "attention/cpu/selection.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "attention/cpu/mean_error.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// One head's tokens and what selection reads of them.
struct Pooled {
  Grouped tokens;
  std::vector<float> mean;      // [groups, head_dim]
  std::vector<uint8_t> forced;  // [groups], too diverse to be represented by their mean

  Pooled(const Grouped& tokens_, double similarity, bool centred)
      : tokens(tokens_), mean(group_means(tokens)), forced(diverse_groups(tokens, mean, similarity, centred)) {}
};

/// Turns the ranks of a tile's blocks (-inf: not a candidate) into the chosen blocks.
class Chooser {
  /// Higher rank first, ties by index; a NaN goes first, so that a broken block is computed and seen.
  static auto better(const float* ranks) {
    return [ranks](int32_t a, int32_t b) {
      const float x = ranks[a], y = ranks[b];
      if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
      return x > y || (!(y > x) && a < b);
    };
  }

 public:
  explicit Chooser(const HeadPolicy& policy) : policy_(policy) {}

  /// Marks the chosen blocks in row[0 .. ranks.size()). visible: how many blocks dense attention would compute; errors:
  /// predicted of each block, and the most that those not chosen may add up to; unused unless blocks are selected so.
  void choose(const std::vector<float>& ranks, int64_t visible, const double* errors, double most_error, uint8_t* row) {
    order_.clear();
    for (size_t j = 0; j < ranks.size(); ++j)
      if (ranks[j] != kMinusInfinity) order_.push_back(static_cast<int32_t>(j));
    if (order_.empty()) return;
    const size_t count = sort_and_count(ranks.data(), visible, errors, most_error);
    for (size_t i = 0; i < count; ++i) row[order_[i]] = 1;
  }

 private:
  /// Brings the chosen blocks to the front; returns how many they are.
  size_t sort_and_count(const float* ranks, int64_t visible, const double* errors, double most_error) {
    if (policy_.selection == Selection::topk) {
      const size_t count = best_count(visible);
      if (count < order_.size())
        std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count), order_.end(), better(ranks));
      return count;
    }
    if (policy_.selection == Selection::cdf && policy_.cdf >= 1) return order_.size();
    std::sort(order_.begin(), order_.end(), better(ranks));
    return policy_.selection == Selection::cdf ? count_share(ranks) : count_above(errors, most_error);
  }

  size_t best_count(int64_t visible) const {
    const auto wanted = static_cast<size_t>(std::floor(policy_.topk * static_cast<double>(visible)));
    return std::min(std::max<size_t>(1, wanted), order_.size());
  }

  size_t count_share(const float* ranks) {
    const double top = ranks[order_[0]];
    share_.clear();
    double total = 0;
    for (const int32_t j : order_) {
      share_.push_back(std::exp(ranks[j] - top));
      total += share_.back();
    }
    double sum = 0;
    for (size_t i = 0; i < share_.size(); ++i) {
      sum += share_[i];
      if (sum >= policy_.cdf * total) return i + 1;
    }
    return order_.size();
  }

  /// A NaN, among the errors or as the limit, drops nothing.
  size_t count_above(const double* errors, double most_error) const {
    size_t count = order_.size();
    double dropped = 0;
    for (; count > 0; --count) {
      dropped += errors[order_[count - 1]];
      if (!(dropped <= most_error)) break;
    }
    return count;
  }

  const HeadPolicy& policy_;
  std::vector<int32_t> order_;
  std::vector<double> share_;  // of each candidate, in order
};

/// The errors predicted for the tiles of one head, over the mean length of their outputs.
struct Predicted {
  double sum = 0;
  int64_t tiles = 0;
};

/// Selection for one (batch, head).
class HeadSelection {
 public:
  HeadSelection(const Problem& problem, const HeadPolicy& policy, const Selector& selector, int64_t b, int64_t h)
      : problem_(problem),
        policy_(policy),
        ranking_(selector.ranking),
        rows_(selector.rows),
        b_(b),
        h_(h),
        keys_(problem.video_keys(b)),
        queries_(video_part(problem.queries, problem.text_tokens)) {}

  /// In: the visible blocks. Out: the blocks to compute.
  Predicted apply(BlockMap& map) const {
    if (policy_.dense || queries_ == 0 || keys_ == 0) return {};
    const Pooled k(group(problem_.k, keys_, kBlock), policy_.similarity, true);
    const Pooled q(group(problem_.q, queries_, rows_), policy_.similarity, false);
    MeanErrors errors{.rank = score_tiles(q, k), .error = {}, .output_length = 0};
    const bool by_error = ranking_ == Ranking::error;
    if (by_error)
      errors = predict_mean_errors(q.tokens, k.tokens, group(problem_.v, keys_, kBlock), k.mean, errors.rank,
                                   problem_.scale);
    Chooser chooser(policy_);
    Predicted predicted;
    std::vector<uint8_t> chosen(static_cast<size_t>(map.key_blocks));
    for (int64_t tile = 0; tile < errors.rank.tiles; ++tile) {
      std::fill(chosen.begin(), chosen.end(), uint8_t{1});
      if (q.forced[static_cast<size_t>(tile)] == 0) choose(tile, k, errors, chooser, chosen.data());
      for (int64_t block = first_query(tile) / kBlock; block <= last_query(tile) / kBlock; ++block) {
        uint8_t* row = map.row(b_, h_, block);
        for (int64_t j = 0; j < map.key_blocks; ++j) row[j] &= chosen[static_cast<size_t>(j)];
      }
      if (by_error) predicted.sum += dropped_error(errors, tile, chosen);
    }
    predicted.tiles = by_error ? errors.rank.tiles : 0;
    return predicted;
  }

 private:
  Grouped group(const View<const float>& view, int64_t tokens, int64_t size) const {
    return {.view = view, .b = b_, .h = h_, .tokens = tokens, .group = size, .head_dim = problem_.head_dim};
  }
  int64_t first_query(int64_t tile) const { return tile * rows_; }
  int64_t last_query(int64_t tile) const { return std::min(first_query(tile) + rows_, queries_) - 1; }
  /// Key blocks that the tile sees, text's included.
  int64_t visible_blocks(int64_t tile) const { return blocks_of(problem_.visible_keys(b_, last_query(tile))); }

  TileScores score_tiles(const Pooled& q, const Pooled& k) const {
    TileScores scores{.tiles = q.tokens.groups(), .blocks = k.tokens.groups(), .score = {}};
    scores.score.assign(static_cast<size_t>(scores.tiles * scores.blocks), kMinusInfinity);
    const int64_t head_dim = problem_.head_dim;
    for (int64_t i = 0; i < scores.tiles; ++i) {
      const int64_t seen = std::min(visible_blocks(i), scores.blocks);
      for (int64_t j = 0; j < seen; ++j)
        scores.row(i)[j] = dot(q.mean.data() + i * head_dim, k.mean.data() + j * head_dim, head_dim) *
                           static_cast<float>(problem_.scale);
    }
    return scores;
  }

  /// The blocks in front of this one that are not forced are candidates.
  int64_t first_kept(int64_t tile) const {
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int64_t diagonal = problem_.causal
                                 ? std::max<int64_t>(0, problem_.visible_keys(b_, first_query(tile)) - 1) / kBlock
                                 : visible_blocks(tile);
    // No mean stands for a ragged block.
    return std::min(diagonal, problem_.mean_cell > 0 ? keys_ / kBlock : blocks_of(keys_));
  }

  /// In: all ones.
  void choose(int64_t tile, const Pooled& k, const MeanErrors& errors, Chooser& chooser, uint8_t* chosen) const {
    const int64_t end = first_kept(tile);
    std::vector<float> ranks(errors.rank.row(tile), errors.rank.row(tile) + end);
    for (int64_t j = 0; j < end; ++j) {
      const bool forced = k.forced[static_cast<size_t>(j)] != 0;
      if (forced) ranks[static_cast<size_t>(j)] = kMinusInfinity;
      chosen[j] = forced ? 1 : 0;
    }
    const double* of_tile = errors.error.empty() ? nullptr : errors.error.data() + tile * errors.rank.blocks;
    chooser.choose(ranks, visible_blocks(tile), of_tile, policy_.error * errors.output_length, chosen);
  }

  static double dropped_error(const MeanErrors& errors, int64_t tile, const std::vector<uint8_t>& chosen) {
    double sum = 0;
    for (int64_t j = 0; j < errors.rank.blocks; ++j)
      if (chosen[static_cast<size_t>(j)] == 0) sum += errors.error[static_cast<size_t>(tile * errors.rank.blocks + j)];
    return sum / std::max(errors.output_length, 1e-30);  // values without any length have no error either
  }

  const Problem& problem_;
  const HeadPolicy& policy_;
  const Ranking ranking_;
  const int64_t rows_, b_, h_;
  const int64_t keys_, queries_;  // of video
};

/// Key blocks that the row of query blocks i sees.
int64_t visible_in_row(const Problem& problem, int64_t b, int64_t i) {
  const int64_t last_query = std::min((i + 1) * kBlock, problem.queries) - 1;
  return blocks_of(problem.visible_keys(b, last_query));
}

}  // namespace

BlockMap visible_blocks(const Problem& problem) {
  BlockMap map(problem.batch, problem.heads, problem.query_blocks(), problem.key_blocks(), true);
  keep_visible(problem, map);
  return map;
}

void keep_visible(const Problem& problem, BlockMap& map) {
  for (int64_t b = 0; b < map.batch; ++b) {
    for (int64_t i = 0; i < map.query_blocks; ++i) {
      const int64_t visible = visible_in_row(problem, b, i);
      for (int64_t h = 0; h < map.heads; ++h)
        std::fill(map.row(b, h, i) + visible, map.row(b, h, i) + map.key_blocks, uint8_t{0});
    }
  }
}

int64_t count_visible_blocks(const Problem& problem) {
  int64_t blocks = 0;
  for (int64_t b = 0; b < problem.batch; ++b)
    for (int64_t i = 0; i < problem.query_blocks(); ++i) blocks += visible_in_row(problem, b, i);
  return blocks * problem.heads;
}

int64_t count_blocks(const BlockMap& map) {
  return std::accumulate(map.bits.begin(), map.bits.end(), int64_t{0});
}

int64_t count_mean_blocks(const Problem& problem, const BlockMap& map) {
  int64_t blocks = 0;
  for (int64_t b = 0; problem.mean_cell > 0 && b < map.batch; ++b)
    for (int64_t h = 0; h < map.heads; ++h)
      for (int64_t i = 0; i < map.query_blocks; ++i) {
        const uint8_t* row = map.row(b, h, i);
        const auto dropped = std::count(row, row + problem.blocks_with_means(b, i), uint8_t{0});
        blocks += blocks_of(dropped * (kBlock / problem.mean_cell));
      }
  return blocks;
}

Prediction predict_blocks(const Problem& problem, const Selector& selector, const ParallelFor& parallel) {
  Prediction result{.map = visible_blocks(problem), .sum_error = 0, .tiles = 0};
  std::vector<Predicted> predicted(static_cast<size_t>(problem.batch * problem.heads));
  parallel(problem.batch * problem.heads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / problem.heads, h = i % problem.heads;
      predicted[static_cast<size_t>(i)] =
          HeadSelection(problem, selector.heads[static_cast<size_t>(h)], selector, b, h).apply(result.map);
    }
  });
  for (const Predicted& head : predicted) {  // in order, whatever the threads did
    result.sum_error += head.sum;
    result.tiles += head.tiles;
  }
  return result;
}

}  // namespace sparsereel::attention::cpu
