// The rows of `bench attention` as Markdown, CSV and JSON.
#include "app/commands/bench/attention_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sparsereel::app::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Row dense_row(double ms) {
  Row row;
  row.workload = {.name = "", .shape = {.batch = 1, .heads = 4, .tokens = 2336, .head_dim = 64}};
  row.mode = "full";
  row.kernel = "torch sdpa";
  row.dtype = "fp32";
  row.device = "cpu";
  row.ms = Spread{.median = ms, .lower_quartile = ms - 1, .upper_quartile = ms + 1, .least = ms - 2, .most = ms + 2};
  row.tops = 0.1;
  row.sparsity = 0;
  row.rel_l1 = 2.5e-7;
  row.cosine = 1;
  return row;
}

Row sparse_row(double ms) {
  Row row = dense_row(ms);
  row.mode = "sparse";
  row.kernel = "cpu, \"fast\" | avx2";
  row.selection = {.topk = 0.5, .cdf = {}, .error_bound = {}, .dropped = "none", .select = "mass", .cell = {}};
  row.sparsity = 0.51;
  return row;
}

Row failed_row() {
  Row row = sparse_row(1);
  row.ms = {};
  row.tops = row.sparsity = row.rel_l1 = row.cosine = {};
  row.note = "cannot run";
  return row;
}

TEST(CompareWithDense, TakesTheFastestDenseRow) {
  std::vector<Row> rows = {dense_row(20), dense_row(10), sparse_row(4), failed_row()};
  compare_with_dense(rows);
  EXPECT_DOUBLE_EQ(*rows[0].speedup, 0.5);
  EXPECT_DOUBLE_EQ(*rows[1].speedup, 1);
  EXPECT_DOUBLE_EQ(*rows[2].speedup, 2.5);
  EXPECT_FALSE(rows[3].speedup.has_value());
}

TEST(CompareWithDense, SaysNothingWithoutADenseRow) {
  std::vector<Row> rows = {sparse_row(4)};
  compare_with_dense(rows);
  EXPECT_FALSE(rows[0].speedup.has_value());
}

TEST(Markdown, HasALineARow) {
  const std::string text = markdown({dense_row(12.345), sparse_row(5)});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, StartsWith("| B,H,N,D | mode | topk | dropped | select | kernel | dtype | ms | quartiles |"));
  EXPECT_THAT(text, HasSubstr("| 1,4,2336,64 | full |  |  |  | torch sdpa | fp32 | 12.35 |"));
  EXPECT_THAT(text, HasSubstr("| 2.50e-07 |"));
  EXPECT_THAT(text, HasSubstr("\"fast\" \\| avx2"));
}

TEST(Markdown, TellsWhatStoodForDroppedBlocks) {
  Row row = sparse_row(5);
  row.selection = {.topk = {}, .cdf = {}, .error_bound = 0.05, .dropped = "mean", .select = "error", .cell = 32};
  row.mean_share = 0.03125;
  row.predicted_error = 0.042;
  const std::string text = markdown({row, sparse_row(6)});
  EXPECT_THAT(text, HasSubstr("| topk | error | dropped | select | cell |"));
  EXPECT_THAT(text, HasSubstr("|  | 0.05 | mean | error | 32 |"));
  EXPECT_THAT(text, HasSubstr("| sparsity | means | predicted | rel. L1 |"));
  EXPECT_THAT(text, HasSubstr("| 0.510 | 0.0312 | 0.0420 |"));
  const nlohmann::json json = to_json({row})[0];
  EXPECT_EQ(json["cell"], 32);
  EXPECT_EQ(json["mean_share"], 0.03125);
  EXPECT_EQ(json["predicted_error"], 0.042);
}

TEST(Markdown, ShowsEveryDigitOfWhatWasChosen) {
  std::vector<Row> rows(5, sparse_row(5));
  rows[0].selection.topk = 0.15;
  rows[1].selection.topk = 0.07;
  rows[2].selection.topk = 0.025;
  rows[3].selection.topk = 1;
  rows[4].selection.topk = 0.5;
  for (const char* topk : {"| 0.15 |", "| 0.07 |", "| 0.025 |", "| 1 |", "| 0.5 |"})
    EXPECT_THAT(markdown(rows), HasSubstr(std::string("| sparse ") + topk)) << topk;
}

TEST(Markdown, LeavesOutWhatNoRowHas) {
  Row row = dense_row(5);
  EXPECT_THAT(markdown({row}), Not(HasSubstr("note")));
  EXPECT_THAT(markdown({row}), Not(HasSubstr("pre-pass")));
  EXPECT_THAT(markdown({row}), Not(HasSubstr("causal")));
  row.prepass_ms = 0.5;
  row.workload.causal = true;
  row.workload.text_tokens = 226;
  EXPECT_THAT(markdown({row, failed_row()}), HasSubstr("pre-pass ms | pre-pass %"));
  EXPECT_THAT(markdown({row, failed_row()}), HasSubstr("| 0.500 | 10.0 |"));
  EXPECT_THAT(markdown({row, failed_row()}), HasSubstr("| cannot run |"));
  EXPECT_THAT(markdown({row, failed_row()}), HasSubstr("| causal, 226 text |"));
}

TEST(Tables, NameTheOrderOfCapturedTokens) {
  Row row = sparse_row(5);
  row.workload.token_order = "hilbert";
  row.workload.text_tokens = 32;
  EXPECT_THAT(markdown({row}), HasSubstr("| hilbert order, 32 text |"));
  EXPECT_EQ(to_json({row})[0]["token_order"], "hilbert");
  EXPECT_FALSE(to_json({sparse_row(5)})[0].contains("token_order"));
  EXPECT_THAT(csv({row}), ::testing::EndsWith(",32,hilbert\n"));
}

TEST(Csv, QuotesWhatNeedsItAndKeepsEveryColumn) {
  const std::string text = csv({sparse_row(5), failed_row()});
  EXPECT_THAT(
      text,
      StartsWith("workload,shape,mode,topk,cdf,error_bound,dropped,select,cell,kernel,dtype,ms,ms_lower_quartile,"));
  EXPECT_THAT(
      text,
      HasSubstr("\n,\"1,4,2336,64\",sparse,0.5,,,none,mass,,\"cpu, \"\"fast\"\" | avx2\",fp32,5.0,4.0,6.0,3.0,7.0,"));
  EXPECT_THAT(text, HasSubstr(",fp32,,,,,,"));
}

TEST(Json, HasTheKeysOfEveryRow) {
  Row timed = sparse_row(5);
  timed.prepass_ms = 0.5;
  const nlohmann::json rows = to_json({timed, failed_row()});
  for (const nlohmann::json& row : rows)
    for (const char* key : {"mode", "shape", "dtype", "device", "topk", "cdf", "error_bound", "dropped", "select",
                            "cell", "ms", "tops", "sparsity", "mean_share", "predicted_error", "rel_l1"})
      EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(rows[0]["shape"], nlohmann::json({1, 4, 2336, 64}));
  EXPECT_EQ(rows[0]["prepass_percent"], 10.0);
  EXPECT_FALSE(rows[0].contains("note"));
  EXPECT_TRUE(rows[1]["ms"].is_null());
  EXPECT_FALSE(rows[1].contains("prepass_ms"));
  EXPECT_EQ(rows[1]["note"], "cannot run");
}

}  // namespace
}  // namespace sparsereel::app::bench
