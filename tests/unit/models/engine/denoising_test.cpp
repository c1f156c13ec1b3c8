// Tests what happens if a denoising step fails, with transformers that fail on purpose: which steps are repeated, which
// change the state, and which are counted.
#include "models/engine/denoising.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "hilbert/error.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "models/transformer/context_keys.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using attention::Mode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Predicts the same in every attention mode. In one step, one value of the prediction is NaN or Inf unless attention
/// is full. With `full_fails`, it is NaN or Inf in full attention, too.
class FaultyTransformer final : public LoadedTransformer {
 public:
  FaultyTransformer(int64_t faulty_step, float fault, bool full_fails = false)
      : faulty_step_(faulty_step), fault_(fault), full_fails_(full_fails) {}

  at::Tensor forward(const at::Tensor& latents, const Conditioning&, const at::Tensor&, AttentionRun& run,
                     StepCache*) override {
    run.per_layer.resize(2);
    run.kernel = "of the test";
    for (attention::Statistics& layer : run.per_layer)
      layer += {.total_blocks = 10, .kept_blocks = run.mode == Mode::full ? 10 : 4, .calls = 1};
    at::Tensor prediction = latents * 0.5 + 0.1;
    if (run.step == faulty_step_ && (run.mode != Mode::full || full_fails_)) prediction.view({-1})[3] = fault_;
    return prediction;
  }
  void collect(AttentionRun& run) override { run.statistics = {}; }
  uint64_t weight_bytes() const override { return 0; }

 private:
  int64_t faulty_step_;
  float fault_;
  bool full_fails_;
};

/// Counts kept blocks in memory of its own, from which collect() fetches them, as GPU kernels do. Fails once in the
/// middle of a step.
class BreakingTransformer final : public LoadedTransformer {
 public:
  at::Tensor forward(const at::Tensor& latents, const Conditioning&, const at::Tensor&, AttentionRun& run,
                     StepCache*) override {
    run.per_layer.resize(1);
    run.per_layer[0].total_blocks += 10;
    device_kept_ += 4;
    if (run.step == 1 && !std::exchange(broken_, true)) throw run_failure("out of GPU memory", "");
    return latents * 0.5;
  }
  void collect(AttentionRun& run) override {
    run.per_layer.resize(1);
    run.per_layer[0].kept_blocks += std::exchange(device_kept_, 0);
  }
  uint64_t weight_bytes() const override { return 0; }

 private:
  int64_t device_kept_ = 0;
  bool broken_ = false;
};

/// Returns a prediction of a wrong shape when a step is repeated with full attention for the first time, so that the
/// sampler throws.
class MisshapenTransformer final : public LoadedTransformer {
 public:
  explicit MisshapenTransformer(int64_t faulty_step) : sound_(faulty_step, std::nanf("")), faulty_step_(faulty_step) {}

  at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor& timesteps,
                     AttentionRun& run, StepCache* cache) override {
    const at::Tensor prediction = sound_.forward(latents, conditioning, timesteps, run, cache);
    const bool now = run.step == faulty_step_ && run.mode == Mode::full && !std::exchange(broken_, true);
    return now ? at::cat({prediction, prediction, prediction}, 2) : prediction;
  }
  void collect(AttentionRun& run) override { sound_.collect(run); }
  uint64_t weight_bytes() const override { return 0; }

 private:
  FaultyTransformer sound_;
  int64_t faulty_step_;
  bool broken_ = false;
};

/// A transformer with two layers, whose second layer is skipped if the cache allows it. In one step this layer fails
/// once: it gives NaN, which the cache may remember, or throws an Error after it has changed the cache.
class CachingTransformer final : public LoadedTransformer {
 public:
  enum class Fault { none, nan, exception };
  CachingTransformer(Fault fault, int64_t faulty_step) : fault_(fault), faulty_step_(faulty_step) {}

  at::Tensor forward(const at::Tensor& latents, const Conditioning&, const at::Tensor&, AttentionRun& run,
                     StepCache* cache) override {
    run.per_layer.resize(2);
    ++run.per_layer[0].calls;
    const bool now = run.step == faulty_step_ && !std::exchange(broken_, true);
    // The second layer is computed in the first and the third of four steps; the others reuse its result.
    if (cache->undecided()) cache->decide(at::full({1, 1, 1}, run.step < 2 ? 1.0 : 2.0));
    at::Tensor rest = cache->reuses() ? cache->recall() : latents * 0.25;
    seen_ = rest;
    if (now && fault_ == Fault::nan) rest = rest * std::nanf("");
    if (!cache->reuses()) {
      cache->remember(rest);
      ++run.per_layer[1].calls;
    }
    if (now && fault_ == Fault::exception) throw run_failure("out of GPU memory", "");
    return latents * 0.5 + rest;
  }
  void collect(AttentionRun&) override {}
  uint64_t weight_bytes() const override { return 0; }
  /// Returns the number of owners, besides this transformer, of the tensor that the cache remembered or recalled last.
  size_t others_that_hold_it() const { return seen_.defined() ? seen_.use_count() - 1 : 0; }

 private:
  at::Tensor seen_;
  Fault fault_;
  int64_t faulty_step_;
  bool broken_ = false;
};

std::shared_ptr<Experts> one_expert(const std::shared_ptr<LoadedTransformer>& transformer) {
  return std::make_shared<Experts>(
      ModelSpec{}, at::kCPU, [transformer](const std::string&) { return transformer; },
      [](const std::string&) { return true; });
}

std::unique_ptr<Denoising> start(std::shared_ptr<Experts> experts, SamplerKind scheduler, Mode mode = Mode::sparse,
                                 CacheRule cache = {}, Conditioning conditioning = {at::zeros({2, 3, 4})}) {
  SchedulerConfig config;
  config.kind = scheduler;
  Plan plan;
  plan.attention_mode = mode;
  plan.cache = cache;
  plan.num_inference_steps = 4;
  plan.guidance_scale = 6;
  plan.guidance_scale_2 = 6;
  plan.latent.frames = 2;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::Tensor latents = at::randn({1, 2, 4, 2, 2}, generator, at::TensorOptions().dtype(at::kFloat));
  return std::make_unique<Denoising>(
      std::move(experts), config, plan,
      DenoisingStart{.conditioning = std::move(conditioning), .latents = latents, .generator = generator});
}

std::unique_ptr<Denoising> start(const std::shared_ptr<LoadedTransformer>& transformer, SamplerKind scheduler,
                                 Mode mode = Mode::sparse, CacheRule cache = {}) {
  return start(one_expert(transformer), scheduler, mode, cache);
}

at::Tensor finish(Denoising& denoising) {
  while (!denoising.finished()) denoising.step();
  return denoising.latents();
}

TEST(Denoising, KeepsKnownLatentsUnchanged) {
  const c10::InferenceMode inference;
  for (const SamplerKind scheduler : {SamplerKind::ddim, SamplerKind::dpm_solver, SamplerKind::unipc}) {
    Conditioning known = {at::zeros({2, 3, 4})};
    known.latents = at::full({1, 2, 4, 2, 2}, 0.25);
    known.mask = at::ones({1, 2, 1, 1, 1});
    const at::Tensor free = finish(*start(one_expert(std::make_shared<FaultyTransformer>(-1, 0.0F)), scheduler));
    known.mask.select(1, 0).zero_();
    const auto denoising =
        start(one_expert(std::make_shared<FaultyTransformer>(-1, 0.0F)), scheduler, Mode::sparse, {}, known);
    for (; !denoising->finished(); denoising->step())
      EXPECT_TRUE(denoising->latents().select(1, 0).eq(0.25).all().item<bool>()) << denoising->done();
    EXPECT_TRUE(denoising->latents().select(1, 0).eq(0.25).all().item<bool>());
    EXPECT_TRUE(denoising->latents().select(1, 1).equal(free.select(1, 1)));
  }
}

/// Uses all channels of its input, such as those of an image. Its prediction has only the channels of the noise.
class WideTransformer final : public LoadedTransformer {
 public:
  at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor&, AttentionRun& run,
                     StepCache*) override {
    run.per_layer.resize(1);
    inputs.push_back(latents.clone());
    EXPECT_FALSE(conditioning.latents.defined());
    return latents.narrow(2, 0, 4) * 0.5 + latents.narrow(2, 4, 3).mean(2, true);
  }
  void collect(AttentionRun&) override {}
  uint64_t weight_bytes() const override { return 0; }

  std::vector<at::Tensor> inputs;
};

TEST(Denoising, ConcatenatesLatentsWithoutAMaskToTheNoise) {
  const c10::InferenceMode inference;
  Conditioning beside = {at::zeros({2, 3, 4})};
  beside.latents = at::randn({1, 2, 3, 2, 2});
  const auto wide = std::make_shared<WideTransformer>();
  const auto denoising = start(one_expert(wide), SamplerKind::ddim, Mode::sparse, {}, beside);
  while (!denoising->finished()) {
    const at::Tensor latents = denoising->state().latents;
    EXPECT_EQ(latents.size(2), 4);
    denoising->step();
    EXPECT_TRUE(wide->inputs.back().equal(at::cat({latents, beside.latents}, 2).expand(wide->inputs.back().sizes())));
  }
}

/// In its first forward pass, makes keys and values of the context, unless they are stored already. Counts how often.
class ContextTransformer final : public LoadedTransformer {
 public:
  at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor&, AttentionRun& run,
                     StepCache*) override {
    run.per_layer.resize(1);
    conditioning.keys->of(0, [&] {
      ++made;
      return KeysAndValues{.k = conditioning.context, .v = conditioning.context};
    });
    return latents * 0.5;
  }
  void collect(AttentionRun&) override {}
  uint64_t weight_bytes() const override { return 0; }

  int made = 0;
};

TEST(Denoising, ComputesContextKeysOncePerExpert) {
  const c10::InferenceMode inference;
  Conditioning images = {at::zeros({2, 3, 4})};
  images.context = at::ones({1, 5, 4});
  const auto alone = std::make_shared<ContextTransformer>();
  const auto denoising = start(one_expert(alone), SamplerKind::unipc, Mode::sparse, {}, images);
  finish(*denoising);
  EXPECT_EQ(alone->made, 1);
  // Another video needs its own keys and values.
  finish(*start(one_expert(alone), SamplerKind::unipc, Mode::sparse, {}, images));
  EXPECT_EQ(alone->made, 2);
  ModelSpec spec;
  spec.experts = {{.role = "first", .from_share = 0.5}, {.role = "second", .from_share = 0}};
  const auto both = std::make_shared<ContextTransformer>();
  const auto experts = std::make_shared<Experts>(
      spec, at::kCPU, [&](const std::string&) { return both; }, [](const std::string&) { return true; });
  finish(*start(experts, SamplerKind::unipc, Mode::sparse, {}, images));
  EXPECT_EQ(both->made, 2);
}

class StepGuard : public ::testing::TestWithParam<SamplerKind> {
 protected:
  c10::InferenceMode mode_;
};

TEST_P(StepGuard, RedoesAFaultyStepWithFullAttentionBeforeCommittingIt) {
  const auto sound = start(std::make_shared<FaultyTransformer>(-1, 0.0F), GetParam());
  const at::Tensor expected = finish(*sound);
  EXPECT_THAT(sound->warnings(), IsEmpty());
  for (const float fault : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t step : {0, 2, 3}) {
      const auto denoising = start(std::make_shared<FaultyTransformer>(step, fault), GetParam());
      // The result is equal only if latents, the sampler's history and the generator are those of a run without fault.
      EXPECT_TRUE(finish(*denoising).equal(expected)) << step;
      ASSERT_THAT(denoising->warnings(), SizeIs(1));
      EXPECT_THAT(denoising->warnings()[0], HasSubstr("step " + std::to_string(step + 1) + " gave NaN or Inf"));
      EXPECT_THAT(denoising->attention().redone_steps, ElementsAre(step));
    }
  }
}

TEST_P(StepGuard, CountsOnlyCommittedAttempts) {
  const auto denoising = start(std::make_shared<FaultyTransformer>(1, std::nanf("")), GetParam());
  finish(*denoising);
  const AttentionRun& run = denoising->attention();
  ASSERT_THAT(run.per_step, SizeIs(4));
  for (size_t step = 0; step < 4; ++step) {
    ASSERT_THAT(run.per_step[step], SizeIs(2));
    EXPECT_DOUBLE_EQ(run.per_step[step][1].sparsity(), step == 1 ? 0 : 0.6) << step;
  }
  EXPECT_EQ(run.per_layer[0].calls, 4);
  EXPECT_DOUBLE_EQ(run.per_layer[0].sparsity(), 0.45);
  EXPECT_DOUBLE_EQ(run.statistics.sparsity(), 0.45);
}

TEST_P(StepGuard, DropsTheCountsOfAStepThatThrew) {
  const auto transformer = std::make_shared<BreakingTransformer>();
  const auto broken = start(transformer, GetParam()), next = start(transformer, GetParam());
  broken->step();
  EXPECT_THROW(broken->step(), Error);
  EXPECT_DOUBLE_EQ(broken->attention().statistics.sparsity(), 0.6);
  EXPECT_THAT(broken->attention().per_step, SizeIs(1));
  finish(*next);
  EXPECT_DOUBLE_EQ(next->attention().statistics.sparsity(), 0.6);
  finish(*broken);
  EXPECT_DOUBLE_EQ(broken->attention().statistics.sparsity(), 0.6);
}

TEST_P(StepGuard, RestoresStateIfTheSamplerThrows) {
  for (const int64_t step : {0, 2, 3}) {
    const auto sound = start(std::make_shared<FaultyTransformer>(step, std::nanf("")), GetParam());
    const at::Tensor expected = finish(*sound);
    const auto broken = start(std::make_shared<MisshapenTransformer>(step), GetParam());
    while (broken->done() < step) broken->step();
    const DenoisingState before = broken->state();
    const attention::Statistics counted = broken->attention().statistics;
    EXPECT_ANY_THROW(broken->step()) << step;
    EXPECT_EQ(broken->done(), step);
    EXPECT_TRUE(broken->latents().equal(before.latents)) << step;
    EXPECT_TRUE(broken->state().generator.equal(before.generator)) << step;
    EXPECT_EQ(broken->state().scheduler.size(), before.scheduler.size()) << step;
    EXPECT_THAT(broken->attention().per_step, SizeIs(static_cast<size_t>(step)));
    EXPECT_EQ(broken->attention().statistics.total_blocks, counted.total_blocks) << step;
    EXPECT_THAT(broken->attention().redone_steps, IsEmpty());
    EXPECT_THAT(broken->warnings(), IsEmpty());
    EXPECT_TRUE(finish(*broken).equal(expected)) << step;  // the repeated step has the same noise
    EXPECT_EQ(broken->attention().statistics.total_blocks, sound->attention().statistics.total_blocks) << step;
    EXPECT_EQ(broken->warnings(), sound->warnings());
  }
}

TEST_P(StepGuard, ResumesFromAnyStepWithTheSameLatentsAndCounts) {
  const auto whole = start(std::make_shared<FaultyTransformer>(1, std::nanf("")), GetParam());
  std::vector<DenoisingState> states = {whole->state()};
  while (!whole->finished()) {
    whole->step();
    states.push_back(whole->state());
  }
  for (const DenoisingState& state : states) {
    const auto denoising = start(std::make_shared<FaultyTransformer>(1, std::nanf("")), GetParam());
    denoising->resume(state);
    EXPECT_EQ(denoising->done(), state.step);
    EXPECT_TRUE(finish(*denoising).equal(whole->latents())) << state.step;
    const AttentionRun& run = denoising->attention();
    EXPECT_EQ(run.statistics.total_blocks, whole->attention().statistics.total_blocks) << state.step;
    EXPECT_EQ(run.statistics.kept_blocks, whole->attention().statistics.kept_blocks) << state.step;
    EXPECT_EQ(run.kernel, "of the test") << state.step;
    EXPECT_EQ(denoising->warnings(), whole->warnings());
  }
}

TEST_P(StepGuard, EndsTheRunIfFullAttentionFailsToo) {
  for (const Mode mode : {Mode::sparse, Mode::full}) {
    const auto denoising = start(std::make_shared<FaultyTransformer>(1, std::nanf(""), true), GetParam(), mode);
    denoising->step();
    const at::Tensor before = denoising->latents().clone();
    try {
      denoising->step();
      FAIL() << "committed a step with NaN";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      EXPECT_THAT(error.what(), HasSubstr("step 2"));
    }
    EXPECT_EQ(denoising->done(), 1);
    EXPECT_TRUE(denoising->latents().equal(before));
    EXPECT_THAT(denoising->attention().redone_steps, IsEmpty());
    EXPECT_THAT(denoising->warnings(), IsEmpty());
  }
}

class CachedDenoising : public StepGuard {
 protected:
  using Fault = CachingTransformer::Fault;
  std::unique_ptr<Denoising> begin(Fault fault, int64_t step, Mode mode = Mode::sparse) {
    return start(std::make_shared<CachingTransformer>(fault, step), GetParam(), mode, {.threshold = 0.5});
  }
};

TEST_P(CachedDenoising, RecordsWhichStepsWereReused) {
  const auto sound = begin(Fault::none, -1);
  finish(*sound);
  EXPECT_THAT(reused_steps(sound->attention()), ElementsAre(1, 3));
}

TEST_P(CachedDenoising, SavesTheCacheInTheStateUntilTheLastStep) {
  const auto sound = begin(Fault::none, -1);
  sound->step();
  EXPECT_TRUE(sound->state().cache.contains("first"));
  finish(*sound);
  EXPECT_FALSE(sound->state().cache.contains("first"));
}

TEST_P(CachedDenoising, RefusesAStateThatLacksCacheTensors) {
  const auto sound = begin(Fault::none, -1);
  sound->step();
  DenoisingState state = sound->state();
  state.cache.erase("rest.0");
  const auto other = begin(Fault::none, -1);
  const at::Tensor before = other->state().latents.clone();
  EXPECT_TRUE(test::throws_error([&] { other->resume(state); }, {"first-block:0.5 lacks rest.0"}));
  EXPECT_TRUE(other->state().latents.equal(before));
}

TEST_P(CachedDenoising, RedoesAFaultyReusedStepEvenWithFullAttention) {
  for (const Mode mode : {Mode::sparse, Mode::full}) {
    const auto denoising = begin(Fault::nan, 1, mode);
    EXPECT_TRUE(at::isfinite(finish(*denoising)).all().item<bool>());
    EXPECT_THAT(reused_steps(denoising->attention()), ElementsAre(3));
    EXPECT_THAT(denoising->attention().redone_steps, ElementsAre(1));
    ASSERT_THAT(denoising->warnings(), SizeIs(1));
    EXPECT_THAT(denoising->warnings()[0], HasSubstr("attention and a cache and was redone"));
  }
}

TEST_P(CachedDenoising, DoesNotCacheNaN) {
  const auto denoising = begin(Fault::nan, 2);
  EXPECT_TRUE(at::isfinite(finish(*denoising)).all().item<bool>());
  EXPECT_THAT(denoising->attention().redone_steps, ElementsAre(2));
  EXPECT_THAT(reused_steps(denoising->attention()), ElementsAre(1, 3));
}

TEST_P(CachedDenoising, FreesTheCacheBeforeLoadingAnotherExpert) {
  ModelSpec spec;
  spec.experts = {{.role = "first", .from_share = 0.5}, {.role = "second", .from_share = 0}};
  for (const bool loads_by_itself : {true, false}) {
    const auto transformer = std::make_shared<CachingTransformer>(Fault::none, -1);
    std::vector<size_t> holders;
    const auto load = [&](const std::string&) {
      holders.push_back(transformer->others_that_hold_it());
      return transformer;
    };
    const auto experts = std::make_shared<Experts>(spec, at::kCPU, load, [](const std::string&) { return true; });
    const auto denoising = start(experts, GetParam(), Mode::sparse, {.threshold = 0.5});
    while (!denoising->finished()) {
      if (!loads_by_itself) denoising->load_expert();
      denoising->step();
      if (holders.size() == 1) {
        EXPECT_GT(transformer->others_that_hold_it(), 0U);
      }
    }
    EXPECT_THAT(holders, ElementsAre(0, 0));
  }
}

TEST_P(CachedDenoising, RestoresTheCacheIfAStepThrows) {
  const auto sound = begin(Fault::none, -1);
  const at::Tensor expected = finish(*sound);
  for (const int64_t step : {0, 1, 2, 3}) {
    const auto broken = begin(Fault::exception, step);
    while (broken->done() < step) broken->step();
    const DenoisingState before = broken->state();
    EXPECT_ANY_THROW(broken->step());
    const DenoisingState after = broken->state();
    ASSERT_EQ(after.cache.size(), before.cache.size()) << step;
    for (const auto& [name, tensor] : before.cache) EXPECT_TRUE(after.cache.at(name).equal(tensor)) << name;
    EXPECT_TRUE(finish(*broken).equal(expected)) << step;
    EXPECT_THAT(reused_steps(broken->attention()), ElementsAre(1, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Samplers, CachedDenoising, ::testing::Values(SamplerKind::ddim, SamplerKind::dpm_solver),
                         [](const auto& each) { return each.param == SamplerKind::ddim ? "ddim" : "dpm_solver"; });

INSTANTIATE_TEST_SUITE_P(Samplers, StepGuard, ::testing::Values(SamplerKind::ddim, SamplerKind::dpm_solver),
                         [](const auto& each) { return each.param == SamplerKind::ddim ? "ddim" : "dpm_solver"; });

// Reused steps run only their first layer, and dense steps compute all blocks. Neither must count.
TEST(KeptShare, CountsOnlyStepsThatMaySkipBlocks) {
  const auto layer = [](int64_t kept) {
    return attention::Statistics{.total_blocks = 100, .kept_blocks = kept, .calls = 1};
  };
  AttentionRun run;
  run.mode = attention::Mode::sparse;
  run.policy.dense_steps = 1;
  EXPECT_EQ(kept_share(run), std::nullopt);
  run.per_step = {{layer(100), layer(100)}};
  EXPECT_EQ(kept_share(run), std::nullopt) << "a dense step";
  run.per_step.push_back({layer(90), {}});
  EXPECT_EQ(kept_share(run), std::nullopt) << "a reused step";
  run.per_step.push_back({layer(50), layer(30)});
  run.per_step.push_back({layer(90), {}});
  EXPECT_DOUBLE_EQ(kept_share(run).value(), 0.4);
}

}  // namespace
}  // namespace sparsereel::models
