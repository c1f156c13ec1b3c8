// How the lists of `bench quality` become combinations, and what of them is refused or left out.
#include "app/commands/bench/quality_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using attention::Dropped;
using attention::Policy;
using attention::Ranking;
using attention::Selection;
using hilbert::TokenOrder;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A policy with nothing left to the defaults that may change.
Policy base(Dropped dropped, Ranking ranking) {
  Policy policy;
  policy.dropped = dropped;
  policy.ranking = ranking;
  policy.cell = 16;
  policy.defaults.topk = 0.4;
  return policy;
}

QualityGrid expanded(const SelectionLists& lists, const Policy& policy = base(Dropped::none, Ranking::mass)) {
  return expand({.selection = lists}, policy, TokenOrder::hilbert, {});
}

std::vector<std::string> names(const QualityGrid& grid) {
  std::vector<std::string> names;
  for (const Combination& combination : grid.combinations) names.push_back(combination.name());
  return names;
}

TEST(QualityGrid, WithoutListsIsWhatGenerateWouldDo) {
  EXPECT_THAT(names(expanded({})), ElementsAre("topk 0.4, none, mass, hilbert"));
  EXPECT_THAT(names(expanded({}, base(Dropped::mean, Ranking::error))),
              ElementsAre("topk 0.4, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, MethodsAreOutermostAndValuesInnermost) {
  const QualityGrid grid = expanded({.topk = "0.5,0.3", .dropped = "none,mean", .select = "mass"});
  EXPECT_THAT(names(grid),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.3, none, mass, hilbert",
                          "topk 0.5, mean, mass, cell 16, hilbert", "topk 0.3, mean, mass, cell 16, hilbert"));
  EXPECT_THAT(grid.left_out, IsEmpty());
}

TEST(QualityGrid, CachesComeWithFullAttentionAndWithEveryPolicy) {
  const auto grid = [](const std::string& modes, const std::string& cache) {
    return expand({.selection = {.topk = "0.5,0.3"}, .modes = modes, .cache = cache},
                  base(Dropped::none, Ranking::mass), TokenOrder::hilbert, {});
  };
  EXPECT_THAT(names(grid("full,sparse", "0,0.1,forecast:0.2")),
              ElementsAre("full, cache first-block:0.1", "full, cache forecast:0.2", "topk 0.5, none, mass, hilbert",
                          "topk 0.5, none, mass, hilbert, cache first-block:0.1",
                          "topk 0.5, none, mass, hilbert, cache forecast:0.2", "topk 0.3, none, mass, hilbert",
                          "topk 0.3, none, mass, hilbert, cache first-block:0.1",
                          "topk 0.3, none, mass, hilbert, cache forecast:0.2"));
  const QualityGrid full = grid("full", "0.1,first-block:0.1");
  EXPECT_THAT(names(full), ElementsAre("full, cache first-block:0.1"));
  EXPECT_FALSE(full.combinations.front().has_means());
  EXPECT_THAT(full.warnings, ElementsAre(HasSubstr("--topk has no effect with --modes full")));
  EXPECT_TRUE(throws_error([&] { grid("full", "0"); }, {"--modes full"}));
  EXPECT_TRUE(throws_error([&] { grid("full,quantized", "0.1"); }, {"--modes full,quantized"}));
  EXPECT_TRUE(throws_error([&] { grid("sparse", "0.1,x"); }, {"x: a finite number"}));
}

TEST(QualityGrid, ReducedWeightsAreComparedByFullAttentionWhateverTheModes) {
  const auto grid = [](const std::string& modes, const std::string& cache) {
    return names(expand({.selection = {.topk = "0.5"}, .modes = modes, .cache = cache},
                        base(Dropped::none, Ranking::mass), TokenOrder::hilbert, {}, /*weights_are_reduced=*/true));
  };
  EXPECT_THAT(grid("full", "0"), ElementsAre("full, weights reduced"));
  EXPECT_THAT(grid("full", "0,0.1"), ElementsAre("full, weights reduced", "full, cache first-block:0.1"));
  EXPECT_THAT(grid("full,sparse", "0"), ElementsAre("full, weights reduced", "topk 0.5, none, mass, hilbert"));
  EXPECT_THAT(grid("sparse", "0.1"),
              ElementsAre("full, weights reduced", "topk 0.5, none, mass, hilbert, cache first-block:0.1"));
}

TEST(QualityGrid, AnItemGivenTwiceCountsOnce) {
  EXPECT_THAT(expanded({.topk = "0.5, 0.5,0.50"}).combinations, SizeIs(1));
}

TEST(QualityGrid, SelectionsTakeThePlaceOfEachOther) {
  const QualityGrid grid = expanded({.topk = "0.5", .cdf = "0.9", .error = "0.02"});
  EXPECT_THAT(names(grid), ElementsAre("topk 0.5, none, mass, hilbert", "cdf 0.9, none, mass, hilbert",
                                       "error 0.02, mean, error, cell 16, hilbert"));
  EXPECT_EQ(grid.combinations[2].policy.defaults.selection, Selection::error);
  EXPECT_FALSE(grid.combinations[2].selection().topk.has_value());
}

TEST(QualityGrid, DroppedWithoutMeansIsRankedByMassWhereNothingElseIsSaid) {
  const Policy means = base(Dropped::mean, Ranking::error);
  EXPECT_THAT(names(expanded({.topk = "0.5", .dropped = "none,mean"}, means)),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, EachKindOfDroppedBlockHasItsUsualTopkWhereNothingSaysOne) {
  SelectionLists lists{.dropped = "none,mean"};
  lists.usual_topk = true;
  EXPECT_THAT(names(expanded(lists)),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.12, mean, error, cell 16, hilbert"));
  lists.topk = "0.3";
  EXPECT_THAT(names(expanded(lists)),
              ElementsAre("topk 0.3, none, mass, hilbert", "topk 0.3, mean, error, cell 16, hilbert"));
  EXPECT_THAT(names(expanded({.dropped = "none,mean"})),
              ElementsAre("topk 0.4, none, mass, hilbert", "topk 0.4, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, RankingByErrorBringsItsMeans) {
  EXPECT_THAT(names(expanded({.topk = "0.5", .select = "mass,error"})),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, ContradictionsAreLeftOutWithAWord) {
  const QualityGrid grid = expanded({.topk = "0.5", .error = "0.1", .dropped = "none,mean", .select = "mass,error"});
  EXPECT_THAT(names(grid),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, mass, cell 16, hilbert",
                          "topk 0.5, mean, error, cell 16, hilbert", "error 0.1, mean, error, cell 16, hilbert"));
  EXPECT_THAT(grid.left_out, ElementsAre("--dropped none and --select error exclude each other",
                                         "--select mass and --error exclude each other",
                                         "--dropped none and --error exclude each other"));
}

TEST(QualityGrid, WhatLeavesNoRowIsRefused) {
  EXPECT_TRUE(throws_error([] { expanded({.dropped = "none", .select = "error"}); },
                           {"--dropped none and --select error exclude each other"}));
  EXPECT_TRUE(throws_error([] { expanded({.error = "0.1", .select = "mass"}); },
                           {"--select mass and --error exclude each other"}));
  EXPECT_TRUE(throws_error([] { expanded({.topk = "0.5", .error = "0.1", .dropped = "none"}); },
                           {"--dropped none and --error exclude each other"}));
}

TEST(QualityGrid, CellsMeetMeansAlone) {
  EXPECT_THAT(names(expanded({.topk = "0.5", .dropped = "none,mean", .select = "mass", .cell = "16,64"})),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, mass, cell 16, hilbert",
                          "topk 0.5, mean, mass, cell 64, hilbert"));
  EXPECT_THAT(expanded({.topk = "0.5", .dropped = "none", .cell = "16"}).warnings,
              ElementsAre("--cell 16 has no effect without means for dropped blocks"));
}

TEST(QualityGrid, OrdersDenseStepsRowsAndSimilaritiesMultiply) {
  const QualityLists lists{.selection = {.topk = "0.5,0.3", .selection_rows = "64,192", .similarity = "-0.1,0.5"},
                           .dense_steps = "0,3",
                           .token_order = "native,morton"};
  const QualityGrid grid = expand(lists, base(Dropped::none, Ranking::mass), TokenOrder::hilbert, {});
  EXPECT_THAT(grid.combinations, SizeIs(32));
  EXPECT_EQ(grid.combinations.front().order, TokenOrder::native);
  EXPECT_EQ(grid.combinations.back().order, TokenOrder::morton);
  EXPECT_EQ(grid.combinations.back().policy.dense_steps, 3);
  EXPECT_EQ(grid.combinations.back().policy.selection_rows, 192);
  EXPECT_EQ(grid.combinations.back().policy.defaults.similarity, 0.5);
}

TEST(QualityGrid, AProfileMeetsOrdersAndDenseStepsAlone) {
  ProfilePolicy profile{.file = "folder/a.yaml", .policy = base(Dropped::none, Ranking::mass)};
  profile.policy.dense_steps = 2;
  profile.policy.per_head = {{attention::HeadPolicy{}}};
  const QualityLists lists{.selection = {.topk = "0.5", .similarity = "0.2,0.5"},
                           .profile = "folder/a.yaml",
                           .token_order = "native,hilbert"};
  EXPECT_THAT(
      names(expand(lists, base(Dropped::none, Ranking::mass), TokenOrder::hilbert, {profile})),
      ElementsAre("topk 0.5, none, mass, similarity 0.2, native", "topk 0.5, none, mass, similarity 0.5, native",
                  "a, none, mass, 2 dense steps, native", "topk 0.5, none, mass, similarity 0.2, hilbert",
                  "topk 0.5, none, mass, similarity 0.5, hilbert", "a, none, mass, 2 dense steps, hilbert"));
  const QualityGrid alone = expand({.selection = {.similarity = "0.5"}, .profile = "folder/a.yaml"},
                                   base(Dropped::none, Ranking::mass), TokenOrder::hilbert, {profile});
  EXPECT_THAT(names(alone), ElementsAre("a, none, mass, 2 dense steps, hilbert"));
  EXPECT_THAT(alone.warnings, ElementsAre(::testing::StartsWith("--similarity has no effect beside --profile alone")));
}

TEST(QualityGrid, NamesTheItemThatIsOutOfRange) {
  const auto refuses = [](const SelectionLists& lists, const std::vector<std::string>& words) {
    return throws_error([&] { expanded(lists); }, words);
  };
  const auto refuses_lists = [](const QualityLists& lists, const std::vector<std::string>& words) {
    return throws_error([&] { expand(lists, base(Dropped::none, Ranking::mass), TokenOrder::hilbert, {}); }, words);
  };
  EXPECT_TRUE(refuses({.topk = "0.5,0"}, {"--topk 0.5,0: '0'"}));
  EXPECT_TRUE(refuses({.cdf = "1.5"}, {"--cdf 1.5"}));
  EXPECT_TRUE(refuses({.error = "nan"}, {"--error nan"}));
  EXPECT_TRUE(refuses({.error = "0"}, {"--error 0"}));
  EXPECT_TRUE(refuses({.dropped = "means"}, {"--dropped", "mean, none"}));
  EXPECT_TRUE(refuses({.select = "eror"}, {"--select", "error, mass"}));
  EXPECT_TRUE(refuses({.dropped = "mean", .cell = "8"}, {"--cell", "16, 32, 64"}));
  EXPECT_TRUE(refuses({.selection_rows = "100"}, {"--selection-rows", "64, 128, 192"}));
  EXPECT_TRUE(refuses({.similarity = "2"}, {"--similarity 2"}));
  EXPECT_TRUE(refuses_lists({.dense_steps = "1,-1"}, {"--dense-steps 1,-1: '-1'"}));
  EXPECT_TRUE(refuses_lists({.dense_steps = "1.5"}, {"--dense-steps 1.5"}));
  EXPECT_TRUE(refuses_lists({.token_order = "hilbret"}, {"--token-order", "hilbert, native"}));
  EXPECT_TRUE(refuses({.topk = ""}, {"--topk"}));
}

}  // namespace
}  // namespace sparsereel::app::bench
