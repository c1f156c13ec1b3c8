// Tests how rows of `bench quality` become tables, JSON and curves, and how the times of a run's steps are combined.
#include "app/lab/bench/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "app/commands/bench.h"
#include "app/lab/bench/quality_runs.h"
#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Row figures(double psnr, double sparsity) {
  return {{"prompt", "a star"}, {"psnr", psnr},         {"ssim", 0.9},
          {"rel_l1", nullptr},  {"sparsity", sparsity}, {"mean_share", 0.0}};
}

Combination combination(double topk, attention::Dropped dropped) {
  Combination result;
  result.policy.defaults.topk = topk;
  result.policy.dropped = dropped;
  result.policy.ranking = attention::Ranking::mass;
  result.policy.cell = 32;
  return result;
}

Row row(const Combination& combination, double step_ms) {
  Row result = quality_row(combination);
  result.update({{"prompts", {figures(30, 0.4), figures(20, 0.6)}},
                 {"step_ms", step_ms},
                 {"denoise_seconds", step_ms / 10},
                 {"full_step_ms", 100.0},
                 {"full_denoise_seconds", 10.0}});
  summarise(result);
  return result;
}

Row row(double topk, attention::Dropped dropped, double step_ms) {
  return row(combination(topk, dropped), step_ms);
}

std::string quality_table_of(const Rows& rows) {
  return markdown(quality_columns(), rows);
}

TEST(QualityRows, AverageOverTheirPrompts) {
  Row some = row(0.5, attention::Dropped::none, 50);
  EXPECT_EQ(some["psnr"], 25);
  EXPECT_EQ(some["psnr_lowest"], 20);
  EXPECT_DOUBLE_EQ(some["psnr_p5"], 20.5);
  EXPECT_DOUBLE_EQ(some["psnr_sd"], std::sqrt(50));
  EXPECT_EQ(some["sparsity"], 0.5);
  EXPECT_EQ(some["speedup"], 2);
  EXPECT_TRUE(some["rel_l1"].is_null());
  EXPECT_TRUE(some["judge"].is_null());
  some["prompts"][0]["rel_l1"] = 0.25;
  summarise(some);
  EXPECT_EQ(some["rel_l1"], 0.25);
}

TEST(QualityRows, CountTheVerdictsOfTheClassifier) {
  Row some = row(0.5, attention::Dropped::mean, 50);
  some["prompts"][0]["judge"] = verdict({1, 2, 3, -1}, {1, 2, 0, 0});
  EXPECT_EQ(some["prompts"][0]["judge"], nlohmann::json({{"shape", true}, {"colour", true}, {"background", false}}));
  summarise(some);
  EXPECT_EQ(some["judge"], 0);
  EXPECT_EQ(some["judge_counts"]["shape"], nlohmann::json({1, 1}));
  EXPECT_EQ(some["judge_counts"]["background"], nlohmann::json({0, 1}));
  EXPECT_THAT(quality_table_of({some}), HasSubstr("| 0 of 1 |"));
  some["prompts"][1]["judge"] = verdict({1, 2, -1, -1}, {1, 2, 0, 0});
  summarise(some);
  EXPECT_EQ(some["judge"], 0.5);
}

TEST(QualityRows, HaveTheFieldsOfTheirCombination) {
  const Row some = row(0.5, attention::Dropped::mean, 50);
  EXPECT_EQ(some["topk"], 0.5);
  EXPECT_TRUE(some["cdf"].is_null());
  EXPECT_EQ(some["dropped"], "mean");
  EXPECT_EQ(some["cell"], 32);
  Row nothing = quality_row({});
  summarise(nothing);
  EXPECT_TRUE(nothing["psnr"].is_null());
  EXPECT_TRUE(nothing["sparsity"].is_null());
}

TEST(QualityRows, FormATableWithoutUninformativeColumns) {
  const std::string text =
      quality_table_of({row(0.5, attention::Dropped::none, 50), row(0.5, attention::Dropped::mean, 60)});
  EXPECT_THAT(text, HasSubstr("| topk | dropped | select | cell | PSNR dB |"));
  EXPECT_THAT(text, Not(HasSubstr("order")));  // no column, because all rows have the same token order
  EXPECT_THAT(text, Not(HasSubstr("rel. L1")));
  Combination other = combination(0.5, attention::Dropped::none);
  other.order = hilbert::TokenOrder::native;
  const Row native = row(other, 50);
  EXPECT_THAT(quality_table_of({row(0.5, attention::Dropped::none, 50), native}), HasSubstr("| order |"));
  EXPECT_THAT(csv(quality_columns(), {native}),
              HasSubstr("topk,cdf,error_bound,block_error,dropped,select,cell,profile,mode,selection_rows,similarity,"
                        "dense_steps,token_order,cache,weights,computed_steps,computed_dense_steps,psnr,psnr_lowest,"
                        "psnr_difference,psnr_difference_se,"));
}

TEST(QualityRows, ShowAModeOtherThanSparseEvenInASingleRow) {
  const Row alone = row({.mode = attention::Mode::quantized}, 60);
  EXPECT_THAT(quality_table_of({alone}), HasSubstr("| quantized |"));
  EXPECT_THAT(quality_table_of({row(0.5, attention::Dropped::none, 50)}), Not(HasSubstr("mode")));
}

TEST(QualityRows, ShowPairedDifferencesWithTheirErrors) {
  Row some = row(0.5, attention::Dropped::none, 50), other = row(0.3, attention::Dropped::none, 40);
  some.update({{"psnr_difference", -1.25}, {"psnr_difference_se", 0.0812}});
  EXPECT_THAT(quality_table_of({some, other}), HasSubstr("| paired, dB |"));
  EXPECT_THAT(quality_table_of({some, other}), HasSubstr("| -1.25 ± 0.081 |"));
}

TEST(QualityRows, ShowCachesAndTheNumberOfComputedSteps) {
  Row cached = row(Combination{.mode = attention::Mode::full, .cache = {.threshold = 0.1}}, 50);
  for (Row& prompt : cached["prompts"]) prompt["computed_steps"] = 20.0;
  summarise(cached);
  const Rows json = {row(0.5, attention::Dropped::none, 50), cached};
  EXPECT_THAT(quality_table_of(json), HasSubstr("| cache | computed |"));
  EXPECT_EQ(json[0].at("mode"), "sparse");
  EXPECT_TRUE(json[0].at("cache").is_null());
  EXPECT_EQ(json[1].at("mode"), "full");
  EXPECT_TRUE(json[1].at("topk").is_null());
  EXPECT_EQ(json[1].at("cache"), "first-block:0.1");
  EXPECT_EQ(json[1].at("computed_steps"), 20);
  const CurvesData data = curves_of({{"rows", json}}, "r.json");
  ASSERT_EQ(data.curves.size(), 2U);
  EXPECT_EQ(data.curves[1].name, "full attention with a cache");
  EXPECT_EQ(data.curves[1].points.front().label, "first-block:0.1");
}

TEST(QualityCurves, DrawOneCurvePerMethod) {
  const nlohmann::json report = {
      {"rows", Rows{row(0.5, attention::Dropped::none, 50), row(0.3, attention::Dropped::none, 40),
                    row(0.3, attention::Dropped::mean, 45)}}};
  const CurvesData data = curves_of(report, "r.json");
  ASSERT_EQ(data.curves.size(), 2U);
  EXPECT_EQ(data.curves[0].name, "dropped none, select mass");
  ASSERT_EQ(data.curves[0].points.size(), 2U);
  EXPECT_EQ(data.curves[0].points[1].label, "0.3");
  EXPECT_EQ(data.curves[0].points[1].x, 4);
  EXPECT_EQ(data.curves[0].points[1].y, 25);
  EXPECT_EQ(data.curves[1].name, "dropped mean, select mass, cell 32");
  EXPECT_EQ(data.mark, 10);
  EXPECT_FALSE(data.joined);
  EXPECT_TRUE(throws_error([] { curves_of({{"rows", Rows{quality_row({})}}}, "r.json"); }, {"r.json", "no row"}));
  EXPECT_TRUE(throws_error([] { curves_of({{"rows", 3}}, "r.json"); }, {"r.json", "not an array"}));
}

TEST(QualityCurves, DrawTheFrontierAndNameThePresets) {
  Rows rows = {row(0.5, attention::Dropped::none, 50), row(0.3, attention::Dropped::none, 40),
               row({.mode = attention::Mode::quantized}, 60),
               row({.mode = attention::Mode::full, .preset = "fast"}, 30)};
  for (const auto& [index, psnr] : {std::pair(0, 30), {1, 35}, {2, 50}, {3, 20}}) rows[index]["psnr"] = psnr;
  const CurvesData data = curves_of({{"rows", rows}}, "r.json");
  ASSERT_EQ(data.frontier.size(), 3U) << "topk 0.3 beats 0.5";
  EXPECT_EQ(data.frontier[0].x, 3);
  EXPECT_EQ(data.frontier[1].y, 35);
  EXPECT_EQ(data.frontier[2].y, 50);
  ASSERT_EQ(data.curves.size(), 3U);
  EXPECT_EQ(data.curves[1].name, "quantized");
  EXPECT_EQ(data.curves[2].name, "presets");
  EXPECT_EQ(data.curves[2].points.front().label, "fast");
}

TEST(QualityCurves, ComputeSecondsFromTheStepsOfOldReports) {
  Row old = row(0.5, attention::Dropped::none, 50);
  for (const char* key : {"denoise_seconds", "full_denoise_seconds"}) old.erase(key);
  const CurvesData data = curves_of({{"rows", {old}}, {"settings", {{"steps", 8}}}}, "r.json");
  EXPECT_DOUBLE_EQ(data.curves.front().points.front().x, 0.4);
  EXPECT_DOUBLE_EQ(*data.mark, 0.8);
}

TEST(QualityCurves, LeaveBeatenRowsOfOldReportsOffTheFrontier) {
  Row better = row(0.3, attention::Dropped::none, 40), beaten = row(0.5, attention::Dropped::none, 50);
  better["psnr"] = 35;
  beaten["psnr"] = 30;
  for (Row* old : {&better, &beaten}) old->erase("name");
  const CurvesData data = curves_of({{"rows", {beaten, better}}}, "r.json");
  ASSERT_EQ(data.frontier.size(), 1U);
  EXPECT_EQ(data.frontier.front().y, 35);
}

TEST(StepMilliseconds, AverageComputedStepsWhileSecondsCountAllSteps) {
  const Row times = times_of_cached({10, 2, 12, 3}, {true, false, true, false});
  EXPECT_DOUBLE_EQ(times["step_ms"], 11);
  EXPECT_DOUBLE_EQ(times["denoise_seconds"], 0.027);
  EXPECT_DOUBLE_EQ(times["step_ms_lower_quartile"], 10.5);
  EXPECT_DOUBLE_EQ(times["step_ms_upper_quartile"], 11.5);
  EXPECT_DOUBLE_EQ(times["denoise_seconds_lower_quartile"], (2 * 10.5 + 2 * 2.25) / 1000);
  EXPECT_DOUBLE_EQ(times["denoise_seconds_upper_quartile"], (2 * 11.5 + 2 * 2.75) / 1000);
  const Row skewed = times_of_cached({1, 1, 1, 1, 96}, {true, true, true, true, true});
  EXPECT_DOUBLE_EQ(skewed["step_ms_upper_quartile"], 20) << "no less than the mean";
}

TEST(StepMilliseconds, WeighDenseStepsByTheirNumber) {
  EXPECT_DOUBLE_EQ(step_milliseconds({9, 4, 5, 6, 100}, 0, 5), 6);
  EXPECT_DOUBLE_EQ(step_milliseconds({20, 22, 4, 5, 6}, 2, 10), (2 * 21 + 8 * 5) / 10.0);
  EXPECT_DOUBLE_EQ(step_milliseconds({20, 20, 20}, 7, 3), 20);
  EXPECT_DOUBLE_EQ(step_milliseconds({20, 22, 4, 5, 6}, 2, 10, &Spread::lower_quartile), (2 * 20.5 + 8 * 4.5) / 10);
}

}  // namespace
}  // namespace sparsereel::app::bench
