// Tests models of two transformers (experts): which one denoises a timestep, which are in memory, and which guidance
// scale a step uses.
#include "models/engine/experts.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "models/engine/denoising.h"
#include "models/request/attention_run.h"
#include "models/request/resolve.h"
#include "models/store/weights/stoppable_work.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Optional;

/// A transformer that predicts `value` for the negative prompt and 2 * value for the prompt.
class ConstantTransformer final : public LoadedTransformer {
 public:
  explicit ConstantTransformer(double value) : value_(value) {}
  at::Tensor forward(const at::Tensor& latents, const Conditioning&, const at::Tensor&, AttentionRun&,
                     StepCache*) override {
    const at::Tensor scale = at::arange(1, latents.size(0) + 1, at::kFloat).view({-1, 1, 1, 1, 1});
    return at::full_like(latents, value_) * scale;
  }
  void collect(AttentionRun&) override {}
  uint64_t weight_bytes() const override { return 1; }

 private:
  double value_;
};

ModelSpec two_experts() {
  ModelSpec spec;
  spec.experts = {{.role = "transformer", .from_share = 0.5}, {.role = "transformer_2", .guidance = 3}};
  spec.samplers = {{.name = "euler", .class_name = "Euler", .kind = SamplerKind::flow_euler}};
  spec.defaults = {.width = 8, .height = 8, .frames = 1, .steps = 4, .guidance = 4, .sampler = "Euler"};
  spec.text_length = 4;
  spec.latent_channels = 1;
  return spec;
}

class ExpertsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Experts> experts() {
    return std::make_shared<Experts>(
        spec_, at::kCPU,
        [this](const std::string& role) {
          loads_.push_back(role);
          if (fails_ > 0 && fails_-- > 0) throw std::runtime_error("there is no memory for " + role);
          return std::make_shared<ConstantTransformer>(role == "transformer" ? 1 : 10);
        },
        [this](const std::string&) { return fits_; });
  }
  std::unique_ptr<Denoising> start(const std::shared_ptr<Experts>& experts) const {
    const Plan plan = resolve_request(request_, spec_);
    return std::make_unique<Denoising>(experts, scheduler_config(plan, spec_), plan,
                                       DenoisingStart{.conditioning = {at::zeros({2, 1, 1})},
                                                      .latents = at::zeros({1, 1, 1, 8, 8}),
                                                      .generator = at::make_generator<at::CPUGeneratorImpl>(1)});
  }

  c10::InferenceMode inference_;
  ModelSpec spec_ = two_experts();
  Request request_;
  std::vector<std::string> loads_;
  bool fits_ = true;
  int fails_ = 0;  // the next `fails_` loads throw
};

TEST_F(ExpertsTest, ChoosesTheExpertByTheTimestep) {
  const auto both = experts();
  EXPECT_EQ(both->at(999), 0U);
  EXPECT_EQ(both->at(500), 0U) << "from its end on";
  EXPECT_EQ(both->at(499.9), 1U);
  EXPECT_EQ(both->at(0), 1U);
}

TEST_F(ExpertsTest, KeepsBothExpertsIfMemoryAllows) {
  const auto both = experts();
  both->load(0), both->load(1), both->load(0);
  EXPECT_THAT(loads_, ElementsAre("transformer", "transformer_2"));
  EXPECT_NE(both->loaded(0), nullptr);
  EXPECT_NE(both->loaded(1), nullptr);
  both->release();
  EXPECT_FALSE(both->any_loaded());
}

TEST_F(ExpertsTest, ReleasesOneExpertBeforeLoadingTheOtherIfBothDoNotFit) {
  fits_ = false;
  const auto both = experts();
  both->load(0), both->load(1);
  EXPECT_EQ(both->loaded(0), nullptr);
  both->load(0);
  EXPECT_THAT(loads_, ElementsAre("transformer", "transformer_2", "transformer"));
}

TEST_F(ExpertsTest, LoadsAPrefetchedExpertOnce) {
  const auto both = experts();
  both->begin(0), both->begin(0);
  EXPECT_NE(both->loaded(0), nullptr);
  both->load(0);
  EXPECT_THAT(loads_, ElementsAre("transformer"));
}

TEST_F(ExpertsTest, ReleasesAPrefetchedExpert) {
  const auto both = experts();
  both->begin(0);
  both->release();
  EXPECT_FALSE(both->any_loaded());
}

TEST_F(ExpertsTest, RetriesAFailedPrefetchWhenTheExpertIsNeeded) {
  const auto both = experts();
  fails_ = 1;
  both->begin(0);
  EXPECT_EQ(both->loaded(0), nullptr);
  both->load(0);
  EXPECT_THAT(loads_, ElementsAre("transformer", "transformer"));
}

TEST_F(ExpertsTest, ThrowsIfTheRetryFailsToo) {
  const auto both = experts();
  fails_ = 2;
  both->begin(0);
  EXPECT_THROW(both->load(0), std::runtime_error);
}

/// The expert that is being prefetched takes 10 s to load. Destroying its owner must stop the load earlier.
TEST_F(ExpertsTest, StopsPrefetchingWhenDestroyed) {
  std::promise<void> begun;
  bool stopped = false;
  auto both = std::make_shared<Experts>(
      spec_, at::kCPU,
      [&](const std::string&) {
        begun.set_value();
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        try {
          while (std::chrono::steady_clock::now() < end) StoppableWork::throw_if_stopped();
        } catch (const WorkStopped&) {
          stopped = true;
          throw;
        }
        return std::make_shared<ConstantTransformer>(1);
      },
      [](const std::string&) { return true; });
  both->begin(0);
  begun.get_future().wait();
  both.reset();
  EXPECT_TRUE(stopped);
}

/// Each step adds (next sigma - sigma) * prediction to the latents. ConstantTransformer predicts `value` without and
/// 2 * value with the prompt, so guidance gives value * (1 + scale).
TEST_F(ExpertsTest, UsesTheExpertAndGuidanceScaleOfEachStep) {
  const auto denoising = start(experts());
  double x = 0;
  const std::vector<double> sigmas = {1, 0.667, 0.334, 0.001, 0};  // four equal distances, and 0 at the end
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(denoising->load_expert(), step == 0 || step == 2);
    denoising->step();
    const bool first = sigmas[step] >= 0.5;
    x += (sigmas[step + 1] - sigmas[step]) * (first ? 1 * (1 + 4) : 10 * (1 + 3));
    EXPECT_NEAR(denoising->latents().mean().item<double>(), x, 1e-4) << step;
  }
  EXPECT_THAT(loads_, ElementsAre("transformer", "transformer_2"));
  EXPECT_FALSE(denoising->load_expert()) << "finished";
}

TEST_F(ExpertsTest, ChoosesTheSecondScaleFromRequestThenFirstScaleThenModel) {
  EXPECT_THAT(resolve_request(request_, spec_).guidance_scale_2, Optional(DoubleEq(3)));
  request_.guidance_scale = 5;
  EXPECT_THAT(resolve_request(request_, spec_).guidance_scale_2, Optional(DoubleEq(5)));
  request_.guidance_scale_2 = 2;
  EXPECT_THAT(resolve_request(request_, spec_).guidance_scale_2, Optional(DoubleEq(2)));
  request_.guidance_scale_2 = -1;
  EXPECT_TRUE(test::throws_error([&] { resolve_request(request_, spec_); }, {"-1"}));
  request_.guidance_scale_2 = 2;
  spec_.experts.pop_back();
  EXPECT_EQ(resolve_request(request_, spec_).guidance_scale_2, std::nullopt) << "a model with one transformer";
}

}  // namespace
}  // namespace sparsereel::models
