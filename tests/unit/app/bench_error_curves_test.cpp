// The chart of `bench attention`: relative L1 against time, a curve a method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/commands/bench/attention_rows.h"
#include "app/commands/bench_plot.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::throws_error;

Row row(const std::string& mode, double ms, double rel_l1) {
  Row result;
  result.workload = {.name = "tiny", .shape = {.batch = 2, .heads = 4, .tokens = 480, .head_dim = 32}};
  result.mode = mode;
  result.dtype = "bf16";
  result.ms = Spread{.median = ms, .lower_quartile = ms, .upper_quartile = ms, .least = ms, .most = ms};
  result.rel_l1 = rel_l1;
  return result;
}

Row sparse(double topk, const std::string& dropped, double ms, double rel_l1) {
  Row result = row("sparse", ms, rel_l1);
  result.selection = {.topk = topk, .cdf = {}, .error_bound = {}, .dropped = dropped, .select = "mass", .cell = {}};
  return result;
}

std::vector<Row> attention_rows() {
  return {row("full", 12, 1e-3),         row("full", 10, 1e-3),        row("quantized", 5, 0.02),
          sparse(0.5, "none", 4, 0.1),   sparse(0.15, "none", 2, 0.4), sparse(0.5, "mean", 4.5, 0.03),
          sparse(0.15, "mean", 2.5, 0.1)};
}

TEST(ErrorCurves, AreOneAMethodOnALogarithmicAxis) {
  const CurvesData data = error_curves_of({{"rows", to_json(attention_rows())}}, "r.json");
  EXPECT_TRUE(data.logarithmic);
  EXPECT_EQ(data.mark, 10);
  EXPECT_EQ(data.x, "ms a call");
  ASSERT_EQ(data.curves.size(), 3U);
  EXPECT_EQ(data.curves[0].name, "quantized");
  EXPECT_EQ(data.curves[1].name, "dropped none, select mass");
  ASSERT_EQ(data.curves[1].points.size(), 2U);
  EXPECT_EQ(data.curves[1].points[0].label, "0.15");  // by time
  EXPECT_EQ(data.curves[1].points[0].x, 2);
  EXPECT_EQ(data.curves[1].points[0].y, 0.4);
  EXPECT_EQ(data.curves[2].name, "dropped mean, select mass");
}

TEST(ErrorCurves, TellTokenOrdersAndWorkloadsApart) {
  std::vector<Row> all = {sparse(0.5, "none", 4, 0.1), sparse(0.5, "none", 4, 0.2), sparse(0.5, "none", 4, 0.3),
                          row("full", 9, 1e-3)};
  all[0].workload.token_order = "hilbert";
  all[1].workload.token_order = "native";
  all[2].workload = {.name = "", .shape = {.batch = 1, .heads = 1, .tokens = 64, .head_dim = 64}};
  const CurvesData data = error_curves_of({{"rows", to_json(all)}}, "r.json");
  ASSERT_EQ(data.curves.size(), 3U);
  EXPECT_EQ(data.curves[0].name, "tiny: dropped none, select mass, token_order hilbert");
  EXPECT_EQ(data.curves[1].name, "tiny: dropped none, select mass, token_order native");
  EXPECT_EQ(data.curves[2].name, "[1,1,64,64]: dropped none, select mass");
  EXPECT_FALSE(data.mark.has_value());  // of which of them?
}

TEST(ErrorCurves, NeedASparseRow) {
  EXPECT_TRUE(throws_error(
      [] {
        error_curves_of({{"rows", to_json({row("full", 1, 1e-3), row("quantized", 1, 0.02)})}}, "r.json");
      },
      {"r.json", "no sparse row"}));
}

}  // namespace
}  // namespace sparsereel::app::bench
