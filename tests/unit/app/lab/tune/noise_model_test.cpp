// Tests which errors the noise model expects before and after it has seen videos.
#include "app/lab/tune/noise_model.h"

#include <gtest/gtest.h>

namespace sparsereel::app::tuning {
namespace {

Traits with_weights(const char* weights) {
  return traits_of({.mode = attention::Mode::full, .weights = weights}, /*steps=*/25);
}

TEST(NoiseModel, ExpectsMoreErrorOfFp8ThanOfInt8) {
  const NoiseModel model(/*prompts=*/1);
  EXPECT_GT(model.guess(with_weights("int8")).mean, model.guess(with_weights("fp8")).mean + 5);
  EXPECT_GT(model.guess(with_weights("auto")).mean, model.guess(with_weights("int8")).mean);
}

TEST(NoiseModel, LearnsTheErrorsOfEachFormatFromVideos) {
  NoiseModel model(/*prompts=*/2);
  const double fp8 = model.guess(with_weights("fp8")).mean;
  model.fit({{with_weights("int8"), 0, 40}, {with_weights("int8"), 1, 40}});
  EXPECT_LT(model.guess(with_weights("int8")).mean, 43);
  EXPECT_NEAR(model.guess(with_weights("fp8")).mean, fp8, 2) << "videos with int8 say little of fp8";
}

}  // namespace
}  // namespace sparsereel::app::tuning
