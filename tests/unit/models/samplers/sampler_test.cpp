// Tests properties of samplers that tests/parity does not compare: errors, draws from the generator, history.
#include "models/samplers/sampler.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/samplers/linear_quadratic.h"
#include "models/samplers/make_sampler.h"

namespace sparsereel::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

SchedulerConfig config_of(SamplerKind kind) {
  SchedulerConfig config;
  config.kind = kind;
  return config;
}

const SchedulerConfig kDdim = config_of(SamplerKind::ddim), kDpm = config_of(SamplerKind::dpm_solver),
                      kEuler = config_of(SamplerKind::flow_euler), kUniPc = config_of(SamplerKind::unipc),
                      kAncestral = config_of(SamplerKind::euler_ancestral);

std::string complaint(const SchedulerConfig& config, int64_t steps = 4) {
  try {
    make_sampler(config, steps);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "none";
}

/// Returns how many fp32 tensors of `shape` (0 to 3) were drawn from the generator since it was seeded. Returns -1 if
/// the generator is in none of these states.
int64_t draws_made(const at::Generator& generator, uint64_t seed, at::IntArrayRef shape) {
  for (int64_t draws = 0; draws <= 3; ++draws) {
    at::Generator fresh = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (int64_t i = 0; i < draws; ++i) at::randn(shape, fresh, at::TensorOptions().dtype(at::kFloat));
    if (fresh.get_state().equal(generator.get_state())) return draws;
  }
  return -1;
}

TEST(Sampler, MatchesThePublishedTimesteps) {
  EXPECT_THAT(make_sampler(kDdim, 4)->timesteps(), ElementsAre(999, 749, 499, 249));
  EXPECT_THAT(make_sampler(kDdim, 1)->timesteps(), ElementsAre(999));
}

TEST(Sampler, ReturnsTimestepsOfFlowMatching) {
  EXPECT_THAT(make_sampler(kUniPc, 4)->timesteps(), ElementsAre(999, 750, 500, 250));
  EXPECT_THAT(make_sampler(kUniPc, 1)->timesteps(), ElementsAre(999));
  EXPECT_THAT(make_sampler(kEuler, 3)->timesteps(), ElementsAre(1000, ::testing::DoubleNear(500.5, 1e-4), 1));
  EXPECT_THAT(make_sampler(kEuler, 1)->timesteps(), ElementsAre(1000));
}

// The expected values come from diffusers' linear_quadratic_schedule(steps, 0.025). It adds in another order, so the
// last bit of a double may differ.
TEST(LinearQuadraticSigmas, MatchTheReference) {
  const auto near = [](const std::vector<double>& values) {
    return ::testing::Pointwise(::testing::DoubleNear(1e-15), values);
  };
  EXPECT_THAT(linear_quadratic_sigmas(2, 0.025), near({1, 0.975}));
  EXPECT_THAT(linear_quadratic_sigmas(3, 0.025), near({1, 0.975, 0.71875}));
  EXPECT_THAT(linear_quadratic_sigmas(8, 0.025), near({1, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875}));
  EXPECT_THAT(linear_quadratic_sigmas(1, 0.025), ElementsAre(1)) << "where the reference divides by zero";
}

TEST(LinearQuadraticSigmas, AreAcceptedByEulerAndUniPc) {
  for (SchedulerConfig config : {kEuler, kUniPc}) {
    for (const int64_t steps : {1, 2, 64, 1000}) {
      config.sigmas = linear_quadratic_sigmas(steps, 0.025);
      EXPECT_THAT(make_sampler(config, steps)->timesteps(), SizeIs(steps));
    }
  }
}

TEST(Sampler, NamesTheInvalidField) {
  for (const SchedulerConfig& config : {kDdim, kDpm, kEuler, kUniPc}) {
    EXPECT_THAT(complaint(config, 0), HasSubstr("steps is 0"));
    EXPECT_THAT(complaint(config, 1001), AllOf(HasSubstr("steps is 1001"), HasSubstr("num_train_timesteps 1000")));
  }
  const auto with = [](const std::function<void(SchedulerConfig&)>& change) {
    SchedulerConfig config = kDpm;
    change(config);
    return complaint(config);
  };
  EXPECT_THAT(with([](auto& c) { c.timestep_spacing = "leading", c.steps_offset = 300; }), HasSubstr("timestep 1050"));
  EXPECT_THAT(with([](auto& c) { c.prediction_type = "epsilon"; }), HasSubstr("rescale_betas_zero_snr"));
}

TEST(Sampler, RefusesAFlowShiftThatMergesNoiseLevels) {
  SchedulerConfig config = kUniPc;
  config.flow_shift = 1e6;
  EXPECT_THAT(complaint(config), AllOf(HasSubstr("flow_shift 1e+06 "), HasSubstr("4 steps")));
  config.flow_shift = 12;
  EXPECT_EQ(complaint(config, 1000), "none");
}

class SamplerStep : public ::testing::Test {
 protected:
  c10::InferenceMode inference_;
  at::Generator generator_ = at::make_generator<at::CPUGeneratorImpl>(3);
  at::Tensor sample_ = at::linspace(-1, 1, 48, at::kFloat).reshape({1, 2, 2, 3, 4});
  at::Tensor prediction_ = sample_ * 0.5;
};

TEST_F(SamplerStep, DrawsNoNoiseInDeterministicSamplers) {
  for (const SchedulerConfig& config : {kDdim, kEuler, kUniPc}) {
    make_sampler(config, 4)->step(prediction_, 0, sample_, generator_);
    EXPECT_EQ(draws_made(generator_, 3, sample_.sizes()), 0) << static_cast<int>(config.kind);
  }
}

TEST_F(SamplerStep, DrawsTwiceForDpmExceptAtFirstAndLastStep) {
  const auto sampler = make_sampler(kDpm, 3);
  const std::vector<int64_t> expected = {1, 2, 1};
  for (int64_t i = 0; i < 3; ++i) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
    sampler->step(prediction_, i, sample_, generator);
    EXPECT_EQ(draws_made(generator, 3, sample_.sizes()), expected[i]) << "step " << i;
  }
}

TEST_F(SamplerStep, EndsDdimAtThePredictedCleanSample) {
  SchedulerConfig config = kDdim;
  config.prediction_type = "sample";
  const auto sampler = make_sampler(config, 4);
  EXPECT_TRUE(sampler->step(prediction_, 3, sample_, generator_).allclose(prediction_));
}

TEST_F(SamplerStep, ReturnsFp32ForSixteenBitSamples) {
  for (const SchedulerConfig& config : {kDdim, kDpm}) {
    const at::Tensor next = make_sampler(config, 4)->step(prediction_, 0, sample_.to(at::kBFloat16), generator_);
    EXPECT_EQ(next.scalar_type(), at::kFloat);
  }
}

TEST_F(SamplerStep, KeepsUniPcLatentsInFp32ForSixteenBitPredictions) {
  const at::Tensor half = prediction_.to(at::kBFloat16);
  EXPECT_EQ(make_sampler(kUniPc, 4)->step(half, 0, sample_, generator_).scalar_type(), at::kFloat);
  EXPECT_EQ(make_sampler(kEuler, 4)->step(half, 0, sample_, generator_).scalar_type(), at::kBFloat16);
}

// The predictions are the exact slope of the straight line from the noise to the clean sample. So any number of steps
// must end at the clean sample.
TEST_F(SamplerStep, ReachesTheEndOfAStraightFlow) {
  const at::Tensor clean = sample_.square();
  for (const SchedulerConfig& config : {kEuler, kUniPc}) {
    for (const int64_t steps : {1, 2, 3, 8}) {
      const auto sampler = make_sampler(config, steps);
      at::Tensor x = sample_;
      for (int64_t i = 0; i < steps; ++i) x = sampler->step(sample_ - clean, i, x, generator_);
      EXPECT_TRUE(x.allclose(clean, 0, 1e-5)) << static_cast<int>(config.kind) << ", " << steps << " steps";
    }
  }
}

TEST_F(SamplerStep, SavesTheLastPredictionForDpm) {
  const auto sampler = make_sampler(kDpm, 4);
  EXPECT_THAT(sampler->state(), IsEmpty());
  sampler->step(prediction_, 0, sample_, generator_);
  EXPECT_EQ(sampler->state().at("old_pred_original_sample").sizes(), sample_.sizes());
  sampler->restore({});
  EXPECT_THAT(sampler->state(), IsEmpty());
}

TEST_F(SamplerStep, SavesHistoryForUniPc) {
  const auto sampler = make_sampler(kUniPc, 4);
  EXPECT_THAT(sampler->state(), IsEmpty());
  sampler->step(prediction_, 0, sample_, generator_);
  EXPECT_THAT(sampler->state(), SizeIs(2));
  sampler->step(prediction_, 1, sample_, generator_);
  EXPECT_THAT(sampler->state(), SizeIs(3));
  sampler->restore({});
  EXPECT_THAT(sampler->state(), IsEmpty());
}

TEST_F(SamplerStep, RepeatsAStepAfterARestore) {
  for (const SchedulerConfig& config : {kDdim, kDpm, kEuler, kUniPc}) {
    const auto sampler = make_sampler(config, 4);
    at::Tensor x = sample_;
    for (int64_t i = 0; i < 4; ++i) {
      const auto state = sampler->state();
      at::Generator before = generator_.clone();
      const at::Tensor once = sampler->step(prediction_, i, x, generator_);
      sampler->restore(state);
      EXPECT_TRUE(sampler->step(prediction_, i, x, before).equal(once))
          << static_cast<int>(config.kind) << ", step " << i;
      x = once;
    }
  }
}

TEST_F(SamplerStep, GivesTheSameResultIfNoiseIsDrawnAhead) {
  for (const SchedulerConfig& config : {kDdim, kDpm, kEuler, kUniPc, kAncestral}) {
    for (const int64_t most : {0, 1, 2, 9}) {  // number of draws ahead before every second step
      SCOPED_TRACE(testing::Message() << static_cast<int>(config.kind) << ", " << most << " ahead");
      const auto ahead = make_sampler(config, 6), plain = make_sampler(config, 6);
      at::Generator one = generator_.clone(), other = generator_.clone();
      at::Tensor x = sample_, y = sample_;
      for (int64_t i = 0; i < 6; ++i) {
        for (int64_t drawn = 0; i % 2 == 0 && drawn < most; ++drawn) ahead->draw_ahead(i, x, one);
        x = ahead->step(prediction_, i, x, one);
        y = plain->step(prediction_, i, y, other);
        EXPECT_TRUE(x.equal(y)) << "step " << i;
        EXPECT_TRUE(one.get_state().equal(other.get_state())) << "behind step " << i;
      }
    }
  }
}

TEST_F(SamplerStep, DrawsAheadOnlyUpToTheLastStep) {
  EXPECT_FALSE(make_sampler(kDdim, 4)->draw_ahead(0, sample_, generator_)) << "which draws nothing";
  const auto sampler = make_sampler(kDpm, 4);
  EXPECT_TRUE(sampler->draw_ahead(1, sample_, generator_));
  EXPECT_TRUE(sampler->draw_ahead(1, sample_, generator_));
  EXPECT_FALSE(sampler->draw_ahead(1, sample_, generator_)) << "the last of three";
  EXPECT_FALSE(sampler->draw_ahead(1, sample_, generator_));
  EXPECT_EQ(draws_made(generator_, 3, sample_.sizes()), 0) << "no step was taken";
}

TEST_F(SamplerStep, DiscardsNoiseDrawnAheadOnRestore) {
  const auto sampler = make_sampler(kDpm, 4);
  at::Generator other = at::make_generator<at::CPUGeneratorImpl>(4), same = other.clone();
  sampler->draw_ahead(0, sample_, generator_);
  sampler->restore({});
  EXPECT_TRUE(
      sampler->step(prediction_, 0, sample_, other).equal(make_sampler(kDpm, 4)->step(prediction_, 0, sample_, same)));
}

TEST_F(SamplerStep, RefusesForeignOrMissingHistory) {
  EXPECT_THROW(make_sampler(kDdim, 4)->restore({{"old_pred_original_sample", sample_}}), Error);
  EXPECT_THROW(make_sampler(kDpm, 4)->restore({{"order", sample_}}), Error);
  EXPECT_THROW(make_sampler(kDpm, 4)->step(prediction_, 2, sample_, generator_), Error);

  EXPECT_THROW(make_sampler(kEuler, 4)->restore({{"last_sample", sample_}}), Error);
  EXPECT_THROW(make_sampler(kUniPc, 4)->restore({{"old_pred_original_sample", sample_}}), Error);
  EXPECT_THROW(make_sampler(kUniPc, 4)->step(prediction_, 1, sample_, generator_), Error);
  const auto sampler = make_sampler(kUniPc, 4);
  sampler->restore({{"last_sample", sample_}, {"last_clean", sample_}});
  EXPECT_THROW(sampler->step(prediction_, 2, sample_, generator_), Error);
  EXPECT_NO_THROW(sampler->step(prediction_, 1, sample_, generator_));
}

}  // namespace
}  // namespace sparsereel::models
