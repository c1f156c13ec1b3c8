// Tests the budget of blocks that all tiles of a batch entry share: compares it with sorting all candidates. Also tests
// the bound on the errors of blocks: compares it with its formula.
#include "attention/cpu/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <span>
#include <thread>

#include "attention/length_sum.h"
#include "predicted_by_hand.h"
#include "tests/support/head_parts.h"

namespace sparsereel::attention::cpu {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kNone = -std::numeric_limits<float>::infinity();

HeadPolicy keep(double topk) {
  HeadPolicy policy;
  policy.topk = topk;
  return policy;
}

RankedHead ranked(const std::vector<std::vector<float>>& rows, int64_t visible) {
  const auto tiles = static_cast<int64_t>(rows.size()), blocks = static_cast<int64_t>(rows[0].size());
  RankedHead head;
  head.rank = {.tiles = tiles, .blocks = blocks, .score = {}};
  for (const auto& row : rows) head.rank.score.insert(head.rank.score.end(), row.begin(), row.end());
  head.visible.assign(rows.size(), visible);
  head.dense.assign(rows.size(), 0);
  for (const float rank : head.rank.score) head.kept.push_back(rank == kNone ? 1 : 0);
  return head;
}

TEST(Budget, GoesToTheBestBlocksOfAllHeadsAndTiles) {
  const std::vector<RankedHead> given = {ranked({{1, 2, 3, 4}, {9, 8, 7, 6}}, 4),
                                         ranked({{0, 1, 5, 1}, {5.5F, 0, 0, 0}}, 4)};
  auto heads = given;
  spend_budget(heads, 0.25);  // 4 blocks: the best block of each tile
  EXPECT_THAT(heads[0].kept, ElementsAre(0, 0, 0, 1, 1, 0, 0, 0));
  EXPECT_THAT(heads[1].kept, ElementsAre(0, 0, 1, 0, 1, 0, 0, 0));
  heads = given;
  spend_budget(heads, 0.5);  // 8 blocks: 4 more
  EXPECT_THAT(heads[0].kept, ElementsAre(0, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(heads[1].kept, ElementsAre(0, 0, 1, 0, 1, 0, 0, 0));
  heads = given;
  spend_budget(heads, 1);
  for (const RankedHead& head : heads) EXPECT_THAT(head.kept, Each(1));
}

TEST(Budget, DistributesTiesEquallyAmongTiles) {
  std::vector<RankedHead> heads = {ranked({{1, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {0, 0, 1, 1, 1, 1}}, 6)};
  spend_budget(heads, 0.5);  // 9 blocks: the best one of each tile, then 2 more of rank 1 for each tile
  EXPECT_THAT(heads[0].kept, ElementsAre(1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0));
}

TEST(Budget, GivesEveryTileABlockButDenseTilesNone) {
  std::vector<RankedHead> heads = {ranked({{1, 2}, {3, 4}, {kNone, kNone}}, 2)};
  heads[0].dense[2] = 1;
  spend_budget(heads, 0.01);
  EXPECT_THAT(heads[0].kept, ElementsAre(0, 1, 0, 1, 1, 1));
}

TEST(Budget, KeepsNan) {
  std::vector<RankedHead> heads = {ranked({{NAN, 2, NAN, NAN}, {3, 4, 1, NAN}}, 4)};
  spend_budget(heads, 0.25);  // a budget of 2 blocks, but all 4 blocks with the rank NaN are kept
  EXPECT_THAT(heads[0].kept, ElementsAre(1, 0, 1, 1, 0, 0, 0, 1));
  heads = {ranked({{NAN, 2, 0, 0}, {3, 4, 1, NAN}}, 4)};
  spend_budget(heads, 0.75);  // 6 blocks, 2 of them with NaN
  EXPECT_THAT(heads[0].kept, ElementsAre(1, 1, 0, 0, 1, 1, 1, 1));
}

RankedHead with_lengths(RankedHead head, std::vector<float> lengths) {
  head.tile_lengths = std::move(lengths);
  return head;
}

float log_of(double error) {
  return static_cast<float>(std::log(error));
}

TEST(BlockBound, KeepsBlocksAboveTheBoundAndTheBestOfEachTile) {
  const std::vector<float> one = {log_of(0.019), log_of(0.021), log_of(0.05), kNone};
  const std::vector<float> other = {log_of(0.001), log_of(0.0199), log_of(0.01), log_of(0.002)};
  const std::vector<RankedHead> given = {with_lengths(ranked({one, other}, 4), {3, 100}),
                                         with_lengths(ranked({other, one}, 4), {1, 100})};
  auto heads = given;
  keep_above_bound(heads, 0.01);  // the bound is multiplied by 2, the mean output length
  EXPECT_THAT(heads[0].kept, ElementsAre(0, 1, 1, 1, 0, 1, 0, 0));
  EXPECT_THAT(heads[1].kept, ElementsAre(0, 1, 0, 0, 0, 1, 1, 1));
  heads = given;
  keep_above_bound(heads, 100);
  EXPECT_THAT(heads[0].kept, ElementsAre(0, 0, 1, 1, 0, 1, 0, 0));
  heads = given;
  keep_above_bound(heads, 1e-6);
  for (const RankedHead& head : heads) EXPECT_THAT(head.kept, Each(1));
}

TEST(BlockBound, AveragesOverEveryEighthTile) {
  const std::vector<std::vector<float>> rows(17, {log_of(9), log_of(3), log_of(1)});
  std::vector<float> lengths(17, 1000);
  lengths[0] = 1, lengths[8] = 2, lengths[16] = 3;
  std::vector<RankedHead> heads = {with_lengths(ranked(rows, 3), lengths)};
  keep_above_bound(heads, 1);
  for (size_t tile = 0; tile < 17; ++tile) {
    EXPECT_EQ(heads[0].kept[3 * tile + 1], 1);
    EXPECT_EQ(heads[0].kept[3 * tile + 2], 0);
  }
}

TEST(BlockBound, KeepsNanAndKeepsEverythingIfNoLengthIsFinite) {
  const std::vector<std::vector<float>> rows = {{NAN, -9, NAN, -8}, {-9, -8, -9, NAN}};
  std::vector<RankedHead> heads = {with_lengths(ranked(rows, 4), {1, 1})};
  keep_above_bound(heads, 1);
  EXPECT_THAT(heads[0].kept, ElementsAre(1, 0, 1, 0, 0, 0, 0, 1));
  heads = {with_lengths(ranked(rows, 4), {NAN, 1}), with_lengths(ranked(rows, 4), {1, 1})};
  keep_above_bound(heads, 1);
  EXPECT_THAT(heads[0].kept, ElementsAre(1, 0, 1, 0, 0, 0, 0, 1)) << "the other head's counts";
  heads = {with_lengths(ranked(rows, 4), {NAN, 1})};
  keep_above_bound(heads, 1);
  EXPECT_THAT(heads[0].kept, Each(1));
}

TEST(BlockBound, KeepsOnlyTheBestBlockIfValuesAreZero) {
  const float none = log_of(1e-30);  // the rank of a block without error, before log(mass) is added
  std::vector<RankedHead> heads = {with_lengths(ranked({{none - 1, none - 0.5F, none - 2}}, 3), {0})};
  keep_above_bound(heads, 0.01);
  EXPECT_THAT(heads[0].kept, ElementsAre(0, 1, 0));
}

TEST(BlockBound, LeavesDenseTilesAlone) {
  std::vector<RankedHead> heads = {with_lengths(ranked({{0, -9}, {kNone, kNone}}, 2), {1, 1})};
  heads[0].dense[1] = 1;
  keep_above_bound(heads, 0.1);
  EXPECT_THAT(heads[0].kept, ElementsAre(1, 0, 1, 1));
}

/// Returns `count` heads with random ranks. Many ranks are equal, and some are NaN.
std::vector<RankedHead> some_heads(int64_t count, int64_t seed) {
  std::vector<RankedHead> heads;
  uint64_t state = static_cast<uint64_t>(seed);
  const auto next = [&state] { return state = state * 6364136223846793005U + 1442695040888963407U, state >> 40; };
  for (int64_t head = 0; head < count; ++head) {
    std::vector<std::vector<float>> rows(7, std::vector<float>(11));
    for (std::vector<float>& row : rows)
      for (float& rank : row) {
        const uint64_t kind = next() % 40;
        rank = kind == 0 ? NAN : kind < 4 ? kNone : static_cast<float>(next() % 9) * 0.25F - 1;
      }
    heads.push_back(ranked(rows, 11));
    for (int64_t tile = 0; tile < 7; ++tile)
      heads.back().tile_lengths.push_back(
          std::ldexp(static_cast<float>(next() % 1000), static_cast<int>(next() % 60) - 40));
  }
  return heads;
}

/// Expects several calls, each with a part of the heads, to choose the same blocks as one call with all heads. `choose`
/// is spend_budget() or keep_above_bound(). `of` lists the budgets or bounds to try.
void expect_parts_choose_as_one(void (*choose)(std::span<RankedHead>, double, const HeadPart*),
                                std::initializer_list<double> of) {
  for (int64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<RankedHead> given = some_heads(5, seed);
    for (const double amount : of) {
      auto whole = given, parts = given;
      choose(whole, amount, nullptr);
      test::run_parts({2, 1, 2}, /*alike=*/true, [&](const HeadPart& part, int64_t heads) {
        choose(std::span(parts).subspan(static_cast<size_t>(part.first), static_cast<size_t>(heads)), amount, &part);
      });
      for (size_t head = 0; head < whole.size(); ++head)
        EXPECT_EQ(parts[head].kept, whole[head].kept) << seed << amount;
    }
  }
}

TEST(Budget, IsTheSameWhenHeadsAreSplitIntoParts) {
  expect_parts_choose_as_one(spend_budget, {0.01, 0.1, 0.3, 0.6, 0.9, 1.0});
}

TEST(BlockBound, IsTheSameWhenHeadsAreSplitIntoParts) {
  expect_parts_choose_as_one(keep_above_bound, {1e-7, 1e-5, 1e-3});
}

TEST(Budget, IsSeparateForHeadsWithDifferentPolicies) {
  const std::vector<RankedHead> given = some_heads(2, 3);
  auto alone = given, part_of_more = given;
  spend_budget(alone, 0.3);
  const HeadPart part{.first = 1, .all = 3, .alike = false, .sum = [](int64_t*, int64_t) { FAIL() << "told others"; }};
  spend_budget(part_of_more, 0.3, &part);
  for (size_t head = 0; head < alone.size(); ++head) EXPECT_EQ(part_of_more[head].kept, alone[head].kept);
}

/// A block that may be kept if the budget allows, and its rank by the formulas.
struct Candidate {
  double rank;
  int64_t h, tile, block;
};

/// The budget of one batch entry. `wanted` is the number of blocks that topk allows in addition to the best block of
/// each tile. The candidates are all other blocks, because the best block of each tile is always kept. Supports no
/// similarity.
struct Entry {
  int64_t wanted = 0;
  std::vector<Candidate> candidates;  // sorted, highest rank first

  Entry(const KernelParams& p, double topk, int64_t rows, int64_t b) {
    const int64_t queries = video_part(p.queries, p.text_tokens);
    for (int64_t h = 0; h < p.heads; ++h) {
      const ByHand hand = predict_by_hand(p, rows, b, h);
      for (int64_t first = 0; first < queries; first += rows) {
        const int64_t last = std::min(first + rows, queries) - 1;
        int64_t end = p.video_keys(b) / kBlock;  // number of whole blocks
        if (p.causal) end = std::min(end, std::max<int64_t>(p.visible_keys(b, first) - 1, 0) / kBlock);
        const auto share = std::floor(topk * static_cast<double>(blocks_of(p.visible_keys(b, last))));
        const Vector& rank = hand.rank[static_cast<size_t>(first / rows)];
        if (end <= 0) continue;
        wanted += std::max<int64_t>(1, static_cast<int64_t>(share)) - 1;
        const int64_t best = std::max_element(rank.begin(), rank.begin() + end) - rank.begin();
        for (int64_t j = 0; j < end; ++j)
          if (j != best) candidates.push_back({rank[static_cast<size_t>(j)], h, first / rows, j});
      }
    }
    std::sort(candidates.begin(), candidates.end(), [](const auto& x, const auto& y) { return x.rank > y.rank; });
  }
};

/// Expects each batch entry to keep its best candidates, as many as its budget allows, and all visible blocks that are
/// no candidates.
void expect_budgets(const Case& c, double topk, int64_t rows) {
  const KernelParams& p = c.params;
  const BlockMap map = choose(c, keep(topk), rows).prediction.map;
  BlockMap expected = visible_blocks(p);
  for (int64_t b = 0; b < p.batch; ++b) {
    const Entry entry(p, topk, rows, b);
    const auto& sorted = entry.candidates;
    for (auto n = static_cast<size_t>(entry.wanted); n < sorted.size(); ++n) {
      if (n > 0 && n == static_cast<size_t>(entry.wanted)) {
        ASSERT_GT(sorted[n - 1].rank - sorted[n].rank, 1e-5) << "too close to say which";
      }
      const int64_t end = std::min((sorted[n].tile + 1) * rows, video_part(p.queries, p.text_tokens));
      for (int64_t i = sorted[n].tile * rows / kBlock; i < blocks_of(end); ++i)
        expected.row(b, sorted[n].h, i)[sorted[n].block] = 0;
    }
  }
  EXPECT_EQ(map.bits, expected.bits);
  EXPECT_LT(count_blocks(map), count_blocks(visible_blocks(p)));
}

TEST(BatchEntryBudget, KeepsTheBestBlocksOfItsHeadsAndTiles) {
  for (const int64_t rows : {64, 128, 192})
    for (const double topk : {0.01, 0.15, 0.4})
      expect_budgets(uneven_case({.queries = 640, .keys = 640, .head_dim = 32, .heads = 3}), topk, rows);
}

TEST(BatchEntryBudget, MovesBlocksBetweenHeadsAndBetweenTiles) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32, .batch = 1});
  for (int64_t t = 0; t < 640; ++t)
    for (int64_t d = 0; d < 32; ++d) {
      c.row(c.params.v, 0, t, 1)[d] *= 1.3F;                // larger errors of means in head 1,
      if (t >= 320) c.row(c.params.q, 0, t, 0)[d] *= 0.1F;  // smaller ones for late queries of head 0
    }
  expect_budgets(c, 0.3, 64);
  const BlockMap map = choose(c, keep(0.3), 64).prediction.map;
  const auto count = [&](int64_t h, int64_t first, int64_t last) {
    return std::count(map.row(0, h, first), map.row(0, h, last) + 10, 1);
  };
  EXPECT_EQ(count(0, 0, 9) + count(1, 0, 9), 2 * 10 * 3);
  EXPECT_LT(count(0, 0, 9), count(1, 0, 9));
  EXPECT_LT(count(0, 5, 9), count(0, 0, 4));
}

TEST(BatchEntryBudget, HoldsForIncompleteTilesCellsAndBlocks) {
  for (const int64_t cell : {16, 64}) expect_budgets(uneven_case({.queries = 500, .keys = 700}, cell), 0.3, 192);
}

TEST(BatchEntryBudget, DoesNotCountTextAndTheDiagonal) {
  Case c = uneven_case({.queries = 600, .keys = 600, .head_dim = 32});
  c.params.text_tokens = 70;
  expect_budgets(c, 0.3, 128);
  c.params.text_tokens = 0;
  c.params.causal = true;
  expect_budgets(c, 0.3, 128);
}

TEST(BatchEntryBudget, DoesNotDependOnTheLengthsOfOtherEntries) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32, .batch = 3});
  const int64_t lengths[] = {640, 200, 0};
  c.params.key_lengths = lengths;
  expect_budgets(c, 0.3, 64);
  expect_budgets(c, 0.01, 192);
}

HeadPolicy bounded(double bound) {
  HeadPolicy policy;
  policy.selection = Selection::block_error;
  policy.block_error = bound;
  return policy;
}

/// Returns the mean length of the predicted outputs of heads [first, end) of batch entry b.
double mean_length(const KernelParams& p, int64_t rows, int64_t b, int64_t first, int64_t end) {
  LengthSum sum;
  for (int64_t h = first; h < end; ++h) {
    const Vector lengths = predict_by_hand(p, rows, b, h).lengths;
    for (size_t tile = 0; tile < lengths.size(); tile += 8) sum.add(static_cast<float>(lengths[tile]));
  }
  return sum.mean();
}

/// Expects every tile to keep its best block and each block whose error would exceed bound * length(b, h), where
/// length(b, h) is an output length. Supports no similarity and no mask.
template <typename F>
void expect_bounded(const Case& c, const BlockMap& map, double bound, int64_t rows, const F& length) {
  const KernelParams& p = c.params;
  int64_t kept = 0, candidates = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t end = p.video_keys(b) / kBlock;  // number of whole blocks
    for (int64_t h = 0; h < p.heads; ++h) {
      const ByHand hand = predict_by_hand(p, rows, b, h);
      const double most = bound * length(b, h);
      for (size_t i = 0; i < hand.error.size(); ++i) {
        const Vector& error = hand.error[i];
        const int64_t best = std::max_element(error.begin(), error.begin() + end) - error.begin();
        const uint8_t* row = map.row(b, h, static_cast<int64_t>(i) * rows / kBlock);
        for (int64_t j = 0; j < end; ++j) {
          const double at = error[static_cast<size_t>(j)];
          ASSERT_GT(std::abs(at / most - 1), 1e-4) << "too close to say which";
          EXPECT_EQ(row[j], j == best || at > most ? 1 : 0) << at << " of " << most;
          kept += row[j];
        }
        candidates += end;
      }
    }
  }
  EXPECT_GT(kept, candidates / 10);
  EXPECT_LT(kept, candidates * 9 / 10);
}

TEST(BatchEntryBlockBound, KeepsBlocksThatErrByMoreThanAShareOfTheMeanLength) {
  Case c = uneven_case({.queries = 700, .keys = 640, .head_dim = 32, .heads = 3});
  for (int64_t t = 0; t < 640; ++t)  // outputs of batch entry 1 are longer
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t d = 0; d < 32; ++d) c.row(c.params.v, 1, t, h)[d] *= 1000;
  for (const int64_t rows : {64, 192}) {
    const BlockMap map = choose(c, bounded(0.05), rows).prediction.map;
    expect_bounded(c, map, 0.05, rows, [&](int64_t b, int64_t) { return mean_length(c.params, rows, b, 0, 3); });
  }
}

TEST(BatchEntryBlockBound, KeepsAllTextBlocks) {
  Case c = uneven_case({.queries = 600, .keys = 600, .head_dim = 32});
  c.params.text_tokens = 70;
  const BlockMap map = choose(c, bounded(0.05), 64).prediction.map;
  expect_bounded(c, map, 0.05, 64, [&](int64_t b, int64_t) { return mean_length(c.params, 64, b, 0, 2); });
  for (int64_t i = 0; i < 10; ++i)
    for (int64_t j = i >= 8 ? 0 : 8; j < 10; ++j) EXPECT_EQ(map.row(1, 1, i)[j], 1);
}

TEST(HeadBlockBound, UsesTheLengthOfTheHeadIfHeadsHaveDifferentPolicies) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32, .heads = 3, .batch = 1});
  for (int64_t t = 0; t < 640; ++t)
    for (int64_t d = 0; d < 32; ++d) c.row(c.params.v, 0, t, 0)[d] *= 10;
  std::vector<HeadPolicy> heads(3, bounded(0.05));
  heads[1].pv_threshold = 20;
  const BlockMap map = predict_blocks(c.params, {.heads = heads, .rows = 64, .ranking = Ranking::error}, serial).map;
  expect_bounded(c, map, 0.05, 64, [&](int64_t b, int64_t h) { return mean_length(c.params, 64, b, h, h + 1); });
}

TEST(HeadBudget, IsSeparateIfHeadsHaveDifferentPolicies) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32, .heads = 3, .batch = 1});
  for (int64_t t = 0; t < 640; ++t)
    for (int64_t d = 0; d < 32; ++d) c.row(c.params.v, 0, t, 0)[d] *= 10;
  std::vector<HeadPolicy> heads = {keep(0.2), keep(0.5), keep(0.2)};
  const auto counts = [&] {
    const BlockMap map = predict_blocks(c.params, {.heads = heads, .rows = 64, .ranking = Ranking::error}, serial).map;
    std::vector<int64_t> result;
    for (int64_t h = 0; h < 3; ++h) result.push_back(std::count(map.row(0, h, 0), map.row(0, h, 9) + 10, 1));
    return result;
  };
  EXPECT_THAT(counts(), ElementsAre(20, 50, 20));
  heads[1].dense = true;
  EXPECT_THAT(counts(), ElementsAre(20, 100, 20));
  heads = std::vector<HeadPolicy>(3, keep(0.2));
  EXPECT_GT(counts()[0], 20) << "one budget takes blocks from the others";
}

TEST(BatchEntryBudget, IsSharedEquallyAmongTilesOfConstantInputs) {
  Case c({.queries = 576, .keys = 640, .head_dim = 16});
  std::fill(c.inputs.begin(), c.inputs.end(), 0.5F);
  c.params.mean_cell = 16;
  const BlockMap map = choose(c, keep(0.35), 192).prediction.map;
  for (int64_t row = 0; row < 2 * 2 * 9; ++row)
    EXPECT_THAT(std::vector<int>(map.bits.begin() + row * 10, map.bits.begin() + (row + 1) * 10),
                ElementsAre(1, 1, 1, 0, 0, 0, 0, 0, 0, 0));
}

TEST(BatchEntryBudget, LeavesOutTilesThatKeepEveryBlock) {
  Case c = uneven_case({.queries = 640, .keys = 640, .head_dim = 32, .heads = 1, .batch = 1});
  for (int64_t t = 0; t < 640; ++t)  // queries of block 3 differ; those of any other block are similar
    for (int64_t d = 0; d < 32; ++d) {
      if (t / kBlock != 3) c.row(c.params.q, 0, t, 0)[d] += 10;
      c.row(c.params.k, 0, t, 0)[d] += t / kBlock % 2 == 0 ? 20.0F : -20.0F;
    }
  HeadPolicy policy = keep(0.2);
  policy.similarity = 0.5;
  const BlockMap map = choose(c, policy, 64).prediction.map;
  EXPECT_EQ(std::count(map.row(0, 0, 3), map.row(0, 0, 4), 1), 10);
  EXPECT_EQ(count_blocks(map), 10 + 9 * 2);
}

TEST(BatchEntryBudget, IsSpentTheSameWayByAnyNumberOfThreads) {
  const Case c = uneven_case({.queries = 500, .keys = 640, .head_dim = 32, .heads = 5, .batch = 3});
  const ParallelFor threads = [](int64_t count, const std::function<void(int64_t, int64_t)>& body) {
    std::vector<std::jthread> pool;
    for (int64_t i = count; i-- > 0;) pool.emplace_back([&body, i] { body(i, i + 1); });
  };
  const Choice choice = choose(c, keep(0.3), 64);
  const Prediction other =
      predict_blocks(c.params, {.heads = choice.heads, .rows = 64, .ranking = Ranking::error}, threads);
  EXPECT_EQ(other.map.bits, choice.prediction.map.bits);
  EXPECT_EQ(other.sum_error, choice.prediction.sum_error);
  EXPECT_EQ(other.tiles, choice.prediction.tiles);
}

}  // namespace
}  // namespace sparsereel::attention::cpu
