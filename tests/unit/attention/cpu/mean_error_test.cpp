// Blocks ranked and selected by the error of a mean in their place, against the formulas written out in double.
#include "attention/cpu/mean_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "attention_case.h"

namespace sparsereel::attention::cpu {
namespace {

using Vector = std::vector<double>;

/// One head's predictions, [tiles][blocks of video keys]; nothing (empty vectors) where a tile sees no block.
struct ByHand {
  std::vector<Vector> rank, error;
  double output_length = 0;
};

Vector mean_of(const View<const float>& view, int64_t b, int64_t h, int64_t first, int64_t count, int64_t head_dim) {
  Vector mean(static_cast<size_t>(head_dim));
  for (int64_t t = first; t < first + count; ++t)
    for (size_t d = 0; d < mean.size(); ++d) mean[d] += view.row(b, t, h)[d] / static_cast<double>(count);
  return mean;
}

/// Variance of each dimension about `centre`.
Vector spread_of(const View<const float>& view, int64_t b, int64_t h, int64_t first, int64_t count,
                 const Vector& centre) {
  Vector spread(centre.size());
  for (int64_t t = first; t < first + count; ++t)
    for (size_t d = 0; d < spread.size(); ++d)
      spread[d] += std::pow(view.row(b, t, h)[d] - centre[d], 2) / static_cast<double>(count);
  return spread;
}

double length(const Vector& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

ByHand predict_by_hand(const Problem& p, int64_t rows, int64_t b, int64_t h) {
  const int64_t keys = p.video_keys(b), blocks = blocks_of(keys), queries = video_part(p.queries, p.text_tokens);
  const auto zero = Vector(static_cast<size_t>(p.head_dim));
  std::vector<Vector> k_mean, k_var, v_mean;
  Vector v_deviation, centre = zero;
  for (int64_t j = 0; j < blocks; ++j) {
    const int64_t first = j * kBlock, count = std::min(kBlock, keys - first);
    k_mean.push_back(mean_of(p.k, b, h, first, count, p.head_dim));
    k_var.push_back(spread_of(p.k, b, h, first, count, k_mean.back()));
    v_mean.push_back(mean_of(p.v, b, h, first, count, p.head_dim));
    const Vector v_var = spread_of(p.v, b, h, first, count, v_mean.back());
    v_deviation.push_back(std::sqrt(std::accumulate(v_var.begin(), v_var.end(), 0.0)));
    for (size_t d = 0; d < centre.size(); ++d) centre[d] += v_mean.back()[d] / static_cast<double>(blocks);
  }
  ByHand result;
  const int64_t tiles = (queries + rows - 1) / rows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = i * rows, count = std::min(rows, queries - first);
    const Vector q = mean_of(p.q, b, h, first, count, p.head_dim), q2 = spread_of(p.q, b, h, first, count, zero);
    const int64_t seen = std::min(blocks, blocks_of(p.visible_keys(b, first + count - 1)));
    Vector score, weight;
    for (int64_t j = 0; j < seen; ++j) {
      const auto at = static_cast<size_t>(j);
      Vector away = v_mean[at];
      for (size_t d = 0; d < away.size(); ++d) away[d] -= centre[d];
      const double var = p.scale * p.scale * std::inner_product(q2.begin(), q2.end(), k_var[at].begin(), 0.0);
      score.push_back(p.scale * std::inner_product(q.begin(), q.end(), k_mean[at].begin(), 0.0));
      weight.push_back(std::sqrt(var) * v_deviation[at] + 0.5 * var * length(away));
    }
    double sum = 0;
    for (const double s : score) sum += std::exp(s);
    Vector rank, error, out = zero;
    for (size_t j = 0; j < score.size(); ++j) {
      rank.push_back(score[j] + std::log(weight[j] + 1e-30));
      error.push_back(std::exp(score[j]) / sum * weight[j]);
      for (size_t d = 0; d < out.size(); ++d) out[d] += std::exp(score[j]) / sum * v_mean[j][d];
    }
    result.rank.push_back(rank);
    result.error.push_back(error);
    result.output_length += length(out) / static_cast<double>(tiles);
  }
  return result;
}

/// Structured enough that blocks differ: each block of keys and values has its own mean and spread.
Case uneven_case(const Sizes& sizes, int64_t cell = 16) {
  Case c(sizes);
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t t = 0; t < sizes.keys; ++t)
      for (int64_t h = 0; h < sizes.heads; ++h)
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
          const int64_t block = t / kBlock;
          float& k = c.row(c.problem.k, b, t, h)[d];
          float& v = c.row(c.problem.v, b, t, h)[d];
          k = k * (0.3F + 0.2F * static_cast<float>(block % 5)) + std::sin(static_cast<float>(block * (d + 3)));
          v = v * (0.5F + 0.1F * static_cast<float>(block % 7)) + std::cos(static_cast<float>(block * (d + 1)));
        }
  c.problem.mean_cell = cell;
  return c;
}

struct Choice {
  Prediction prediction;
  std::vector<HeadPolicy> heads;
};

Choice choose(const Case& c, const HeadPolicy& policy, int64_t rows) {
  Choice choice{.prediction = {}, .heads = std::vector<HeadPolicy>(static_cast<size_t>(c.problem.heads), policy)};
  choice.prediction =
      predict_blocks(c.problem, {.heads = choice.heads, .rows = rows, .ranking = Ranking::error}, serial);
  return choice;
}

/// Calls f(by hand, tile, the tile's row of the map) for every tile of every head.
template <typename F>
void for_tiles(const Case& c, const BlockMap& map, int64_t rows, const F& f) {
  for (int64_t b = 0; b < c.problem.batch; ++b)
    for (int64_t h = 0; h < c.problem.heads; ++h) {
      const ByHand hand = predict_by_hand(c.problem, rows, b, h);
      for (size_t i = 0; i < hand.rank.size(); ++i) f(hand, i, map.row(b, h, static_cast<int64_t>(i) * rows / kBlock));
    }
}

double dropped_error(const ByHand& hand, size_t tile, const uint8_t* row) {
  double sum = 0;
  for (size_t j = 0; j < hand.error[tile].size(); ++j) sum += row[j] == 0 ? hand.error[tile][j] : 0;
  return sum;
}

TEST(MeanErrors, AreWhatTheFormulasSay) {
  for (const int64_t head_dim : {16, 40, 64, 128, 256}) {
    Case c = uneven_case({.queries = 200, .keys = 330, .head_dim = head_dim});
    const Problem& p = c.problem;
    const ByHand hand = predict_by_hand(p, 192, 1, 1);
    const auto group = [&](const View<const float>& view, int64_t tokens, int64_t size) {
      return Grouped{.view = view, .b = 1, .h = 1, .tokens = tokens, .group = size, .head_dim = head_dim};
    };
    const Grouped q = group(p.q, 200, 192), k = group(p.k, 330, kBlock);
    const std::vector<float> q_mean = group_means(q), k_mean = group_means(k);
    TileScores scores{.tiles = 2, .blocks = 6, .score = {}};
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 6; ++j)
        scores.score.push_back(static_cast<float>(p.scale) * dot(&q_mean[static_cast<size_t>(i * head_dim)],
                                                                 &k_mean[static_cast<size_t>(j * head_dim)], head_dim));
    const MeanErrors errors = predict_mean_errors(q, k, group(p.v, 330, kBlock), k_mean, scores, p.scale);
    EXPECT_NEAR(errors.output_length, hand.output_length, 1e-5 * hand.output_length);
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 6; ++j) {
        EXPECT_NEAR(errors.rank.score[i * 6 + j], hand.rank[i][j], 1e-4);
        EXPECT_NEAR(errors.error[i * 6 + j], hand.error[i][j], 1e-4 * hand.error[i][j]);
      }
  }
}

TEST(RankingByError, KeepsTheBestOfTopk) {
  for (const int64_t rows : {64, 192}) {
    Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32});
    HeadPolicy policy;
    policy.topk = 0.4;
    const Choice choice = choose(c, policy, rows);
    for_tiles(c, choice.prediction.map, rows, [&](const ByHand& hand, size_t tile, const uint8_t* row) {
      const Vector& rank = hand.rank[tile];
      std::vector<size_t> order(rank.size());
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] > rank[b]; });
      for (size_t n = 0; n < order.size(); ++n) EXPECT_EQ(row[order[n]], n < 4 ? 1 : 0) << "tile " << tile;
    });
  }
}

TEST(RankingByError, ChoosesOtherBlocksThanMass) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32});
  HeadPolicy policy;
  policy.topk = 0.4;
  const Choice choice = choose(c, policy, 192);
  const Prediction by_mass = predict_blocks(c.problem, {.heads = choice.heads, .rows = 192}, serial);
  EXPECT_EQ(count_blocks(by_mass.map), count_blocks(choice.prediction.map));
  EXPECT_NE(by_mass.map.bits, choice.prediction.map.bits);
  EXPECT_EQ(by_mass.tiles, 0);
}

TEST(RankingByError, TakesCdfOfThePredictedErrors) {
  Case c = uneven_case({.queries = 320, .keys = 640, .head_dim = 32});
  HeadPolicy policy;
  policy.selection = Selection::cdf;
  policy.cdf = 0.7;
  const Choice choice = choose(c, policy, 64);
  for_tiles(c, choice.prediction.map, 64, [&](const ByHand& hand, size_t tile, const uint8_t* row) {
    const double total = std::accumulate(hand.error[tile].begin(), hand.error[tile].end(), 0.0);
    const double kept = total - dropped_error(hand, tile, row);
    double least = total;
    for (size_t j = 0; j < hand.error[tile].size(); ++j)
      if (row[j] != 0) least = std::min(least, hand.error[tile][j]);
    EXPECT_GE(kept, 0.7 * total * (1 - 1e-4));
    EXPECT_LT(kept - least, 0.7 * total) << "one block fewer would do";
  });
}

TEST(SelectionUpToAnError, KeepsTheFewestBlocksThatHoldTheBound) {
  for (const double bound : {0.01, 0.1, 0.5, 2.0}) {
    Case c = uneven_case({.queries = 500, .keys = 700, .head_dim = 48});
    HeadPolicy policy;
    policy.selection = Selection::error;
    policy.error = bound;
    const Choice choice = choose(c, policy, 128);
    double sum = 0;
    int64_t tiles = 0;
    for_tiles(c, choice.prediction.map, 128, [&](const ByHand& hand, size_t tile, const uint8_t* row) {
      const double dropped = dropped_error(hand, tile, row), most = bound * hand.output_length;
      double least = 1e30;  // of those kept and not forced: the last block is ragged
      for (size_t j = 0; j + 1 < hand.error[tile].size(); ++j)
        if (row[j] != 0) least = std::min(least, hand.error[tile][j]);
      EXPECT_LE(dropped, most * (1 + 1e-4));
      EXPECT_GT(dropped + least, most * (1 - 1e-4)) << "one block fewer would do";
      sum += dropped / hand.output_length;
      ++tiles;
    });
    EXPECT_EQ(choice.prediction.tiles, tiles);
    EXPECT_NEAR(choice.prediction.sum_error, sum, 1e-4 * sum);
    EXPECT_LE(choice.prediction.sum_error / static_cast<double>(tiles), bound);
  }
}

TEST(SelectionUpToAnError, KeepsNoMoreBlocksForALargerBound) {
  Case c = uneven_case({.queries = 400, .keys = 640, .head_dim = 32});
  HeadPolicy policy;
  policy.selection = Selection::error;
  BlockMap before;
  for (const double bound : {1e-6, 0.02, 0.05, 0.1, 0.3, 1.0, 1e6}) {
    policy.error = bound;
    const BlockMap map = choose(c, policy, 192).prediction.map;
    if (bound == 1e-6) {
      EXPECT_EQ(count_blocks(map), static_cast<int64_t>(map.bits.size()));
    } else {
      for (size_t i = 0; i < map.bits.size(); ++i) EXPECT_LE(map.bits[i], before.bits[i]);
    }
    before = map;
  }
  EXPECT_EQ(count_blocks(before), 0) << "means may stand for everything";
}

TEST(SelectionUpToAnError, KeepsBlocksThatHoldNan) {
  Case c = uneven_case({.queries = 128, .keys = 640, .head_dim = 32});
  c.row(c.problem.k, 0, 200, 0)[3] = NAN;
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e6;
  const BlockMap map = choose(c, policy, 64).prediction.map;
  EXPECT_EQ(map.row(0, 0, 0)[3], 1);
}

TEST(Means, KeepRaggedBlocksOfVideo) {
  for (const Ranking ranking : {Ranking::mass, Ranking::error}) {
    Case c = uneven_case({.queries = 192, .keys = 300, .head_dim = 32});
    const int64_t lengths[] = {300, 170};  // of the second entry, block 2 is ragged and the others are padding
    c.problem.key_lengths = lengths;
    const std::vector<HeadPolicy> heads(2, HeadPolicy{.topk = 0.01});
    const BlockMap map = predict_blocks(c.problem, {.heads = heads, .rows = 64, .ranking = ranking}, serial).map;
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(map.row(0, 0, i)[4], 1);
      EXPECT_EQ(map.row(1, 0, i)[2], 1);
      EXPECT_EQ(std::count(map.row(0, 0, i), map.row(0, 0, i) + 5, 1), 2) << "and the best whole one";
      EXPECT_EQ(std::count(map.row(1, 0, i), map.row(1, 0, i) + 5, 1), 2);
    }
  }
}

TEST(RankingByError, KeepsTextAndTheDiagonal) {
  Case c = uneven_case({.queries = 400, .keys = 400, .head_dim = 32});
  c.problem.text_tokens = 70;  // video counts as 5 blocks
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e6;
  BlockMap map = choose(c, policy, 64).prediction.map;
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(map.row(1, 1, i)[j], i >= 5 || j >= 5 ? 1 : 0);
  c.problem.text_tokens = 0;
  c.problem.causal = true;
  map = choose(c, policy, 64).prediction.map;
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(map.row(1, 1, i)[j], i == j ? 1 : 0) << i << " " << j;
}

TEST(RankingByError, ForcesDiverseBlocksToo) {
  Case c = uneven_case({.queries = 320, .keys = 320, .head_dim = 32});
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e6;
  policy.similarity = 1;  // nothing is so alike
  const Prediction prediction = choose(c, policy, 64).prediction;
  EXPECT_EQ(count_blocks(prediction.map), static_cast<int64_t>(prediction.map.bits.size()));
  EXPECT_EQ(prediction.sum_error, 0);
  EXPECT_EQ(prediction.tiles, 2 * 2 * 5);
}

TEST(RankingByError, PredictsNothingForDenseHeads) {
  Case c = uneven_case({.queries = 320, .keys = 320, .head_dim = 32});
  HeadPolicy policy;
  policy.dense = true;
  const Prediction prediction = choose(c, policy, 64).prediction;
  EXPECT_EQ(count_blocks(prediction.map), static_cast<int64_t>(prediction.map.bits.size()));
  EXPECT_EQ(prediction.tiles, 0);
}

}  // namespace
}  // namespace sparsereel::attention::cpu
