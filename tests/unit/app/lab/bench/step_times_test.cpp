// Tests --times of `bench quality`, which takes the times of steps from a report about another model.
#include "app/lab/bench/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/lab/bench/rows.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::throws_error;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Combination sparse(double topk, const std::string& cache = "0") {
  Combination result;
  result.policy.defaults.topk = topk;
  result.cache = models::parse_cache_rule(cache);
  return result;
}

Row step(const Combination& combination, double ms) {
  Row row = step_row(combination);
  row["ms"] = ms;
  return row;
}

nlohmann::json report(const Rows& rows) {
  return {{"machine", {{"name", "NVIDIA H200"}, {"device", "cuda:0"}}},
          {"settings",
           {{"model", "random weights of big.yaml"},
            {"dtype", "bf16"},
            {"frames", 49},
            {"width", 720},
            {"height", 480},
            {"tokens", 17776},
            {"batch", 2},
            {"steps", 4},
            {"seed", 42},
            {"layers", 25}}},
          {"rows", rows}};
}

class StepTimesTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const nlohmann::json& content) const {
    test::write_text(folder_ / name, content.dump());
    return (folder_ / name).string();
  }
  StepTimes usual() const {
    return read_step_times({write("r.json", report({stage_row("text"), step({.mode = attention::Mode::full}, 500),
                                                    step({.mode = attention::Mode::quantized}, 300),
                                                    step(sparse(0.3, "steps:2"), 1), step(sparse(0.3), 200)}))});
  }

  const test::TemporaryFolder folder_;
};

Row row_of(const Combination& combination, double computed, const Row& dense) {
  Row row = quality_row(combination);
  row["prompts"] = {{{"prompt", "a"}, {"computed_steps", computed}, {"computed_dense_steps", dense}}};
  return row;
}

TEST_F(StepTimesTest, WeighsDenseComputedAndReusedSteps) {
  Row row = row_of(sparse(0.3, "0.1"), 20, 8.0);
  summarise(row, usual(), 50);
  const double computed = 8 * 300 + 12 * 200;
  EXPECT_DOUBLE_EQ(row["step_ms"], computed / 20);
  EXPECT_DOUBLE_EQ(row["denoise_seconds"], (computed + 30 * 200 / 25.0) / 1000) << "a reused step is its first block";
  EXPECT_DOUBLE_EQ(row["full_step_ms"], 500);
  EXPECT_DOUBLE_EQ(row["full_denoise_seconds"], 25);
  EXPECT_DOUBLE_EQ(row["speedup"], 25 / row["denoise_seconds"].get<double>());
}

TEST_F(StepTimesTest, CoversQuantizedAttention) {
  Row row = row_of({.mode = attention::Mode::quantized}, 50, {});
  summarise(row, usual(), 50);
  EXPECT_DOUBLE_EQ(row["step_ms"], 300);
  EXPECT_DOUBLE_EQ(row["denoise_seconds"], 15);
}

TEST_F(StepTimesTest, ExplainsRowsThatTheReportDoesNotHave) {
  Combination reduced = sparse(0.3), native = sparse(0.3);
  reduced.weights = "fp8";
  native.order = hilbert::TokenOrder::native;
  for (const Combination& other : {sparse(0.5), reduced, native}) {
    Row row = row_of(other, 50, 0.0);
    summarise(row, usual(), 50);
    EXPECT_TRUE(row["denoise_seconds"].is_null());
    EXPECT_THAT(text_of(row, "note"), HasSubstr("--times"));
  }
  const StepTimes both = read_step_times(
      {write("a.json", report({step(sparse(0.3), 200)})), write("b.json", report({step(reduced, 150)}))});
  EXPECT_THAT(both.summaries, SizeIs(2));
  EXPECT_THAT(both.summaries.front(), HasSubstr("NVIDIA H200, random weights of big.yaml, bf16"));
  Row row = row_of(reduced, 50, 0.0);
  summarise(row, both, 50);
  EXPECT_DOUBLE_EQ(row["step_ms"], 150);
  EXPECT_TRUE(row["full_step_ms"].is_null());
}

Combination bounded(double bound) {
  Combination result = sparse(0.3);
  result.policy.defaults.selection = attention::Selection::block_error;
  result.policy.defaults.block_error = bound;
  return result;
}

// The report also has a row for an error bound, but the time of that row must not count: with the random weights of the
// report's model, a bound keeps hardly any block.
TEST_F(StepTimesTest, DerivesTheTimeOfABoundFromTheShareOfComputedBlocks) {
  Row few = step(sparse(0.1), 150);
  few["sparsity"] = 0.8;  // not 1 - topk = 0.9, because text blocks are always computed
  const StepTimes times = read_step_times({write(
      "r.json", report({step({.mode = attention::Mode::full}, 500), step({.mode = attention::Mode::quantized}, 300),
                        step(bounded(0.01), 1), step(sparse(0.5), 210), few}))});
  const auto ms = [&](const Row& share, double computed, double dense) {
    Row row = row_of(bounded(0.01), computed, dense);
    row["prompts"][0]["kept_share"] = share;
    summarise(row, times, 50);
    EXPECT_DOUBLE_EQ(row["full_step_ms"], 500);
    return row["denoise_seconds"].get<double>() * 1000;
  };
  EXPECT_DOUBLE_EQ(ms(0.4, 50, 0), 50 * 190.0) << "between 0.2 and 0.5";
  EXPECT_DOUBLE_EQ(ms(0.75, 50, 0), 50 * 255.0) << "between 0.5 and every block";
  EXPECT_DOUBLE_EQ(ms(0.1, 50, 0), 50 * 150.0) << "no less than what was timed";
  EXPECT_DOUBLE_EQ(ms(0.4, 20, 4), 4 * 300 + 16 * 190.0 + 30 * 190 / 25.0);
  EXPECT_DOUBLE_EQ(ms(nullptr, 4, 4), 4 * 300 + 46 * 300 / 25.0);
}

TEST_F(StepTimesTest, HasNoTimeForABoundWithoutATopk) {
  Row row = row_of(bounded(0.01), 50, 0.0);
  summarise(
      row,
      read_step_times({write("r.json", report({step({.mode = attention::Mode::full}, 500), step(bounded(0.01), 1)}))}),
      50);
  EXPECT_TRUE(row["denoise_seconds"].is_null());
  EXPECT_THAT(text_of(row, "note"), HasSubstr("--times"));
}

TEST_F(StepTimesTest, NamesFilesThatAreNotReports) {
  EXPECT_TRUE(throws_error([&] { read_step_times({write("a.json", {{"rows", 3}})}); }, {"a.json", "bench pipeline"}));
  EXPECT_TRUE(throws_error([&] { read_step_times({write("b.json", report({stage_row("text")}))}); },
                           {"b.json", "no step with a measured time"}));
}

}  // namespace
}  // namespace sparsereel::app::bench
