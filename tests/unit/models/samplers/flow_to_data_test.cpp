// Tests the flow_to_data sampler, which steps towards the clean sample: its schedule, a step that was computed by hand,
// and that exact predictions lead to the clean sample.
#include "models/samplers/flow_to_data.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/samplers/make_sampler.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<Sampler> sampler_of(double shift, int64_t steps, std::vector<double> sigmas = {}) {
  SchedulerConfig config;
  config.kind = SamplerKind::flow_to_data;
  config.flow_shift = shift;
  config.sigmas = std::move(sigmas);
  return make_sampler(config, steps);
}

auto near(double timestep) {
  return ::testing::DoubleNear(timestep, 1e-6);
}

TEST(FlowToData, CountsTimestepsFromNoiseToTheCleanEnd) {
  EXPECT_THAT(sampler_of(12, 4)->timesteps(), ElementsAre(near(0), near(0.027027), near(0.076923), near(0.2)));
  EXPECT_THAT(sampler_of(3, 4)->timesteps(), ElementsAre(near(0), near(0.1), near(0.25), near(0.5)));
  const std::vector<double> many = sampler_of(12, 49)->timesteps();
  EXPECT_EQ(many.size(), 49U);
  EXPECT_NEAR(many[1], 0.0017331, 1e-7);
}

TEST(FlowToData, ShiftsGivenNoiseLevels) {
  EXPECT_THAT(sampler_of(3, 2, {1, 0.5})->timesteps(), ElementsAre(near(0), near(0.25)));
}

TEST(FlowToData, BlendsTheSampleWithTheCleanSampleThatThePredictionImplies) {
  const auto sampler = sampler_of(1, 4);  // sigmas 1, 0.75, 0.5, 0.25, 0
  const at::Tensor sample = at::full({2}, 2.0), velocity = at::full({2}, 4.0);
  // At sigma 0.5 the predicted clean sample is 2 + 0.5 * 4 = 4. The next sigma is half as large, so the result is the
  // mean of 2 and 4.
  EXPECT_TRUE(test::close_to(sampler->predicted_original(velocity, 2, sample), at::full({2}, 4.0F), 1e-6));
  EXPECT_TRUE(test::close_to(sampler->step(velocity, 2, sample, {}), at::full({2}, 3.0F), 1e-6));
  EXPECT_TRUE(test::close_to(sampler->step(velocity, 3, sample, {}), at::full({2}, 3.0F), 1e-6));
}

TEST(FlowToData, ReachesTheCleanSampleByExactPredictions) {
  const auto sampler = sampler_of(12, 7);
  const at::Tensor clean = at::randn({3, 4}), noise = at::randn({3, 4});
  at::Tensor sample = sampler->start(noise);
  for (int64_t step = 0; step < 7; ++step) sample = sampler->step(clean - noise, step, sample, {});
  EXPECT_TRUE(test::close_to(sample, clean, 1e-5));
}

TEST(FlowToData, RefusesLevelsThatDoNotFall) {
  EXPECT_THROW(sampler_of(1e9, 999), Error);
}

}  // namespace
}  // namespace sparsereel::models
