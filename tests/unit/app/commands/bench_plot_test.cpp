// Tests the chart of `bench attention`, which plots relative L1 error against time with one curve per method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/commands/bench.h"
#include "app/lab/bench/rows.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::throws_error;

const Workload kTiny{.name = "tiny", .shape = {.batch = 2, .heads = 4, .tokens = 480, .head_dim = 32}};

Row row(const std::string& mode, double ms, double rel_l1) {
  Row result = attention_row(kTiny, mode, nullptr);
  result.update({{"dtype", "bf16"}, {"ms", ms}, {"rel_l1", rel_l1}});
  return result;
}

Row sparse(double topk, const std::string& dropped, double ms, double rel_l1) {
  Row result = row("sparse", ms, rel_l1);
  result.update({{"topk", topk}, {"dropped", dropped}, {"select", "mass"}});
  return result;
}

Rows attention_rows() {
  return {row("full", 12, 1e-3),         row("full", 10, 1e-3),        row("quantized", 5, 0.02),
          sparse(0.5, "none", 4, 0.1),   sparse(0.15, "none", 2, 0.4), sparse(0.5, "mean", 4.5, 0.03),
          sparse(0.15, "mean", 2.5, 0.1)};
}

TEST(ErrorCurves, DrawsOneCurvePerMethodOnALogarithmicAxis) {
  const CurvesData data = error_curves_of({{"rows", attention_rows()}}, "r.json");
  EXPECT_TRUE(data.logarithmic);
  EXPECT_EQ(data.mark, 10);
  EXPECT_EQ(data.x, "ms a call");
  ASSERT_EQ(data.curves.size(), 3U);
  EXPECT_EQ(data.curves[0].name, "quantized");
  EXPECT_EQ(data.curves[1].name, "dropped none, select mass");
  ASSERT_EQ(data.curves[1].points.size(), 2U);
  EXPECT_EQ(data.curves[1].points[0].label, "0.15");  // the fastest point comes first
  EXPECT_EQ(data.curves[1].points[0].x, 2);
  EXPECT_EQ(data.curves[1].points[0].y, 0.4);
  EXPECT_EQ(data.curves[2].name, "dropped mean, select mass");
}

TEST(ErrorCurves, SeparatesTokenOrdersAndWorkloads) {
  Rows all = {sparse(0.5, "none", 4, 0.1), sparse(0.5, "none", 4, 0.2), sparse(0.5, "none", 4, 0.3),
              row("full", 9, 1e-3)};
  all[0]["token_order"] = "hilbert";
  all[1]["token_order"] = "native";
  all[2]["shape"] = {1, 1, 64, 64};
  all[2].erase("workload");
  const CurvesData data = error_curves_of({{"rows", all}}, "r.json");
  ASSERT_EQ(data.curves.size(), 3U);
  EXPECT_EQ(data.curves[0].name, "tiny: dropped none, select mass, token_order hilbert");
  EXPECT_EQ(data.curves[1].name, "tiny: dropped none, select mass, token_order native");
  EXPECT_EQ(data.curves[2].name, "[1,1,64,64]: dropped none, select mass");
  // No vertical line: the chart shows two workloads, and a line could be right for only one of them.
  EXPECT_FALSE(data.mark.has_value());
}

TEST(ErrorCurves, RefusesReportsWithoutASparseRow) {
  EXPECT_TRUE(throws_error(
      [] {
        error_curves_of({{"rows", Rows{row("full", 1, 1e-3), row("quantized", 1, 0.02)}}}, "r.json");
      },
      {"r.json", "no sparse row"}));
}

}  // namespace
}  // namespace sparsereel::app::bench
