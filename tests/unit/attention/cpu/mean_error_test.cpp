// Tests how blocks are ranked and selected by the error that would arise if means replaced them: compares with formulas
// in double.
#include "attention/cpu/mean_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "attention/cpu/ranked_head.h"
#include "predicted_by_hand.h"

namespace sparsereel::attention::cpu {
namespace {

double dropped_error(const ByHand& hand, size_t tile, const uint8_t* row) {
  double sum = 0;
  for (size_t j = 0; j < hand.error[tile].size(); ++j) sum += row[j] == 0 ? hand.error[tile][j] : 0;
  return sum;
}

TEST(MeanErrors, MatchTheFormulas) {
  for (const int64_t head_dim : {16, 40, 64, 128, 256}) {
    for (const int64_t cell : {16, 32, 64}) {
      // Sizes that leave incomplete tiles, cells and blocks.
      Case c = uneven_case({.queries = 200, .keys = 330, .head_dim = head_dim}, cell);
      const KernelParams& p = c.params;
      const ByHand hand = predict_by_hand(p, 192, 1, 1);
      const auto group = [&](const View<const float>& view, int64_t tokens, int64_t size) {
        return Grouped{.view = view, .b = 1, .h = 1, .tokens = tokens, .group = size, .head_dim = head_dim};
      };
      const VideoTokens video{.queries = group(p.q, 200, 192),
                              .keys = group(p.k, 330, kBlock),
                              .values = group(p.v, 330, kBlock),
                              .mean_cell = cell,
                              .scale = p.scale};
      const MeanErrors errors = predict_mean_errors(video, group_means(video.keys), {6, 6});
      EXPECT_NEAR(errors.output_length, hand.output_length, 1e-5 * hand.output_length);
      for (size_t i = 0; i < 2; ++i)
        for (size_t j = 0; j < 6; ++j) {
          EXPECT_NEAR(errors.rank.score[i * 6 + j], hand.rank[i][j], 1e-4);
          EXPECT_NEAR(errors.error[i * 6 + j], hand.error[i][j], 1e-4 * hand.error[i][j]);
        }
    }
  }
}

/// Means cause no error if all tokens of each cell are equal, even if the cells of a block differ.
TEST(MeanErrors, AreZeroIfTokensAreEqualWithinCells) {
  Case c = uneven_case({.queries = 64, .keys = 320, .head_dim = 16, .heads = 1, .batch = 1});
  for (int64_t t = 0; t < 320; ++t)
    for (int64_t d = 0; d < 16; ++d)
      c.row(c.params.k, 0, t, 0)[d] = c.row(c.params.v, 0, t, 0)[d] = static_cast<float>((t / 16 * 7 + d) % 5);
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e-6;
  EXPECT_EQ(count_blocks(choose(c, policy, 64).prediction.map), 0);
  c.params.mean_cell = 32;
  EXPECT_EQ(count_blocks(choose(c, policy, 64).prediction.map), 5);
}

TEST(MeanErrors, StayFiniteIfAMassUnderflows) {
  Case c = uneven_case({.queries = 64, .keys = 128, .head_dim = 16, .heads = 1, .batch = 1});
  for (int64_t t = 0; t < 128; ++t) {
    c.row(c.params.q, 0, t, 0)[0] = 1000;
    c.row(c.params.k, 0, t, 0)[0] = t < 64 ? 10.0F : -10.0F;
  }
  const RankedHead head = rank_head(c.params, {.heads = std::vector<HeadPolicy>(1), .ranking = Ranking::error}, 0, 0);
  EXPECT_EQ(head.error[1], 0);
  EXPECT_TRUE(head.is_candidate(0, 1));
  EXPECT_TRUE(std::isfinite(head.rank.score[1]));
  EXPECT_LT(head.rank.score[1], head.rank.score[0]);
}

TEST(RankingByError, ChoosesOtherBlocksThanMass) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32});
  HeadPolicy policy;
  policy.topk = 0.4;
  const Choice choice = choose(c, policy, 64);
  const Prediction by_mass = predict_blocks(c.params, {.heads = choice.heads, .rows = 64}, serial);
  EXPECT_EQ(count_blocks(by_mass.map), count_blocks(choice.prediction.map));
  EXPECT_NE(by_mass.map.bits, choice.prediction.map.bits);
  EXPECT_EQ(by_mass.tiles, 0);
}

TEST(RankingByError, AppliesCdfToThePredictedErrors) {
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
    EXPECT_LT(kept - least, 0.7 * total) << "one block fewer would be enough";
  });
}

TEST(SelectionUpToAnError, KeepsTheFewestBlocksThatMeetTheBound) {
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
      // Smallest error of kept blocks; leaves out the last, incomplete block, which is always kept.
      double least = 1e30;
      for (size_t j = 0; j + 1 < hand.error[tile].size(); ++j)
        if (row[j] != 0) least = std::min(least, hand.error[tile][j]);
      EXPECT_LE(dropped, most * (1 + 1e-4));
      EXPECT_GT(dropped + least, most * (1 - 1e-4)) << "fewer blocks would keep the bound, too";
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

TEST(SelectionUpToAnError, KeepsBlocksThatContainNan) {
  Case c = uneven_case({.queries = 128, .keys = 640, .head_dim = 32});
  c.row(c.params.k, 0, 200, 0)[3] = NAN;
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e6;
  const BlockMap map = choose(c, policy, 64).prediction.map;
  EXPECT_EQ(map.row(0, 0, 0)[3], 1);
}

TEST(Means, KeepIncompleteBlocksOfVideo) {
  for (const Ranking ranking : {Ranking::mass, Ranking::error}) {
    Case c = uneven_case({.queries = 192, .keys = 300, .head_dim = 32});
    const int64_t lengths[] = {300, 170};  // in entry 1, block 2 is incomplete and later ones are padding
    c.params.key_lengths = lengths;
    const std::vector<HeadPolicy> heads(2, HeadPolicy{.topk = 0.01});
    const BlockMap map = predict_blocks(c.params, {.heads = heads, .rows = 64, .ranking = ranking}, serial).map;
    int64_t kept[2] = {};
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(map.row(0, h, i)[4], 1);
        EXPECT_EQ(map.row(1, h, i)[2], 1);
        for (int64_t b = 0; b < 2; ++b) kept[b] += std::count(map.row(b, h, i), map.row(b, h, i) + 5, 1);
      }
    for (const int64_t count : kept) EXPECT_EQ(count, 2 * 3 * 2) << "and one whole block a tile, for which topk stands";
  }
}

TEST(RankingByError, KeepsTextAndTheDiagonal) {
  Case c = uneven_case({.queries = 400, .keys = 400, .head_dim = 32});
  c.params.text_tokens = 70;  // the video then has 5 whole blocks
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e6;
  BlockMap map = choose(c, policy, 64).prediction.map;
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(map.row(1, 1, i)[j], i >= 5 || j >= 5 ? 1 : 0);
  c.params.text_tokens = 0;
  c.params.causal = true;
  map = choose(c, policy, 64).prediction.map;
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(map.row(1, 1, i)[j], i == j ? 1 : 0) << i << " " << j;
}

TEST(RankingByError, KeepsDiverseBlocks) {
  Case c = uneven_case({.queries = 320, .keys = 320, .head_dim = 32});
  HeadPolicy policy;
  policy.selection = Selection::error;
  policy.error = 1e6;
  policy.similarity = 1;  // no block reaches this similarity, so all are computed
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
