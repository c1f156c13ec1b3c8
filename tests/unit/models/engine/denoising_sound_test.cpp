// Tests denoising a video together with its sound, each with its own timesteps and sampler. Also tests NaN in the
// sound, and saved states.
#include "models/engine/denoising.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/state_parts.h"
#include "models/samplers/make_sampler.h"

namespace sparsereel::models {
namespace {

using attention::Mode;
using ::testing::ElementsAreArray;

constexpr int64_t kSteps = 4;

/// A made-up transformer whose predictions depend on video and sound. It records the timesteps of both. In the step
/// `faulty_step`, its prediction for the sound contains NaN unless attention is full.
class SoundingTransformer final : public LoadedTransformer {
 public:
  explicit SoundingTransformer(int64_t faulty_step = -1) : faulty_step_(faulty_step) {}

  at::Tensor forward(const at::Tensor&, const Conditioning&, const at::Tensor&, AttentionRun&, StepCache*) override {
    throw run_failure("the sound is missing", "call predict()");
  }
  Prediction predict(const TransformerInput& input, AttentionRun& run, StepCache*) override {
    run.per_layer.resize(1);
    video_times.push_back(input.timesteps.item<double>());
    sound_times.push_back(input.sound_timesteps.item<double>());
    Prediction prediction = {.video = input.latents * 0.5 + input.sound.mean(),
                             .sound = input.sound * -0.25 + input.latents.mean()};
    if (run.step == faulty_step_ && run.mode != Mode::full) prediction.sound.view({-1})[3] = std::nanf("");
    return prediction;
  }
  void prepare(const StepTimes& times) override { prepared = times; }
  void collect(AttentionRun& run) override { run.statistics = {}; }
  uint64_t weight_bytes() const override { return 0; }

  std::vector<double> video_times, sound_times;
  StepTimes prepared;

 private:
  int64_t faulty_step_;
};

SchedulerConfig scheduler(double shift) {
  SchedulerConfig config;
  config.kind = SamplerKind::flow_to_data;
  config.flow_shift = shift;
  return config;
}

class SoundDenoising : public ::testing::Test {
 protected:
  std::unique_ptr<Denoising> start(int64_t faulty_step = -1) {
    transformer_ = std::make_shared<SoundingTransformer>(faulty_step);
    auto experts = std::make_shared<Experts>(
        ModelSpec{}, at::kCPU, [transformer = transformer_](const std::string&) { return transformer; },
        [](const std::string&) { return true; });
    Plan plan;
    plan.attention_mode = Mode::sparse;
    plan.num_inference_steps = kSteps;
    plan.guidance_scale = 1;
    plan.latent.frames = 2;
    DenoisingStart start = {.conditioning = {at::zeros({1, 3, 4})},
                            .latents = video_,
                            .generator = at::make_generator<at::CPUGeneratorImpl>(1),
                            .layout = LatentLayout::channels_first,
                            .sound = sound_,
                            .sound_scheduler = scheduler(3)};
    return std::make_unique<Denoising>(std::move(experts), scheduler(12), plan, std::move(start));
  }

  static void finish(Denoising& denoising) {
    while (!denoising.finished()) denoising.step();
  }

  c10::InferenceMode inference_;
  at::Tensor video_ = at::randn({1, 4, 2, 2, 2}), sound_ = at::randn({1, 6, 5});
  std::shared_ptr<SoundingTransformer> transformer_;
};

TEST_F(SoundDenoising, StepsVideoAndSoundByTheirOwnSchedules) {
  const auto denoising = start();
  finish(*denoising);
  const auto of_video = make_sampler(scheduler(12), kSteps), of_sound = make_sampler(scheduler(3), kSteps);
  EXPECT_THAT(transformer_->prepared.video, ElementsAreArray(of_video->timesteps()));
  EXPECT_THAT(transformer_->prepared.sound, ElementsAreArray(of_sound->timesteps()));
  at::Tensor video = video_, sound = sound_;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto index = static_cast<size_t>(step);
    EXPECT_FLOAT_EQ(transformer_->video_times[index], of_video->timesteps()[index]);
    EXPECT_FLOAT_EQ(transformer_->sound_times[index], of_sound->timesteps()[index]);
    const at::Tensor to_video = video * 0.5 + sound.mean(), to_sound = sound * -0.25 + video.mean();
    video = of_video->step(to_video, step, video, {});
    sound = of_sound->step(to_sound, step, sound, {});
  }
  EXPECT_TRUE(denoising->latents().equal(video));
  EXPECT_TRUE(denoising->sound().equal(sound));
}

TEST_F(SoundDenoising, RedoesAStepWhoseSoundHoldsNaN) {
  const auto whole = start();
  finish(*whole);
  const auto redone = start(2);
  finish(*redone);
  EXPECT_THAT(redone->attention().redone_steps, ::testing::ElementsAre(2));
  EXPECT_TRUE(redone->sound().equal(whole->sound()));
  EXPECT_TRUE(redone->latents().equal(whole->latents()));
}

TEST_F(SoundDenoising, ResumesFromASavedStateWithTheSound) {
  const auto whole = start();
  whole->step();
  const StateParts parts = parts_of(whole->state());
  finish(*whole);
  const auto resumed = start();
  resumed->resume(state_of(parts, {}));
  EXPECT_EQ(resumed->done(), 1);
  finish(*resumed);
  EXPECT_TRUE(resumed->latents().equal(whole->latents()));
  EXPECT_TRUE(resumed->sound().equal(whole->sound()));
}

TEST_F(SoundDenoising, RefusesAStateWithoutTheSound) {
  const auto denoising = start();
  denoising->step();
  DenoisingState state = denoising->state();
  state.sound = at::Tensor();
  EXPECT_THROW(start()->resume(state), Error);
  state.sound = at::zeros({1, 4, 5});
  EXPECT_THROW(start()->resume(state), Error);
}

}  // namespace
}  // namespace sparsereel::models
