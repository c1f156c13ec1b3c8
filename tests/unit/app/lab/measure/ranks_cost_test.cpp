// Compares the predicted cost of exchanges between GPUs with measurements on hosts of four H100 with NVLink.
#include "app/lab/measure/ranks_cost.h"

#include <gtest/gtest.h>

#include "app/links.h"

namespace sparsereel::app {
namespace {

/// Returns the predicted milliseconds in which four GPUs exchange q, k and v of one layer and one pass.
double all_to_all_ms(double tokens, double channels) {
  const RanksCost cost =
      cost_over_ranks({.tokens = tokens, .layers = 1, .heads = 40, .channels = channels}, 4, kNvlinkSpeed);
  return cost.megabytes * 3 / 4 / kNvlinkSpeed + 0.05;
}

TEST(RanksCost, IsWithinATenthOfMeasuredTimes) {
  EXPECT_NEAR(all_to_all_ms(17776, 1920), 0.17, 0.017);
  EXPECT_NEAR(all_to_all_ms(17776, 3072), 0.23, 0.023);
  EXPECT_NEAR(all_to_all_ms(32760, 5120), 0.64, 0.064);
  EXPECT_NEAR(all_to_all_ms(75600, 5120), 1.32, 0.132);
}

TEST(RanksCost, SplitsPassesBeforeHeads) {
  const VideoCost guided{.tokens = 32760, .layers = 40, .heads = 40, .channels = 5120, .passes = 2, .step_ms = 5000};
  const RanksCost two = cost_over_ranks(guided, 2, kNvlinkSpeed);
  EXPECT_EQ(two.passes, 2);
  EXPECT_EQ(two.ulysses, 1);
  EXPECT_EQ(two.megabytes, 0);
  EXPECT_GT(two.speedup, 1.99);
  const RanksCost eight = cost_over_ranks(guided, 8, kNvlinkSpeed);
  EXPECT_EQ(eight.ulysses, 4);
  EXPECT_EQ(eight.most_heads, 10);
  EXPECT_GT(eight.speedup, 7);
  EXPECT_LT(eight.speedup, 8);
  EXPECT_EQ(cost_over_ranks(guided, 3, kNvlinkSpeed).passes, 1);
}

TEST(RanksCost, CountsTheLargestShareIfHeadsDoNotDivideEvenly) {
  const VideoCost video{.tokens = 17776, .layers = 30, .heads = 30, .channels = 1920, .step_ms = 1000};
  const RanksCost four = cost_over_ranks(video, 4, 1e9);
  EXPECT_EQ(four.most_heads, 8);
  EXPECT_LT(four.speedup, 4);
  EXPECT_GT(four.speedup, 3.5);
}

TEST(RanksCost, KnowsOnlyTheExchangeWithoutAMeasuredStep) {
  const RanksCost cost = cost_over_ranks({.tokens = 1000, .layers = 2, .heads = 4, .channels = 64}, 2, kPcieSpeed);
  EXPECT_EQ(cost.step_ms, 0);
  EXPECT_GT(cost.exchange_ms, 0);
}

TEST(LinkWarning, IsGivenForGpusWithoutNvlink) {
  EXPECT_EQ(link_warning({.gpus = 4, .nvlinks = 18, .problem = ""}, 4), "");
  EXPECT_EQ(link_warning({.gpus = 1, .nvlinks = 0, .problem = ""}, 1), "");
  EXPECT_EQ(link_warning({.gpus = 4, .nvlinks = 0, .problem = "no driver"}, 4), "");
  EXPECT_NE(link_warning({.gpus = 4, .nvlinks = 0, .problem = ""}, 4).find("% longer"), std::string::npos);
}

}  // namespace
}  // namespace sparsereel::app
