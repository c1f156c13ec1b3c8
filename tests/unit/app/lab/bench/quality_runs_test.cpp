// Tests that `bench quality`, which uses two pipelines, keeps the transformer of only one of them in memory.
#include "app/lab/bench/quality_runs.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

class QualityRunsTest : public ::testing::TestWithParam<const char*> {
 protected:
  QualityRunsTest() {
    test::write_text(folder_ / "p.txt", "a dog\na cat\n");
    settings_.add(Source::command_line, {{"model", std::string(SPARSEREEL_TEST_DATA) + "/pipeline"},
                                         {"device", "cpu"},
                                         {"steps", "2"},
                                         {GetParam(), "fp8"}});
    QualityOptions options;
    options.prompts = (folder_ / "p.txt").string();
    options.timed_steps = 1;
    plan_ = make_quality_plan(settings_, options);
  }

  c10::InferenceMode inference_;
  const test::TemporaryFolder folder_;
  Settings settings_;
  QualityPlan plan_;
  RunReport report_;
  RunProgress progress_{/*show=*/false, report_, ""};
};

TEST_P(QualityRunsTest, KeepsOneTransformerOfTwoPipelinesInMemory) {
  const Pipelines pipelines = open_pipelines(plan_, open_model(plan_.run));
  ASSERT_EQ(pipelines.by_weights.size(), 1U);
  const auto reduced = pipelines.by_weights.begin()->second, reference = pipelines.reference;
  plan_.video = reduced->resolve(plan_.request);
  QualityRuns runs(plan_, pipelines, progress_, nullptr);
  const auto loaded = [&] { return std::pair(reduced->has_transformer(), reference->has_transformer()); };
  runs.encode_prompts();
  EXPECT_EQ(loaded(), std::pair(false, false));
  runs.denoise();
  EXPECT_EQ(loaded(), std::pair(true, false));
  runs.time_steps();
  EXPECT_EQ(loaded(), std::pair(false, true));
  runs.compare();
  EXPECT_EQ(loaded(), std::pair(false, false));
  EXPECT_GT(number_of(runs.full(), "step_ms").value(), 0);
  EXPECT_TRUE(runs.reduces_weights());
  ASSERT_EQ(runs.rows().size(), 2U);
  EXPECT_EQ(text_of(runs.rows().front(), "mode"), "full");
  for (const Row& row : runs.rows()) {
    EXPECT_LT(number_of(row, "psnr_lowest").value(), 90);
    EXPECT_EQ(row["prompts"].size(), 2U);
    EXPECT_GT(number_of(row, "step_ms").value(), 0);
  }
}

TEST_P(QualityRunsTest, KeepsTheTransformerOfASinglePipeline) {
  const auto pipeline = models::Pipeline::open(open_model(plan_.run), plan_.request);
  plan_.video = pipeline->resolve(plan_.request);
  QualityRuns runs(plan_, {.reference = pipeline, .by_weights = {{"auto", pipeline}, {"fp8", pipeline}}}, progress_,
                   nullptr);
  runs.encode_prompts();
  runs.denoise();
  EXPECT_TRUE(pipeline->has_transformer());
  runs.time_steps();
  EXPECT_TRUE(pipeline->has_transformer());
  runs.compare();
  EXPECT_FALSE(runs.reduces_weights());
  EXPECT_GT(number_of(runs.rows().front(), "psnr_lowest").value(), 90);
}

INSTANTIATE_TEST_SUITE_P(Options, QualityRunsTest, ::testing::Values("weights", "text_weights"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sparsereel::app::bench
