// Compares first-block caching with diffusers', whose decisions and latents after every step come from
// make_step_cache.py and make_open_sora_plan_runs.py. Also tests what a cache must not change.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "models/engine/denoising.h"
#include "models/engine/text_stage.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kStepTolerance = 1e-4;

class StepCacheParity : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  StepCacheParity() {
    const nlohmann::json& content = GetParam().content;
    const std::string folder = GetParam().family->folder + content.value("folder", "pipeline");
    pipeline_ = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/" + folder, "cpu", "fp32");
    request_.prompt = content["prompt"];
    request_.negative_prompt = content["negative_prompt"];
    request_.seed = content["seed"];
    request_.num_inference_steps = content["num_inference_steps"].get<int64_t>();
    request_.max_sequence_length = content["max_sequence_length"].get<int64_t>();
    request_.width = content["width"].get<int64_t>();
    request_.height = content["height"].get<int64_t>();
    request_.num_frames = content["num_frames"].get<int64_t>();
    if (content.contains("guidance_scale")) request_.guidance_scale = content["guidance_scale"].get<double>();
    request_.cache.threshold = content["cache"];
    request_.attention_mode = attention::Mode::full;
  }
  std::unique_ptr<Denoising> start() {
    const Plan plan = pipeline_->resolve(request_, /*decode=*/false);
    return pipeline_->start_denoising(plan, pipeline_->text_stage().encode(plan));
  }
  void check_resuming();
  static at::Tensor finish(Denoising& denoising) {
    while (!denoising.finished()) denoising.step();
    return denoising.latents();
  }

  c10::InferenceMode mode_;
  std::shared_ptr<Pipeline> pipeline_;
  Request request_;
};

TEST_P(StepCacheParity, ReusesTheSameStepsToTheSameLatents) {
  const at::Tensor expected = test::Golden(GetParam().family->folder + "step_cache_golden")[GetParam().name];
  const auto denoising = start();
  for (int64_t step = 0; step < denoising->steps(); ++step) {
    denoising->step();
    EXPECT_TRUE(test::close_to(denoising->latents(), expected.narrow(0, step, 1), kStepTolerance)) << step;
  }
  EXPECT_THAT(reused_steps(denoising->attention()),
              ElementsAreArray(GetParam().content["reused"].get<std::vector<int64_t>>()));
}

void StepCacheParity::check_resuming() {
  const auto whole = start();
  std::vector<DenoisingState> states = {whole->state()};
  while (!whole->finished()) {
    whole->step();
    states.push_back(whole->state());
  }
  for (const DenoisingState& state : states) {
    const auto resumed = start();
    resumed->resume(state);
    EXPECT_TRUE(finish(*resumed).equal(whole->latents())) << state.step;
    EXPECT_EQ(reused_steps(resumed->attention()), reused_steps(whole->attention())) << state.step;
  }
}

TEST_P(StepCacheParity, ResumesAfterAnyStepToTheSameBytes) {
  const double threshold = request_.cache.threshold;
  for (const CacheRule& rule :
       {CacheRule{.threshold = threshold}, CacheRule{.kind = CacheKind::forecast, .threshold = threshold},
        CacheRule{.kind = CacheKind::steps, .steps = 5}}) {
    for (const GuidancePasses passes : {GuidancePasses::batched, GuidancePasses::in_turn}) {
      request_.cache = rule;
      request_.guidance_passes = passes;
      check_resuming();
    }
  }
}

TEST_P(StepCacheParity, SharesNothingBetweenVideosOfOneProcess) {
  const at::Tensor alone = finish(*start());
  const auto one = start();
  request_.seed += 1;
  const auto other = start();
  for (int64_t step = 0; step < one->steps(); ++step) {
    one->step();
    other->step();
  }
  EXPECT_TRUE(one->latents().equal(alone));
}

TEST_P(StepCacheParity, ReusesNothingWithAThresholdOfZero) {
  request_.cache = {};
  const auto none = start();
  const at::Tensor expected = finish(*none);
  EXPECT_THAT(reused_steps(none->attention()), IsEmpty());
  EXPECT_THAT(none->state().cache, IsEmpty());
  request_.cache.threshold = 1e-30;  // a cache that never finds a step close enough to reuse
  const auto never = start();
  never->step();
  EXPECT_TRUE(never->state().cache.contains("first"));
  EXPECT_TRUE(finish(*never).equal(expected));
}

TEST_P(StepCacheParity, ReusesWholeStepsIfPassesRunInTurn) {
  for (const GuidancePasses passes : {GuidancePasses::batched, GuidancePasses::in_turn}) {
    request_.guidance_passes = passes;
    request_.cache.threshold = 1e30;  // reuses every step except an expert's first
    const auto denoising = start();
    finish(*denoising);
    const size_t steps = static_cast<size_t>(denoising->steps());
    EXPECT_THAT(reused_steps(denoising->attention()), SizeIs(steps - pipeline_->spec().experts.size()));
  }
}

TEST_P(StepCacheParity, ForecastsAllStepsBeyondAGivenNumber) {
  const auto run = [this](const CacheRule& rule) {
    request_.cache = rule;
    auto denoising = start();
    finish(*denoising);
    return denoising;
  };
  const auto all = run({.kind = CacheKind::forecast, .threshold = 1e30});  // reuses every step except an expert's first
  const auto one = run({.kind = CacheKind::steps, .steps = 1});
  const std::vector<int64_t> reusable = reused_steps(all->attention());
  EXPECT_EQ(reused_steps(one->attention()), reusable);
  EXPECT_TRUE(one->latents().equal(all->latents()));
  std::vector<int64_t> expected;
  std::ranges::set_intersection(std::vector<int64_t>{1, 2, 4, 5, 7, 9, 10}, reusable, std::back_inserter(expected));
  const auto five = run({.kind = CacheKind::steps, .steps = 5});
  EXPECT_EQ(reused_steps(five->attention()), expected);
  EXPECT_TRUE(run({.kind = CacheKind::steps, .steps = 12})->latents().equal(run({})->latents()));
}

INSTANTIATE_TEST_SUITE_P(Families, StepCacheParity, ::testing::ValuesIn(test::parity_cases("step_cache_cases.json")),
                         test::case_name);

}  // namespace
}  // namespace sparsereel::models
