// Tests block selection on hand-made cases: which blocks topk, cdf, similarity, text, masks and dense heads keep.
#include "attention/cpu/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention_case.h"

namespace sparsereel::attention::cpu {
namespace {

using ::testing::ElementsAre;

/// A case of one head with head_dim 16. Every query has the score levels[j], in natural units, with the keys of block
/// j.
class Levels {
 public:
  explicit Levels(const std::vector<double>& levels, int64_t text_tokens = 0)
      : c({.queries = static_cast<int64_t>(levels.size()) * kBlock,
           .keys = static_cast<int64_t>(levels.size()) * kBlock,
           .head_dim = 16,
           .heads = 1,
           .batch = 1}) {
    c.params.scale = 1;
    c.params.text_tokens = text_tokens;
    std::fill(c.inputs.begin(), c.inputs.end(), 0.0F);
    for (int64_t t = 0; t < c.params.keys; ++t) {
      c.row(c.params.q, 0, t, 0)[0] = 1;
      c.row(c.params.k, 0, t, 0)[0] = static_cast<float>(levels[static_cast<size_t>(t / kBlock)]);
    }
  }

  std::vector<int> row(int64_t query_block, int64_t selection_rows = 128) {
    const BlockMap map = predict_blocks(c.params, {.heads = {&policy, 1}, .rows = selection_rows}, serial).map;
    const uint8_t* bits = map.row(0, 0, query_block);
    return {bits, bits + map.key_blocks};
  }

  Case c;
  HeadPolicy policy;
};

TEST(Topk, KeepsTheBestShareRoundedDown) {
  Levels x({1, 5, 2, 4, 3});
  x.policy.topk = 0.5;
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 0, 1, 0));
  x.policy.topk = 0.6;
  EXPECT_THAT(x.row(4), ElementsAre(0, 1, 0, 1, 1));
  x.policy.topk = 1;
  EXPECT_THAT(x.row(0), ElementsAre(1, 1, 1, 1, 1));
}

TEST(Topk, KeepsAtLeastOneBlock) {
  Levels x({1, 5, 2, 4, 3});
  x.policy.topk = 0.01;
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 0, 0, 0));
}

TEST(Topk, BreaksTiesByIndex) {
  Levels x({2, 2, 2, 2});
  x.policy.topk = 0.5;
  EXPECT_THAT(x.row(0), ElementsAre(1, 1, 0, 0));
}

TEST(Cdf, KeepsTheCrossingBlock) {
  Levels x({std::log(1.0), std::log(5.0), std::log(1.0), std::log(3.0)});  // attention: 0.1, 0.5, 0.1, 0.3
  x.policy.selection = Selection::cdf;
  x.policy.cdf = 0.45;
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 0, 0));
  x.policy.cdf = 0.55;
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 0, 1));
  x.policy.cdf = 0.85;
  EXPECT_THAT(x.row(0), ElementsAre(1, 1, 0, 1));
  x.policy.cdf = 1;
  EXPECT_THAT(x.row(0), ElementsAre(1, 1, 1, 1));
}

TEST(Text, IsDenseAsKeysAndQueriesInAdditionToTheSelection) {
  // There are 6 blocks. Text starts at token 5 * 64 - 10, in block 4, so blocks 4 and 5 count as text.
  Levels x({1, 5, 2, 4, 3, 9}, 64 + 10);
  x.policy.topk = 0.34;  // floor(0.34 * 6) = 2 video blocks in addition to blocks 4 and 5
  for (const int64_t block : {0, 1, 2, 3}) EXPECT_THAT(x.row(block), ElementsAre(0, 1, 0, 1, 1, 1));
  for (const int64_t block : {4, 5}) EXPECT_THAT(x.row(block), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(Text, ForcesNoVideoBlockIfItStartsAtABlockBoundary) {
  Levels x({1, 5, 2, 4}, 64);
  x.policy.topk = 0.25;
  EXPECT_THAT(x.row(2), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(x.row(3), ElementsAre(1, 1, 1, 1));
}

TEST(Selection, AveragesRealTokensOnly) {
  // The last block has only 8 keys, with the score 4. If its mean counted the 56 missing keys as zeros, the block would
  // rank below the first block, whose keys have the score 1.
  Case c({.queries = 64, .keys = 2 * kBlock + 8, .head_dim = 16, .heads = 1, .batch = 1});
  std::fill(c.inputs.begin(), c.inputs.end(), 0.0F);
  c.params.scale = 1;
  for (int64_t t = 0; t < c.params.keys; ++t) {
    if (t < 64) c.row(c.params.q, 0, t, 0)[0] = 1;
    c.row(c.params.k, 0, t, 0)[0] = t < 64 ? 1.0F : t < 128 ? 0.5F : 4.0F;
  }
  HeadPolicy policy;
  policy.topk = 0.34;
  const BlockMap map = predict_blocks(c.params, {.heads = {&policy, 1}, .rows = 128}, serial).map;
  EXPECT_THAT(std::vector<int>(map.bits.begin(), map.bits.end()), ElementsAre(0, 0, 1));
}

TEST(Selection, MakesOneChoiceForAllSelectionRows) {
  // Queries of block 0 prefer key block 0, queries of blocks 1 and 2 prefer key block 1, and queries of block 3 prefer
  // key block 3.
  Levels x({0, 0, 0, 0});
  const int64_t likes[] = {0, 1, 1, 3};
  for (int64_t t = 0; t < x.c.params.keys; ++t) {
    x.c.row(x.c.params.q, 0, t, 0)[0] = 0;
    x.c.row(x.c.params.q, 0, t, 0)[likes[t / kBlock]] = t / kBlock == 1 ? 3.0F : 1.0F;
    x.c.row(x.c.params.k, 0, t, 0)[t / kBlock] = 1;
  }
  x.policy.topk = 0.25;
  const auto chosen = [&](int64_t rows) {
    std::vector<int64_t> result;
    for (int64_t block = 0; block < 4; ++block) {
      const std::vector<int> row = x.row(block, rows);
      result.push_back(std::find(row.begin(), row.end(), 1) - row.begin());
      EXPECT_EQ(std::count(row.begin(), row.end(), 1), 1);
    }
    return result;
  };
  EXPECT_THAT(chosen(64), ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(chosen(128), ElementsAre(1, 1, 1, 1));  // blocks 2 and 3 prefer different blocks; the lower index wins
  EXPECT_THAT(chosen(192), ElementsAre(1, 1, 1, 3));
}

TEST(Similarity, ForcesDiverseKeyBlocksAndQueryTiles) {
  Levels x({1, 5, 2, 4});
  x.policy.topk = 0.25;
  x.policy.similarity = 0.5;
  // Tokens of key block 2 get alternating signs, so that their mean does not represent them.
  for (int64_t t = 128; t < 192; ++t) x.c.row(x.c.params.k, 0, t, 0)[1] = t % 2 == 0 ? 50.0F : -50.0F;
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 1, 0));
  // Queries of tile 1 (blocks 2 and 3) get alternating signs, too.
  for (int64_t t = 128; t < 256; ++t) x.c.row(x.c.params.q, 0, t, 0)[1] = t % 2 == 0 ? 50.0F : -50.0F;
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(x.row(2), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(x.row(3), ElementsAre(1, 1, 1, 1));
  x.policy.similarity = -0.1;
  EXPECT_THAT(x.row(2), ElementsAre(0, 1, 0, 0));
}

TEST(Selection, KeepsEverythingForDenseHeads) {
  Case c({.queries = 256, .keys = 256, .heads = 2, .batch = 1});
  HeadPolicy policies[2];
  policies[0].topk = 0.5;
  policies[1].dense = true;
  const BlockMap map = predict_blocks(c.params, {.heads = policies, .rows = 64}, serial).map;
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::count(map.row(0, 0, i), map.row(0, 0, i) + 4, 1), 2);
    EXPECT_EQ(std::count(map.row(0, 1, i), map.row(0, 1, i) + 4, 1), 4);
  }
}

TEST(Selection, KeepsTheDiagonalUnderACausalMask) {
  Levels x({9, 5, 2, 1, 1, 1});
  x.c.params.causal = true;
  x.policy.topk = 0.25;
  EXPECT_THAT(x.row(0, 64), ElementsAre(1, 0, 0, 0, 0, 0));
  // The best of 2 visible blocks, and the block on the diagonal.
  EXPECT_THAT(x.row(1, 64), ElementsAre(1, 1, 0, 0, 0, 0));
  EXPECT_THAT(x.row(4, 128), ElementsAre(1, 0, 0, 0, 1, 0));
  EXPECT_THAT(x.row(5, 128), ElementsAre(1, 0, 0, 0, 1, 1));
}

TEST(Selection, NeverPicksPadding) {
  Levels x({1, 5, 2, 9});
  const int64_t length = 130;
  x.c.params.key_lengths = &length;
  x.policy.topk = 0.99;  // floor(0.99 * 3) = 2 of the 3 blocks that have keys
  EXPECT_THAT(x.row(0), ElementsAre(0, 1, 1, 0));
  const int64_t none = 0;
  x.c.params.key_lengths = &none;
  EXPECT_THAT(x.row(0), ElementsAre(0, 0, 0, 0));
}

TEST(VisibleBlocks, FollowTheMasks) {
  Case c({.queries = 130, .keys = 200, .heads = 1, .batch = 1});
  EXPECT_EQ(count_blocks(visible_blocks(c.params)), 3 * 4);
  c.params.causal = true;  // query i sees keys up to i + 70
  const BlockMap map = visible_blocks(c.params);
  EXPECT_THAT(std::vector<int>(map.bits.begin(), map.bits.end()), ElementsAre(1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1));
}

}  // namespace
}  // namespace sparsereel::attention::cpu
