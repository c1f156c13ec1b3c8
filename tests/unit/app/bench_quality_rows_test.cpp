// The rows of `bench quality` as tables, JSON and curves, and how a run's steps become one time.
#include "app/commands/bench/quality_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/commands/bench/quality_runs.h"
#include "app/commands/bench_plot.h"
#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

PromptFigures figures(double psnr, double sparsity) {
  PromptFigures result;
  result.prompt = "a star";
  result.psnr = psnr;
  result.ssim = 0.9;
  result.sparsity = sparsity;
  return result;
}

QualityRow row(double topk, attention::Dropped dropped, double step_ms) {
  QualityRow result;
  result.combination.policy.defaults.topk = topk;
  result.combination.policy.dropped = dropped;
  result.combination.policy.ranking = attention::Ranking::mass;
  result.combination.policy.cell = 32;
  result.prompts = {figures(30, 0.4), figures(20, 0.6)};
  result.step_ms = step_ms;
  result.full_step_ms = 100;
  return result;
}

TEST(QualityRows, AverageTheirPrompts) {
  QualityRow some = row(0.5, attention::Dropped::none, 50);
  EXPECT_DOUBLE_EQ(*some.mean(&PromptFigures::psnr), 25);
  EXPECT_DOUBLE_EQ(*some.lowest_psnr(), 20);
  EXPECT_DOUBLE_EQ(some.mean(&PromptFigures::sparsity), 0.5);
  EXPECT_FALSE(some.mean(&PromptFigures::rel_l1).has_value());
  EXPECT_FALSE(some.verdicts().has_value());
  some.prompts.front().rel_l1 = 0.25;
  EXPECT_DOUBLE_EQ(*some.mean(&PromptFigures::rel_l1), 0.25);
}

TEST(QualityRows, AreJsonWithTheirPrompts) {
  QualityRow some = row(0.5, attention::Dropped::mean, 50);
  some.prompts.front().verdict = Verdict{.told = {1, 2, 3, -1}, .seen = {1, 2, 0, 0}};
  const nlohmann::json json = quality_json({some, QualityRow()});
  EXPECT_EQ(json[0].at("topk"), 0.5);
  EXPECT_TRUE(json[0].at("cdf").is_null());
  EXPECT_EQ(json[0].at("dropped"), "mean");
  EXPECT_EQ(json[0].at("cell"), 32);
  EXPECT_EQ(json[0].at("psnr"), 25);
  EXPECT_EQ(json[0].at("psnr_lowest"), 20);
  EXPECT_EQ(json[0].at("speedup"), 2);
  EXPECT_EQ(json[0].at("judge"), 0);
  EXPECT_EQ(json[0].at("judge_counts").at("shape"), nlohmann::json({1, 1}));
  EXPECT_EQ(json[0].at("judge_counts").at("background"), nlohmann::json({0, 1}));
  EXPECT_EQ(json[0].at("prompts").size(), 2U);
  EXPECT_EQ(json[0].at("prompts")[0].at("judge"),
            nlohmann::json({{"shape", true}, {"colour", true}, {"background", false}}));
  EXPECT_TRUE(json[1].at("psnr").is_null());
  EXPECT_TRUE(json[1].at("sparsity").is_null());
}

TEST(QualityRows, AreATableWithoutColumnsThatSayNothing) {
  const std::string text =
      quality_markdown({row(0.5, attention::Dropped::none, 50), row(0.5, attention::Dropped::mean, 60)});
  EXPECT_THAT(text, HasSubstr("| topk | dropped | select | cell | PSNR dB |"));
  EXPECT_THAT(text, Not(HasSubstr("order")));  // both have the same
  EXPECT_THAT(text, Not(HasSubstr("rel. L1")));
  QualityRow native = row(0.5, attention::Dropped::none, 50);
  native.combination.order = hilbert::TokenOrder::native;
  EXPECT_THAT(quality_markdown({row(0.5, attention::Dropped::none, 50), native}), HasSubstr("| order |"));
  EXPECT_THAT(quality_csv({native}),
              HasSubstr("topk,cdf,error_bound,dropped,select,cell,profile,mode,selection_rows,similarity,"
                        "dense_steps,token_order,cache,computed_steps,psnr,psnr_lowest,ssim,rel_l1"));
}

TEST(QualityRows, TellCachesAndTheStepsTheyLeave) {
  QualityRow cached = row(0.5, attention::Dropped::none, 50);
  cached.combination.full = true;
  cached.combination.cache.threshold = 0.1;
  for (PromptFigures& figures : cached.prompts) figures.computed_steps = 20;
  const std::vector<QualityRow> rows = {row(0.5, attention::Dropped::none, 50), cached};
  EXPECT_THAT(quality_markdown(rows), HasSubstr("| cache | computed |"));
  const nlohmann::json json = quality_json(rows);
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

TEST(QualityCurves, AreOneAMethod) {
  const nlohmann::json report = {
      {"rows", quality_json({row(0.5, attention::Dropped::none, 50), row(0.3, attention::Dropped::none, 40),
                             row(0.3, attention::Dropped::mean, 45)})}};
  const CurvesData data = curves_of(report, "r.json");
  ASSERT_EQ(data.curves.size(), 2U);
  EXPECT_EQ(data.curves[0].name, "dropped none, select mass");
  ASSERT_EQ(data.curves[0].points.size(), 2U);
  EXPECT_EQ(data.curves[0].points[1].label, "0.3");
  EXPECT_EQ(data.curves[0].points[1].x, 40);
  EXPECT_EQ(data.curves[0].points[1].y, 25);
  EXPECT_EQ(data.curves[1].name, "dropped mean, select mass, cell 32");
  EXPECT_EQ(data.mark, 100);
  EXPECT_TRUE(throws_error(
      [] {
        curves_of({{"rows", quality_json({QualityRow()})}}, "r.json");
      },
      {"r.json", "no row"}));
  EXPECT_TRUE(throws_error([] { curves_of({{"rows", 3}}, "r.json"); }, {"r.json", "no array"}));
}

TEST(StepMilliseconds, WeighDenseStepsByTheirNumber) {
  EXPECT_DOUBLE_EQ(step_milliseconds({9, 4, 5, 6, 100}, 0, 5), 6);
  EXPECT_DOUBLE_EQ(step_milliseconds({20, 22, 4, 5, 6}, 2, 10), (2 * 21 + 8 * 5) / 10.0);
  EXPECT_DOUBLE_EQ(step_milliseconds({20, 20, 20}, 7, 3), 20);
}

}  // namespace
}  // namespace sparsereel::app::bench
