// Ticks are round numbers, and labels keep out of each other's way.
#include "app/media/with_libraries/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsereel::app {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> texts(const Axis& axis) {
  std::vector<std::string> result;
  for (const double tick : axis.ticks()) result.push_back(tick_text(tick));
  return result;
}

TEST(Axis, HasRoundTicks) {
  EXPECT_THAT(texts(Axis({21.37, 36.91})), ElementsAre("20", "25", "30", "35"));
  EXPECT_THAT(texts(Axis({0.8, 2.71})), ElementsAre("1", "1.5", "2", "2.5"));
  EXPECT_THAT(texts(Axis({0.93, 0.987})), ElementsAre("0.9", "0.92", "0.94", "0.96", "0.98", "1", "1.02"));
  EXPECT_THAT(texts(Axis({-3, 7})), ElementsAre("-4", "-2", "0", "2", "4", "6", "8"));
}

TEST(Axis, HasRoundTicksOnALogarithmicScale) {
  EXPECT_THAT(texts(Axis({0.003, 0.31}, true)),
              ElementsAre("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"));
  EXPECT_THAT(texts(Axis({0.012, 0.31}, true)), ElementsAre("0.01", "0.02", "0.05", "0.1", "0.2", "0.5"));
  EXPECT_THAT(texts(Axis({0.00003, 40}, true)),
              ElementsAre("1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10", "100"));
}

TEST(Axis, HasThreeToElevenTicksWhateverItSpans) {
  for (const double low : {0.0, 1e-7, 0.37, 93.0, 4.2e6})
    for (const double span : {0.0, 1e-9, 0.013, 1.7, 88.0, 3.1e7}) {
      const auto ticks = Axis({low, low + span}).ticks();
      EXPECT_GE(ticks.size(), 3U) << low << " " << span;
      EXPECT_LE(ticks.size(), 11U) << low << " " << span;
    }
}

TEST(Axis, HasTicksOnALogarithmicScaleThatHoldsNoRoundPower) {
  EXPECT_THAT(texts(Axis({0.021, 0.034}, true)),
              ::testing::AllOf(::testing::Contains("0.02"), ::testing::Contains("0.03")));
}

TEST(Labels, DoNotCoverEachOther) {
  std::vector<Labelled> points;
  for (int i = 0; i < 12; ++i) points.push_back({.x = 200 + i, .y = 150 - i, .width = 70, .height = 12});
  const std::vector<Box> labels = place_labels(points, {}, {.width = 400, .height = 300});
  for (size_t i = 0; i < labels.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_EQ(labels[i].shared_with(labels[j]), 0) << i << " and " << j;
}

TEST(Labels, StayOnThePaperBesideTheirPoint) {
  const std::vector<Box> labels =
      place_labels({{.x = 395, .y = 5, .width = 70, .height = 12}}, {}, {.width = 400, .height = 300});
  EXPECT_EQ(labels[0].shared_with({.width = 400, .height = 300}), labels[0].area());
  EXPECT_LT(labels[0].y, 30);
}

}  // namespace
}  // namespace sparsereel::app
