// Tests how the lists of `bench quality` become combinations, and which combinations are refused or left out.
#include "app/lab/bench/quality_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;
using attention::Selection;
using hilbert::TokenOrder;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Settings of a config file. They name every value, so that the tests do not depend on defaults.
const std::map<std::string, std::string> kDropping = {
    {"dropped", "none"}, {"select", "mass"}, {"cell", "16"}, {"topk", "0.4"}};
const std::map<std::string, std::string> kMeans = {
    {"dropped", "mean"}, {"select", "error"}, {"cell", "16"}, {"topk", "0.4"}};

Grid expanded(const Lists& lists, const std::map<std::string, std::string>& config = kDropping,
              const Compared& compared = {}) {
  Settings base;
  base.add(Source::config_file, config, "a.yaml");
  return expand(base, lists, compared);
}

std::vector<std::string> names(const Grid& grid) {
  std::vector<std::string> names;
  for (const Combination& combination : grid.combinations) names.push_back(combination_name(fields_of(combination)));
  return names;
}

TEST(QualityGrid, UsesTheSettingsOfGenerateWithoutLists) {
  EXPECT_THAT(names(expanded({})), ElementsAre("topk 0.4, none, mass, hilbert"));
  EXPECT_THAT(names(expanded({}, kMeans)), ElementsAre("topk 0.4, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, RefusesTooManyCombinationsBeforeItMakesAny) {
  const auto numbers = [](int count) {
    std::string list = "0.001";
    for (int i = 2; i <= count; ++i) list += "," + std::to_string(0.001 * i);
    return list;
  };
  const Lists all = {{"topk", numbers(100)},   {"similarity", numbers(100)}, {"dropped", "none,mean"},
                     {"select", "mass,error"}, {"dense_steps", "0,1,2,3,4"}, {"cell", "16,32,64"}};
  EXPECT_TRUE(throws_error([&] { expanded(all); }, {"the lists make 600000 combinations"}));
  // Each list alone gives few enough combinations, but the lists together give too many.
  const Lists several = {{"topk", numbers(600)}, {"error", numbers(600)}};
  EXPECT_TRUE(throws_error([&] { expanded(several, kMeans); }, {"the lists make 1001 combinations"}));
}

TEST(QualityGrid, OrdersRowsByMethodAndThenByValue) {
  const Grid grid = expanded({{"topk", "0.5,0.3"}, {"dropped", "none,mean"}, {"select", "mass"}});
  EXPECT_THAT(names(grid),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.3, none, mass, hilbert",
                          "topk 0.5, mean, mass, cell 16, hilbert", "topk 0.3, mean, mass, cell 16, hilbert"));
  EXPECT_THAT(grid.left_out, IsEmpty());
}

TEST(QualityGrid, CombinesEachCacheWithFullAttentionAndWithEveryPolicy) {
  const Compared both{.modes = {Mode::full, Mode::sparse}};
  EXPECT_THAT(names(expanded({{"topk", "0.5,0.3"}, {"cache", "0.1,forecast:0.2,0"}}, kDropping, both)),
              ElementsAre("full, cache first-block:0.1", "full, cache forecast:0.2", "full, weights reduced",
                          "topk 0.5, none, mass, hilbert, cache first-block:0.1",
                          "topk 0.5, none, mass, hilbert, cache forecast:0.2", "topk 0.5, none, mass, hilbert",
                          "topk 0.3, none, mass, hilbert, cache first-block:0.1",
                          "topk 0.3, none, mass, hilbert, cache forecast:0.2", "topk 0.3, none, mass, hilbert"));
  const Grid full = expanded({{"topk", "0.5"}, {"cache", "0.1,first-block:0.1"}}, kDropping, {.modes = {Mode::full}});
  EXPECT_THAT(names(full), ElementsAre("full, cache first-block:0.1"));
  EXPECT_THAT(full.warnings, ElementsAre("--topk has no effect with --modes full"));
  EXPECT_TRUE(throws_error(
      [] {
        expanded({{"cache", "0.1,x"}});
      },
      {"--cache x: the threshold must be a finite number"}));
}

/// Returns the names of the combinations that `bench quality` makes of the options.
std::vector<std::string> planned(const std::string& modes, const std::string& cache, const std::string& weights,
                                 const Lists& more = {}) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "p.txt", "a dog\n");
  Settings settings;
  settings.add(Source::command_line, {{"model", std::string(SPARSEREEL_TEST_DATA) + "/pipeline"}, {"device", "cpu"}});
  if (!weights.empty()) settings.add(Source::command_line, {{"weights", weights}});
  QualityOptions options;
  options.prompts = (folder / "p.txt").string();
  options.lists = {{"topk", "0.5"}, {"dropped", "none"}, {"cache", cache}};
  options.lists.insert(more.begin(), more.end());
  options.modes = modes;
  return names(make_quality_plan(settings, options).grid);
}

TEST(QualityGrid, ComparesWithFullAttentionWithoutACache) {
  EXPECT_THAT(planned("sparse,full", "0,0.1", "auto"),
              ElementsAre("full, cache first-block:0.1", "topk 0.5, none, mass, hilbert",
                          "topk 0.5, none, mass, hilbert, cache first-block:0.1"));
  EXPECT_TRUE(throws_error([] { planned("full", "0", "auto"); }, {"--modes full"}));
  EXPECT_TRUE(throws_error([] { planned("full,check", "0.1", "auto"); }, {"--modes check"}));
}

TEST(QualityGrid, AddsARowOfFullAttentionWithReducedWeightsInAllModes) {
  EXPECT_THAT(planned("full", "0", "fp8"), ElementsAre("full, weights fp8"));
  EXPECT_THAT(planned("full", "0,0.1", "fp8"),
              ElementsAre("full, weights fp8", "full, cache first-block:0.1, weights fp8"));
  EXPECT_THAT(planned("full,sparse", "0", "fp8"),
              ElementsAre("full, weights fp8", "topk 0.5, none, mass, hilbert, weights fp8"));
  EXPECT_THAT(planned("sparse", "0.1", "fp8"),
              ElementsAre("full, weights fp8", "topk 0.5, none, mass, hilbert, cache first-block:0.1, weights fp8"));
}

TEST(QualityGrid, CombinesEachKindOfWeightsWithEveryPolicy) {
  EXPECT_THAT(
      planned("sparse", "0", "", {{"weights", "auto,fp8"}}),
      ElementsAre("full, weights fp8", "topk 0.5, none, mass, hilbert", "topk 0.5, none, mass, hilbert, weights fp8"));
  EXPECT_TRUE(throws_error([] { planned("sparse", "0", "", {{"weights", "fp4"}}); }, {"--weights fp4", "auto, fp8"}));
}

TEST(QualityGrid, MakesARowOfQuantizedAttentionForEachCache) {
  EXPECT_THAT(planned("quantized,sparse", "0,0.1", ""),
              ElementsAre("quantized", "quantized, cache first-block:0.1", "topk 0.5, none, mass, hilbert",
                          "topk 0.5, none, mass, hilbert, cache first-block:0.1"));
}

TEST(QualityGrid, TurnsPercentagesOfStepsIntoNumbersWhenTheStepsAreKnown) {
  Grid grid = expanded({{"topk", "0.5"}, {"dense_steps", "0,20%,3"}});
  ASSERT_THAT(grid.combinations, SizeIs(3));
  EXPECT_EQ(fields_of(grid.combinations[1])["dense_steps"], "20%");
  for (Combination& combination : grid.combinations) combination.settle(25);
  EXPECT_EQ(fields_of(grid.combinations[0])["dense_steps"], 0);
  EXPECT_EQ(fields_of(grid.combinations[1])["dense_steps"], 5);
  EXPECT_EQ(fields_of(grid.combinations[2])["dense_steps"], 3);
}

TEST(QualityGrid, MakesARowOfEachPresetUnchanged) {
  Settings fast;
  fast.add(Source::matched_config, {{"cache", "forecast:0.2"}, {"topk", "0.3"}, {"dense_steps", "20%"}}, "a.yaml");
  Settings exact;
  exact.add(Source::matched_config, {{"attention", "quantized"}, {"weights", "fp8"}}, "a.yaml");
  const Grid grid = expanded({{"topk", "0.5,0.3"}}, {}, {.presets = {{"fast", fast}, {"exact", exact}}});
  EXPECT_THAT(names(grid),
              ElementsAre("topk 0.3, mean, error, cell 16, hilbert, cache forecast:0.2", "quantized, weights fp8",
                          "topk 0.5, mean, error, cell 16, hilbert", "topk 0.3, mean, error, cell 16, hilbert"));
  EXPECT_EQ(grid.combinations[0].preset, "fast");
  EXPECT_THAT(grid.combinations[0].terms, ElementsAre("preset=fast"));
  const Grid both = expanded({{"topk", "0.3"}, {"dense_steps", "20%"}, {"cache", "forecast:0.2"}}, {},
                             {.presets = {{"fast", fast}, {"rapid", fast}}});
  EXPECT_THAT(both.combinations, SizeIs(1)) << "they are one row";
  EXPECT_EQ(both.combinations[0].preset, "fast");
  EXPECT_THAT(both.combinations[0].terms, ::testing::IsSupersetOf({"preset=fast", "preset=rapid", "topk=0.3"}));
}

TEST(QualityGrid, CountsARepeatedItemOnce) {
  EXPECT_THAT(expanded({{"topk", "0.5, 0.5,0.50"}}).combinations, SizeIs(1));
}

TEST(QualityGrid, MakesOneRowForEachKindOfSelection) {
  const Grid grid = expanded({{"topk", "0.5"}, {"cdf", "0.9"}, {"error", "0.02"}, {"block_error", "0.008"}});
  EXPECT_THAT(names(grid), ElementsAre("topk 0.5, none, mass, hilbert", "cdf 0.9, none, mass, hilbert",
                                       "error 0.02, mean, error, cell 16, hilbert",
                                       "block error 0.008, mean, error, cell 16, hilbert"));
  EXPECT_EQ(grid.combinations[2].policy.defaults.selection, Selection::error);
  EXPECT_FALSE(number_of(fields_of(grid.combinations[2]), "topk").has_value());
  EXPECT_EQ(grid.combinations[3].policy.defaults.selection, Selection::block_error);
  EXPECT_EQ(fields_of(grid.combinations[3])["block_error"], 0.008);
  EXPECT_TRUE(fields_of(grid.combinations[3])["error_bound"].is_null());
}

TEST(QualityGrid, RanksByMassWithoutMeansUnlessAListSaysOtherwise) {
  EXPECT_THAT(names(expanded({{"topk", "0.5"}, {"dropped", "none,mean"}}, kMeans)),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, UsesTheDefaultTopkOfEachKindOfDroppedBlockUnlessOneIsGiven) {
  EXPECT_THAT(names(expanded({{"dropped", "none,mean"}}, {})),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.12, mean, error, cell 16, hilbert"));
  EXPECT_THAT(names(expanded({{"topk", "0.3"}, {"dropped", "none,mean"}}, {})),
              ElementsAre("topk 0.3, none, mass, hilbert", "topk 0.3, mean, error, cell 16, hilbert"));
  EXPECT_THAT(names(expanded({{"dropped", "none,mean"}}, {{"topk", "0.4"}})),
              ElementsAre("topk 0.4, none, mass, hilbert", "topk 0.4, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, UsesMeansWithRankingByError) {
  EXPECT_THAT(names(expanded({{"topk", "0.5"}, {"select", "mass,error"}})),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, error, cell 16, hilbert"));
}

TEST(QualityGrid, LeavesOutContradictionsAndSaysWhy) {
  const Grid grid = expanded({{"topk", "0.5"}, {"error", "0.1"}, {"dropped", "none,mean"}, {"select", "mass,error"}});
  EXPECT_THAT(names(grid),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, mass, cell 16, hilbert",
                          "topk 0.5, mean, error, cell 16, hilbert", "error 0.1, mean, error, cell 16, hilbert"));
  EXPECT_THAT(grid.left_out, ElementsAre("--dropped none and --select error exclude each other",
                                         "--dropped none and --error exclude each other",
                                         "--select mass and --error exclude each other"));
}

TEST(QualityGrid, RefusesListsThatLeaveNoRow) {
  EXPECT_TRUE(throws_error(
      [] {
        expanded({{"dropped", "none"}, {"select", "error"}});
      },
      {"--dropped none and --select error exclude each other"}));
  EXPECT_TRUE(throws_error(
      [] {
        expanded({{"error", "0.1"}, {"select", "mass"}});
      },
      {"--select mass and --error exclude each other"}));
  EXPECT_TRUE(throws_error(
      [] {
        expanded({{"topk", "0.5"}, {"error", "0.1"}, {"dropped", "none"}});
      },
      {"--dropped none and --error exclude each other"}));
}

TEST(QualityGrid, CombinesCellSizesOnlyWithMeans) {
  EXPECT_THAT(names(expanded({{"topk", "0.5"}, {"dropped", "none,mean"}, {"select", "mass"}, {"cell", "16,64"}})),
              ElementsAre("topk 0.5, none, mass, hilbert", "topk 0.5, mean, mass, cell 16, hilbert",
                          "topk 0.5, mean, mass, cell 64, hilbert"));
  EXPECT_THAT(expanded({{"topk", "0.5"}, {"dropped", "none"}, {"cell", "16"}}).warnings,
              ElementsAre("--cell 16 has no effect without means for dropped blocks"));
}

TEST(QualityGrid, CombinesTokenOrdersDenseStepsSelectionRowsAndSimilarities) {
  const Grid grid = expanded({{"topk", "0.5,0.3"},
                              {"selection_rows", "64,192"},
                              {"similarity", "-0.1,0.5"},
                              {"dense_steps", "0,3"},
                              {"token_order", "native,morton"}});
  EXPECT_THAT(grid.combinations, SizeIs(32));
  EXPECT_EQ(grid.combinations.front().order, TokenOrder::native);
  EXPECT_EQ(grid.combinations.back().order, TokenOrder::morton);
  EXPECT_EQ(grid.combinations.back().policy.dense_steps, 3);
  EXPECT_EQ(grid.combinations.back().policy.selection_rows, 192);
  EXPECT_EQ(grid.combinations.back().policy.defaults.similarity, 0.5);
}

TEST(QualityGrid, CombinesProfilesOnlyWithTokenOrdersAndDenseSteps) {
  ProfilePolicy profile{.file = "folder/a.yaml"};
  profile.policy.dropped = attention::Dropped::none;
  profile.policy.ranking = attention::Ranking::mass;
  profile.options = {{"dense_steps", "2"}};
  profile.policy.per_head = {{attention::HeadPolicy{}}};
  Compared compared{.profiles = {profile}, .profiles_alone = true};
  EXPECT_THAT(
      names(expanded(
          {{"topk", "0.5"}, {"similarity", "0.2,0.5"}, {"profile", "folder/a.yaml"}, {"token_order", "native,hilbert"}},
          kDropping, compared)),
      ElementsAre("topk 0.5, none, mass, similarity 0.2, native", "topk 0.5, none, mass, similarity 0.5, native",
                  "a, none, mass, 2 dense steps, native", "topk 0.5, none, mass, similarity 0.2, hilbert",
                  "topk 0.5, none, mass, similarity 0.5, hilbert", "a, none, mass, 2 dense steps, hilbert"));
  const Lists similarity = {{"similarity", "0.5"}, {"dense_steps", "0,3"}};
  const Grid alone = expanded(similarity, kDropping, compared);
  EXPECT_THAT(names(alone), ElementsAre("a, none, mass, hilbert", "a, none, mass, 3 dense steps, hilbert"));
  EXPECT_THAT(alone.warnings, ElementsAre(::testing::StartsWith("--similarity has no effect beside --profile alone")));
  compared.profiles_alone = false;
  EXPECT_THAT(names(expanded({{"token_order", "native,hilbert"}}, kDropping, compared)),
              ElementsAre("topk 0.4, none, mass, native", "a, none, mass, 2 dense steps, native",
                          "topk 0.4, none, mass, hilbert"))
      << "a profile that the settings name is of one order";
}

TEST(QualityGrid, AppliesAllSettingsOfAProfileUnlessListsReplaceThem) {
  const ProfilePolicy sparse{.file = "a.yaml",
                             .options = {{"attention", "sparse"},
                                         {"topk", "0.25"},
                                         {"dense_steps", "20%"},
                                         {"cache", "forecast:0.2"},
                                         {"weights", "fp8"}}};
  const ProfilePolicy quantized{.file = "b.yaml", .options = {{"attention", "quantized"}, {"cache", "0.1"}}};
  const Compared compared{.profiles = {sparse, quantized}, .profiles_alone = true};
  Settings weak;
  weak.add(Source::matched_config, kMeans, "a.yaml");
  Grid grid = expand(weak, {}, compared);
  ASSERT_THAT(grid.combinations, SizeIs(2));
  const Row row = fields_of(grid.combinations[0]), other = fields_of(grid.combinations[1]);
  EXPECT_EQ(row["profile"], "a.yaml");
  EXPECT_EQ(row["topk"], 0.25);
  EXPECT_EQ(row["dense_steps"], "20%");
  EXPECT_EQ(row["cache"], "forecast:0.2");
  EXPECT_EQ(row["weights"], "fp8");
  EXPECT_EQ(other["mode"], "quantized");
  EXPECT_EQ(other["cache"], "first-block:0.1");
  grid = expand(weak, {{"cache", "0,forecast:0.3"}}, compared);
  ASSERT_THAT(grid.combinations, SizeIs(4));
  EXPECT_EQ(fields_of(grid.combinations[0])["cache"], Row());
  EXPECT_EQ(fields_of(grid.combinations[1])["cache"], "forecast:0.3");
  EXPECT_EQ(fields_of(grid.combinations[1])["topk"], 0.25);
}

TEST(QualityGrid, NamesTheItemThatIsOutOfRange) {
  const auto refuses = [](const Lists& lists, const std::vector<std::string>& words) {
    return throws_error([&] { expanded(lists); }, words);
  };
  EXPECT_TRUE(refuses({{"topk", "0.5,0"}}, {"--topk 0 is"}));
  EXPECT_TRUE(refuses({{"cdf", "1.5"}}, {"--cdf 1.5"}));
  EXPECT_TRUE(refuses({{"error", "nan"}}, {"--error nan"}));
  EXPECT_TRUE(refuses({{"error", "0"}}, {"--error 0"}));
  EXPECT_TRUE(refuses({{"block_error", "0.01,0"}}, {"--block-error 0 is"}));
  EXPECT_TRUE(refuses({{"dropped", "means"}}, {"--dropped", "mean, none"}));
  EXPECT_TRUE(refuses({{"select", "eror"}}, {"--select", "error, mass"}));
  EXPECT_TRUE(refuses({{"dropped", "mean"}, {"cell", "8"}}, {"--cell", "16, 32, 64"}));
  EXPECT_TRUE(refuses({{"selection_rows", "100"}}, {"--selection-rows", "64, 128, 192"}));
  EXPECT_TRUE(refuses({{"similarity", "2"}}, {"--similarity 2"}));
  EXPECT_TRUE(refuses({{"dense_steps", "1,-1"}}, {"--dense-steps -1"}));
  EXPECT_TRUE(refuses({{"dense_steps", "1.5"}}, {"--dense-steps 1.5"}));
  EXPECT_TRUE(refuses({{"token_order", "hilbret"}}, {"--token-order", "hilbert, native"}));
  EXPECT_TRUE(refuses({{"topk", ""}}, {"--topk"}));
}

}  // namespace
}  // namespace sparsereel::app::bench
