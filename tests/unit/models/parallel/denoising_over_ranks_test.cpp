// Tests that denoising on up to four ranks gives the same latents, cache decisions and state as on one rank.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/denoising.h"
#include "models/parallel/thread_group.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/toy/toy_transformer.h"

namespace sparsereel::models {
namespace {

using attention::Mode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct DenoisingCase {
  std::string name;
  bool guided = true;
  GuidancePasses passes = GuidancePasses::batched;
  CacheRule cache{};
  Mode mode = Mode::full;
  int64_t height = 3;  // height of the video in patches
};

/// The toy transformer with 5 heads. In the step `faulty_step`, its prediction contains NaN unless attention is full.
class FaultyToyTransformer final : public LoadedTransformer {
 public:
  explicit FaultyToyTransformer(int64_t faulty_step) : faulty_step_(faulty_step) {
    test::ToyConfig config;
    config.heads = 5;
    Component component;
    component.random_seed = 5;
    toy_ = loaded_transformer(std::make_unique<test::ToyTransformer>(config), component, at::kCPU, at::kFloat);
  }
  at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor& timesteps,
                     AttentionRun& run, StepCache* cache) override {
    at::Tensor prediction = toy_->forward(latents, conditioning, timesteps, run, cache).contiguous();
    if (run.step == faulty_step_ && run.mode != Mode::full) prediction.view({-1})[3] = std::nanf("");
    return prediction;
  }
  void collect(AttentionRun& run) override { toy_->collect(run); }
  uint64_t weight_bytes() const override { return toy_->weight_bytes(); }

 private:
  int64_t faulty_step_;
  std::unique_ptr<LoadedTransformer> toy_;
};

constexpr int64_t kSteps = 6;

/// Starts a video of 3 x height x 5 tokens.
std::unique_ptr<Denoising> start(const DenoisingCase& how, Group* group, int64_t faulty_step = -1) {
  Plan plan;
  plan.attention_mode = how.mode;
  plan.attention_policy.selection_rows = 64;
  plan.attention_policy.defaults.topk = 0.3;
  plan.cache = how.cache;
  plan.guidance_passes = how.passes;
  plan.num_inference_steps = kSteps;
  plan.guidance_scale = how.guided ? 3 : 1;
  plan.latent.frames = 3;
  SchedulerConfig config;
  config.kind = SamplerKind::unipc;
  const auto transformer = std::make_shared<FaultyToyTransformer>(faulty_step);
  auto experts = std::make_shared<Experts>(
      ModelSpec{}, at::kCPU, [transformer](const std::string&) { return transformer; },
      [](const std::string&) { return true; });
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const auto draw = [&](at::IntArrayRef shape) {
    return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
  };
  const test::ToyConfig toy;
  const at::Tensor latents = draw({1, toy.channels, 3 * toy.patch[0], how.height * toy.patch[1], 5 * toy.patch[2]});
  const at::Tensor text = draw({how.guided ? 2 : 1, 4, toy.text_dim});
  return std::make_unique<Denoising>(std::move(experts), config, plan,
                                     DenoisingStart{.conditioning = {.text = text},
                                                    .latents = latents,
                                                    .generator = generator,
                                                    .layout = LatentLayout::channels_first,
                                                    .group = group});
}

/// The results of denoising on one rank.
struct RankResult {
  at::Tensor latents;
  std::vector<DenoisingState> states;  // the states before each step
  AttentionRun run;
  std::vector<std::string> warnings;
};

RankResult finish(Denoising& denoising) {
  RankResult end;
  while (!denoising.finished()) {
    end.states.push_back(denoising.state());
    denoising.step();
  }
  end.latents = denoising.latents();
  end.run = denoising.attention();
  end.warnings = denoising.warnings();
  return end;
}

/// Denoises on `ranks` ranks, or without a group if `ranks` is 0. Starts from the state `resume`, unless it is null.
/// With several ranks, only rank 1 has the fault in step `faulty_step`. Returns the result of rank 0.
RankResult make(const DenoisingCase& how, int64_t ranks, const DenoisingState* resume = nullptr,
                int64_t faulty_step = -1) {
  RankResult first;
  const auto body = [&](Group* group) {
    const c10::InferenceMode inference;
    at::set_num_threads(1);
    const auto denoising = start(how, group, group == nullptr || group->rank() == 1 ? faulty_step : -1);
    if (resume != nullptr) denoising->resume(*resume);
    RankResult end = finish(*denoising);
    if (group == nullptr || group->rank() == 0) first = std::move(end);
  };
  if (ranks == 0)
    body(nullptr);
  else
    run_in_threads(ranks, [&](Group& group) { body(&group); });
  return first;
}

class DenoisingOverRanks : public ::testing::TestWithParam<DenoisingCase> {};

TEST_P(DenoisingOverRanks, MatchesTheLatentsOfOneRank) {
  const RankResult alone = make(GetParam(), 0);
  EXPECT_EQ(reused_steps(alone.run).empty(), !GetParam().cache.on());
  for (const int64_t ranks : {1, 2, 3, 4}) {
    const RankResult shared = make(GetParam(), ranks);
    EXPECT_TRUE(test::close_to(shared.latents, alone.latents, 1e-4)) << ranks;
    EXPECT_EQ(reused_steps(shared.run), reused_steps(alone.run)) << ranks;
    EXPECT_EQ(shared.run.statistics.total_blocks, alone.run.statistics.total_blocks);
    EXPECT_EQ(shared.run.statistics.kept_blocks, alone.run.statistics.kept_blocks);
    ASSERT_THAT(shared.run.kept_by_rank, SizeIs(static_cast<size_t>(ranks)));
    int64_t kept = 0;
    for (const int64_t blocks : shared.run.kept_by_rank) kept += blocks;
    EXPECT_EQ(kept, shared.run.statistics.kept_blocks);
  }
}

TEST_P(DenoisingOverRanks, MatchesTheStateOfOneRank) {
  const std::vector<DenoisingState> alone = make(GetParam(), 0).states, shared = make(GetParam(), 4).states;
  ASSERT_EQ(shared.size(), alone.size());
  for (size_t step = 0; step < alone.size(); ++step) {
    EXPECT_TRUE(test::close_to(shared[step].latents, alone[step].latents, 1e-4)) << step;
    ASSERT_EQ(shared[step].cache.size(), alone[step].cache.size()) << step;
    for (const auto& [name, tensor] : alone[step].cache) {
      const at::Tensor& found = shared[step].cache.at(name);
      ASSERT_EQ(found.sizes(), tensor.sizes()) << name;
      EXPECT_TRUE(test::close_to(found.to(at::kDouble), tensor.to(at::kDouble), 1e-3)) << name << step;
    }
  }
}

TEST_P(DenoisingOverRanks, ResumesWithAnotherNumberOfRanks) {
  const RankResult alone = make(GetParam(), 0);
  const DenoisingState of_three = make(GetParam(), 3).states[3], of_four = make(GetParam(), 4).states[3];
  for (const DenoisingState* state : {&alone.states[3], &of_three, &of_four}) {
    for (const int64_t ranks : {0, 2, 3, 4}) {
      const RankResult end = make(GetParam(), ranks, state);
      EXPECT_TRUE(test::close_to(end.latents, alone.latents, 1e-4)) << ranks;
      EXPECT_EQ(reused_steps(end.run), reused_steps(alone.run)) << ranks;
    }
  }
}

std::vector<DenoisingCase> denoising_cases() {
  std::vector<DenoisingCase> all;
  const std::pair<std::string, CacheRule> caches[] = {{"", {}},
                                                      {"FirstBlock", {.threshold = 1.2}},
                                                      {"Forecast", {.kind = CacheKind::forecast, .threshold = 1.2}},
                                                      {"Measured", {.kind = CacheKind::measured, .threshold = 0.4}},
                                                      {"Steps", {.kind = CacheKind::steps, .steps = 3}}};
  for (const auto& [name, cache] : caches) {
    all.push_back({.name = "Unguided" + name, .guided = false, .cache = cache});
    all.push_back({.name = "Batched" + name, .cache = cache});
    all.push_back({.name = "InTurn" + name, .passes = GuidancePasses::in_turn, .cache = cache});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, DenoisingOverRanks, ::testing::ValuesIn(denoising_cases()),
                         [](const auto& test) { return test.param.name; });

/// Between the steps of this test, the first guidance pass changes little and the second one much. All ranks must
/// decide by the same pass as one rank does.
TEST(CacheOverRanks, DecidesForAllRanksByTheSamePassesAsOneRank) {
  for (const GuidancePasses passes : {GuidancePasses::batched, GuidancePasses::in_turn}) {
    run_in_threads(2, [&](Group& group) {
      const c10::InferenceMode inference;
      StepCache cache({.threshold = 0.1}, share_of(&group, 2), passes);
      cache.begin_step();
      cache.decide(at::ones({1, 4, 2}));
      cache.remember(at::ones({1, 4, 2}));
      cache.begin_step();
      cache.decide(at::full({1, 4, 2}, group.rank() == 0 ? 1.05 : 2));
      EXPECT_EQ(cache.reuses(), passes == GuidancePasses::in_turn) << group.rank();
    });
  }
}

/// Both guidance passes of this test change equally, but the forecast of the second one is wrong. All ranks must
/// measure the same passes as one rank does.
TEST(CacheOverRanks, MeasuresTheSamePassesAsOneRank) {
  for (const GuidancePasses passes : {GuidancePasses::batched, GuidancePasses::in_turn}) {
    run_in_threads(2, [&](Group& group) {
      const c10::InferenceMode inference;
      StepCache cache({.kind = CacheKind::measured, .threshold = 0.15}, share_of(&group, 2), passes);
      for (const double first : {8, 10}) {
        cache.begin_step();
        cache.decide(at::full({1, 4, 2}, first));
        cache.remember(at::full({1, 4, 2}, first == 10 && group.rank() == 1 ? 100. : 8.));
      }
      cache.begin_step();
      cache.decide(at::full({1, 4, 2}, 11.));
      EXPECT_EQ(cache.reuses(), passes == GuidancePasses::in_turn) << group.rank();
    });
  }
}

/// The video has 10 key blocks, so sparse attention can drop some.
TEST(SparseAttentionOverRanks, KeepsTheSameNumberOfBlocksAsOneRank) {
  for (const bool guided : {false, true}) {
    const DenoisingCase sparse{.name = {}, .guided = guided, .mode = Mode::sparse, .height = 42};
    const RankResult alone = make(sparse, 0);
    EXPECT_GT(alone.run.statistics.sparsity(), 0.3);
    for (const int64_t ranks : {2, 3, 4}) {
      const RankResult shared = make(sparse, ranks);
      for (size_t step = 0; step < alone.run.per_step.size(); ++step)
        for (size_t layer = 0; layer < alone.run.per_layer.size(); ++layer)
          EXPECT_EQ(shared.run.per_step[step][layer].kept_blocks, alone.run.per_step[step][layer].kept_blocks)
              << ranks << step << layer;
      EXPECT_TRUE(test::close_to(shared.latents, alone.latents, 1e-3)) << ranks;
    }
  }
}

TEST(NanOnOneRank, RedoesTheStepOnAllRanks) {
  for (const int64_t ranks : {2, 3, 4}) {
    const DenoisingCase sparse{.name = {}, .mode = Mode::sparse};
    const RankResult end = make(sparse, ranks, nullptr, /*faulty_step=*/2);
    EXPECT_THAT(end.run.redone_steps, ElementsAre(2)) << ranks;
    EXPECT_THAT(end.warnings, ElementsAre(HasSubstr("step 3 gave NaN or Inf")));
    EXPECT_TRUE(end.latents.isfinite().all().item<bool>());
  }
}

TEST(RanksWithDifferentLatents, AreDetected) {
  const auto differ = [] {
    run_in_threads(2, [](Group& group) {
      const c10::InferenceMode inference;
      const auto denoising = start({}, &group);
      denoising->step();
      if (group.rank() == 1) {
        DenoisingState state = denoising->state();
        state.latents.view({-1})[0] += 1;
        denoising->resume(state);
      } else {
        denoising->resume(denoising->state());
      }
      denoising->step();
    });
  };
  EXPECT_TRUE(test::throws_error(differ, {"the ranks' latents differ before step 2"}));
}

}  // namespace
}  // namespace sparsereel::models
