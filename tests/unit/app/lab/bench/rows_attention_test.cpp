// Tests how rows of `bench attention` are written as Markdown, CSV and JSON, and features that all tables share.
#include "app/lab/bench/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sparsereel::app::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Workload kWorkload{.name = "", .shape = {.batch = 1, .heads = 4, .tokens = 2336, .head_dim = 64}};

Row measured(Row row, double ms) {
  row.update(time_fields(
      Spread{.median = ms, .lower_quartile = ms - 1, .upper_quartile = ms + 1, .least = ms - 2, .most = ms + 2}));
  row.update({{"dtype", "fp32"}, {"device", "cpu"}, {"tops", 0.1}, {"rel_l1", 2.5e-7}, {"cosine", 1.0}});
  return row;
}

Row dense_row(double ms, const Workload& workload = kWorkload) {
  Row row = measured(attention_row(workload, "full", nullptr), ms);
  row.update({{"kernel", "torch sdpa"}, {"sparsity", 0.0}});
  return row;
}

attention::Policy dropping(double topk) {
  attention::Policy policy;
  policy.dropped = attention::Dropped::none;
  policy.ranking = attention::Ranking::mass;
  policy.defaults.selection = attention::Selection::topk;
  policy.defaults.topk = topk;
  return policy;
}

Row sparse_row(double ms, const attention::Policy& policy = dropping(0.5), const Workload& workload = kWorkload) {
  Row row = measured(attention_row(workload, "sparse", &policy), ms);
  row.update({{"kernel", "cpu, \"fast\" | avx2"}, {"sparsity", 0.51}});
  return row;
}

Row failed_row() {
  const attention::Policy policy = dropping(0.5);
  Row row = attention_row(kWorkload, "sparse", &policy);
  row.update({{"kernel", "cpu"}, {"dtype", "fp32"}, {"device", "cpu"}, {"note", "cannot run"}});
  return row;
}

std::string table_of(const Rows& rows) {
  return markdown(attention_columns(), rows);
}

TEST(CompareWithDense, TakesTheFastestDenseRow) {
  Rows rows = {dense_row(20), dense_row(10), sparse_row(4), failed_row()};
  compare_with_dense(rows);
  EXPECT_EQ(rows[0]["speedup"], 0.5);
  EXPECT_EQ(rows[1]["speedup"], 1);
  EXPECT_EQ(rows[2]["speedup"], 2.5);
  EXPECT_TRUE(rows[3]["speedup"].is_null());
}

TEST(CompareWithDense, GivesNoSpeedupWithoutADenseRow) {
  Rows rows = {sparse_row(4)};
  compare_with_dense(rows);
  EXPECT_TRUE(rows[0]["speedup"].is_null());
}

TEST(Markdown, HasOneLinePerRow) {
  const std::string text = table_of({dense_row(12.345), sparse_row(5)});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, StartsWith("| B,H,N,D | mode | topk | dropped | select | kernel | dtype | ms | quartiles |"));
  EXPECT_THAT(text, HasSubstr("| 1,4,2336,64 | full |  |  |  | torch sdpa | fp32 | 12.35 |"));
  EXPECT_THAT(text, HasSubstr("| 2.50e-07 |"));
  EXPECT_THAT(text, HasSubstr("\"fast\" \\| avx2"));
}

TEST(Markdown, ShowsWhatReplacedDroppedBlocks) {
  attention::Policy policy;
  policy.cell = 32;
  policy.defaults.selection = attention::Selection::error;
  policy.defaults.error = 0.05;
  Row row = sparse_row(5, policy);
  row.update({{"mean_share", 0.03125}, {"predicted_error", 0.042}});
  const std::string text = table_of({row, sparse_row(6)});
  EXPECT_THAT(text, HasSubstr("| topk | error | dropped | select | cell |"));
  EXPECT_THAT(text, HasSubstr("|  | 0.05 | mean | error | 32 |"));
  EXPECT_THAT(text, HasSubstr("| sparsity | mean share | predicted | rel. L1 |"));
  EXPECT_THAT(text, HasSubstr("| 0.510 | 0.0312 | 0.0420 |"));
  EXPECT_EQ(row["cell"], 32);
  EXPECT_EQ(row["error_bound"], 0.05);
}

TEST(Markdown, ShowsEveryDigitOfTheChosenValues) {
  Rows rows;
  for (const double topk : {0.15, 0.07, 0.025, 1.0, 0.5}) rows.push_back(sparse_row(5, dropping(topk)));
  for (const char* topk : {"| 0.15 |", "| 0.07 |", "| 0.025 |", "| 1 |", "| 0.5 |"})
    EXPECT_THAT(table_of(rows), HasSubstr(std::string("| sparse ") + topk)) << topk;
}

TEST(Markdown, OmitsColumnsThatNoRowHas) {
  Row row = dense_row(5);
  EXPECT_THAT(table_of({row}), Not(HasSubstr("note")));
  EXPECT_THAT(table_of({row}), Not(HasSubstr("pre-pass")));
  EXPECT_THAT(table_of({row}), Not(HasSubstr("causal")));
  row.update({{"prepass_ms", 0.5}, {"prepass_percent", 10.0}, {"causal", true}, {"text_tokens", 226}});
  EXPECT_THAT(table_of({row, failed_row()}), HasSubstr("pre-pass ms | pre-pass %"));
  EXPECT_THAT(table_of({row, failed_row()}), HasSubstr("| 0.500 | 10.0 |"));
  EXPECT_THAT(table_of({row, failed_row()}), HasSubstr("| cannot run |"));
  EXPECT_THAT(table_of({row, failed_row()}), HasSubstr("| causal, 226 text |"));
}

TEST(Prepass, SplitsTheTimeOfSparseRowsIntoQuantizationAndPrediction) {
  Row quantized = dense_row(5), lighter = sparse_row(5), heavier = sparse_row(5), untimed = sparse_row(5);
  quantized.update({{"mode", "quantized"}, {"prepass_ms", 0.5}});
  lighter["prepass_ms"] = 0.75, heavier["prepass_ms"] = 0.45;
  Rows alone = {lighter}, rows = {quantized, lighter, heavier, untimed};
  split_prepass(alone);
  EXPECT_FALSE(alone[0].contains("prediction_ms"));
  split_prepass(rows);
  EXPECT_FALSE(rows[0].contains("prediction_ms"));
  EXPECT_DOUBLE_EQ(rows[1]["prediction_ms"], 0.25);
  EXPECT_DOUBLE_EQ(rows[2]["prediction_ms"], 0) << "noise of the clock";
  EXPECT_FALSE(rows[3].contains("prediction_ms"));
}

TEST(Tables, NameTheOrderOfCapturedTokens) {
  Workload captured = kWorkload;
  captured.token_order = "hilbert";
  captured.text_tokens = 32;
  const Row row = sparse_row(5, dropping(0.5), captured);
  EXPECT_THAT(table_of({row}), HasSubstr("| hilbert order, 32 text |"));
  EXPECT_EQ(row["token_order"], "hilbert");
  EXPECT_FALSE(sparse_row(5).contains("token_order"));
  EXPECT_THAT(csv(attention_columns(), {row}), ::testing::EndsWith(",32,hilbert\n"));
}

TEST(Tables, ShowFewerHeadsOfKeysAndValues) {
  Workload shared = kWorkload;
  shared.shape.kv_heads = 2;
  shared.causal = true;
  const Row row = sparse_row(5, dropping(0.5), shared);
  EXPECT_THAT(table_of({row}), HasSubstr("| causal, 2 heads of k and v |"));
  EXPECT_EQ(row["kv_heads"], 2);
  EXPECT_FALSE(sparse_row(5).contains("kv_heads"));
  EXPECT_THAT(csv(attention_columns(), {row}), ::testing::EndsWith(",1,2,0,\n"));
}

TEST(Csv, QuotesSpecialFieldsAndKeepsEveryColumn) {
  const std::string text = csv(attention_columns(), {sparse_row(5), failed_row()});
  EXPECT_THAT(text, StartsWith("workload,shape,mode,topk,cdf,error_bound,block_error,dropped,select,cell,kernel,dtype,"
                               "ms,ms_lower_quartile,"));
  EXPECT_THAT(
      text,
      HasSubstr("\n,\"1,4,2336,64\",sparse,0.5,,,,none,mass,,\"cpu, \"\"fast\"\" | avx2\",fp32,5.0,4.0,6.0,3.0,7.0,"));
  EXPECT_THAT(text, HasSubstr(",fp32,,,,,,"));
}

TEST(Json, HasTheSameKeysInEveryRow) {
  for (const Row& row : {sparse_row(5), dense_row(5), failed_row()})
    for (const char* key :
         {"mode", "shape", "dtype", "device", "topk", "cdf", "error_bound", "block_error", "dropped", "select", "cell",
          "ms", "tops", "effective_tops", "sparsity", "skipped_pv", "mean_share", "predicted_error", "rel_l1"})
      EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(sparse_row(5)["shape"], nlohmann::json({1, 4, 2336, 64}));
  EXPECT_TRUE(failed_row()["ms"].is_null());
  for (const char* key : {"note", "prepass_ms", "workload"}) EXPECT_FALSE(sparse_row(5).contains(key)) << key;
}

}  // namespace
}  // namespace sparsereel::app::bench
