// Compares each family's pipeline with its reference (diffusers, or Open-Sora-Plan's own code) on checkpoints of random
// weights. CogVideoX's comes from make_pipeline.py, those of other families from scripts such as make_wan_pipeline.py,
// LoRAs from scripts such as make_lora.py. The cases of the Python package come from compare_package.py.
#include "models/engine/pipeline.h"
#include "models/request/sampling.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/engine/denoising.h"
#include "models/engine/text_stage.h"
#include "models/request/denoising_state.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/checkpoint/family.h"
#include "tests/support/callback_observer.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"
#include "tests/support/pipeline_cases.h"

namespace sparsereel::models {
namespace {

using test::inputs_of;
using test::open;
using test::request_of;
using ::testing::HasSubstr;
using ::testing::Not;

// diffusers' frames change by more than 1e-6 with the number of threads.
constexpr double kTolerance = 1e-4;

class PipelineParity : public ::testing::TestWithParam<test::ParityCase> {};

TEST_P(PipelineParity, MatchesDiffusers) {
  const test::ParityCase& one = GetParam();
  const test::Golden golden(one.family->folder + "pipeline_golden");
  const Outcome result =
      open(*one.family, one.content)->generate(request_of(one.content), inputs_of(*one.family, one.content));
  EXPECT_TRUE(test::close_to(result.latents.video, golden[one.name + ".latents"], kTolerance));
  const at::Tensor sampled =
      result.frames.slice(0, 0, c10::nullopt, 4).slice(1, 0, c10::nullopt, 2).slice(2, 0, c10::nullopt, 2);
  EXPECT_TRUE(test::close_to(sampled, golden[one.name + ".frames"], kTolerance));
  EXPECT_EQ(result.latents.sound.defined(), golden.contains(one.name + ".sound_latents"));
  if (!result.latents.sound.defined()) return;
  EXPECT_TRUE(test::close_to(result.latents.sound, golden[one.name + ".sound_latents"], kTolerance));
  EXPECT_TRUE(test::close_to(result.sound.samples, golden[one.name + ".sound"], kTolerance));
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineParity, ::testing::ValuesIn(test::parity_cases("pipeline_cases.json")),
                         test::case_name);

class LoraParity : public ::testing::TestWithParam<test::ParityCase> {};

TEST_P(LoraParity, MatchesDiffusers) {
  const test::ParityCase& one = GetParam();
  Request request = request_of(one.content);
  Inputs inputs = inputs_of(*one.family, one.content);
  inputs.decode = false;
  const at::Tensor expected = test::Golden(one.family->folder + "lora_golden")[one.name + ".latents"];
  EXPECT_TRUE(
      test::close_to(open(*one.family, one.content)->generate(request, inputs).latents.video, expected, kTolerance));
  nlohmann::json without = one.content;
  without.erase("lora");
  const at::Tensor plain = open(*one.family, without)->generate(request, inputs).latents.video;
  EXPECT_FALSE(test::close_to(plain, expected, 100 * kTolerance)) << "the LoRA changes nothing";
}

INSTANTIATE_TEST_SUITE_P(Families, LoraParity, ::testing::ValuesIn(test::parity_cases("lora_cases.json")),
                         test::case_name);

/// Compares with diffusers' pipelines that use the Python package's attention in place of their own
/// (compare_package.py).
TEST(PackageParity, MatchesDiffusersWithThePythonPackage) {
  const test::Golden golden("package_golden");
  const test::ParityFamily no_family{};
  const nlohmann::json cases = test::read_data("package_cases.json");
  for (const auto& [name, content] : cases.items()) {
    const Outcome result = open(no_family, content)->generate(request_of(content), {.decode = false});
    EXPECT_TRUE(test::close_to(result.latents.video, golden[name + ".latents"], kTolerance)) << name;
    EXPECT_GT(result.attention.statistics.sparsity(), 0.2) << name;
  }
}

/// Tests that hold for every family. They run on one case of each family.
class FamilyPipeline : public ::testing::TestWithParam<test::ParityFamily> {
 protected:
  nlohmann::json content = test::usual_case(GetParam(), "pipeline_cases.json");
  Request request = request_of(content);
  std::shared_ptr<Pipeline> pipeline = open(GetParam(), content);
  Inputs inputs = inputs_of(GetParam(), content);
};

TEST_P(FamilyPipeline, GivesTheSameFramesInEveryTokenOrderUnderFullAttention) {
  const at::Tensor native = pipeline->generate(request, inputs).frames;
  for (const auto order : {hilbert::TokenOrder::hilbert, hilbert::TokenOrder::time_major, hilbert::TokenOrder::morton,
                           hilbert::TokenOrder::random}) {
    request.token_order = order;
    EXPECT_TRUE(test::close_to(pipeline->generate(request, inputs).frames, native, kTolerance)) << hilbert::name(order);
  }
}

TEST_P(FamilyPipeline, MatchesFullAttentionIfSparseAttentionKeepsEveryBlock) {
  const at::Tensor full = pipeline->generate(request, inputs).frames;
  request.attention_mode = attention::Mode::sparse;
  request.topk = 1.0;
  request.pv_threshold = 32;
  const Outcome sparse = pipeline->generate(request, inputs);
  EXPECT_TRUE(test::close_to(sparse.frames, full, kTolerance));
  EXPECT_GT(sparse.attention.statistics.calls, 0);
  EXPECT_EQ(sparse.attention.statistics.sparsity(), 0.0);
}

TEST_P(FamilyPipeline, GivesTheSameFramesOnlyForTheSameSeed) {
  const at::Tensor first = pipeline->generate(request, inputs).frames;
  EXPECT_TRUE(first.equal(pipeline->generate(request, inputs).frames));
  request.seed = 8;
  EXPECT_FALSE(first.equal(pipeline->generate(request, inputs).frames));
}

TEST_P(FamilyPipeline, ReusesEncodedConditioningForOtherSeeds) {
  const Plan plan = pipeline->resolve(request);
  Conditioning images;
  if (inputs.images.any()) pipeline->add_images(images, plan, inputs.images);
  pipeline->text_stage().load();
  Inputs known = {.decode = false};
  known.conditioning = pipeline->text_stage().encode(plan, /*warnings=*/nullptr, images.seen);
  known.conditioning.take_video(images);
  inputs.decode = false;
  for (const uint64_t seed : {request.seed, request.seed + 1}) {
    request.seed = seed;
    EXPECT_TRUE(
        pipeline->generate(request, known).latents.video.equal(pipeline->generate(request, inputs).latents.video))
        << seed;
  }
}

TEST_P(FamilyPipeline, ResumesToTheSameLatents) {
  inputs.decode = false;
  std::vector<DenoisingState> states;
  test::CallbackObserver observer;
  models::Run run;
  run.observer = &observer;
  run.checkpoints.every = 1;
  observer.on_checkpoint = [&](const DenoisingState& state) { states.push_back(state); };
  const at::Tensor whole = pipeline->generate(request, inputs, run).latents.video;
  ASSERT_GT(states.size(), 1U);
  inputs.resume = std::make_shared<DenoisingState>(states.front());
  EXPECT_TRUE(pipeline->generate(request, inputs).latents.video.equal(whole));
}

TEST_P(FamilyPipeline, DecodesSavedLatentsToTheSameFrames) {
  const Outcome result = pipeline->generate(request, inputs);
  const Decoded decoded = pipeline->decode(result.latents, VaeTiling::off);
  EXPECT_TRUE(decoded.frames.equal(result.frames));
  EXPECT_EQ(decoded.sound.samples.defined(), pipeline->spec().sound.any());
  if (decoded.sound.samples.defined()) {
    EXPECT_TRUE(decoded.sound.samples.equal(result.sound.samples));
  }
  EXPECT_FALSE(decoded.tiled);
  EXPECT_TRUE(decoded.warning.empty());
}

TEST_P(FamilyPipeline, UsesInitialLatentsInsteadOfNoiseAndDrawsNone) {
  inputs.decode = false;
  const Outcome first = pipeline->generate(request, inputs);
  const at::Tensor drawn = first.latents.video;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(request.seed);
  const std::vector<int64_t> shape_of_frame = drawn.select(frames_axis(pipeline->spec().layout), 0).sizes().vec();
  if (pipeline->spec().image.drawn) at::randn(shape_of_frame, generator);
  if (pipeline->spec().image.latents == ImageSpec::Latents::keyframes)
    for (const auto& image : {inputs.images.first, inputs.images.last})
      if (image) at::randn(shape_of_frame, generator);
  inputs.init_latents.video = at::randn(drawn.sizes(), generator);
  if (first.latents.sound.defined()) inputs.init_latents.sound = at::randn(first.latents.sound.sizes(), generator);
  // Without the draw for the start, a sampler that draws in its steps gets other numbers.
  const ModelSpec& spec = pipeline->spec();
  const bool noisy_steps = draws(find_sampler(spec.samplers, spec.defaults.sampler).kind);
  EXPECT_EQ(pipeline->generate(request, inputs).latents.video.equal(drawn), !noisy_steps);
  inputs.init_latents = drawn.narrow(1, 0, drawn.size(1) - 1);
  EXPECT_THROW(pipeline->generate(request, inputs), Error);
}

TEST_P(FamilyPipeline, ThrowsCancelledIfItIsCancelledBetweenSteps) {
  int steps = 0;
  test::CallbackObserver observer;
  observer.on_step = [&](const StepDone&) { ++steps; };
  models::Run run;
  run.observer = &observer;
  run.cancelled = [&] { return steps == 2; };
  EXPECT_THROW(pipeline->generate(request, inputs, run), Cancelled);
  EXPECT_EQ(steps, 2);
}

TEST_P(FamilyPipeline, CutsLongPromptsWithAWarningUnlessTheModelReadsAllOfThem) {
  inputs.decode = false;
  const at::Tensor whole = pipeline->generate(request, inputs).latents.video;
  request.max_sequence_length = 3;
  const Outcome cut = pipeline->generate(request, inputs);
  const bool cuts = pipeline->spec().prompt.has_length;
  const auto warning = ::testing::Contains(HasSubstr("cut to 3 tokens"));
  if (cuts) {
    EXPECT_THAT(cut.warnings, warning);
  } else {
    EXPECT_THAT(cut.warnings, Not(warning));
  }
  EXPECT_EQ(cut.latents.video.equal(whole), !cuts);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyPipeline, ::testing::ValuesIn(test::whole_families()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sparsereel::models
