// The whole pipeline against diffusers on the random-weights checkpoint (tests/parity/make_pipeline.py).
#include "models/pipeline.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;

// The reference's own frames move by more than 1e-6 with another number of threads; 1e-4 is the project's bound.
constexpr double kTolerance = 1e-4;

GenerateRequest golden_request() {
  GenerateRequest request;
  request.prompt = "a red circle moving to the right on a blue background";
  request.negative_prompt = "blurry, gray";
  request.seed = 7;
  request.num_inference_steps = 4;
  request.token_order = hilbert::TokenOrder::native;
  return request;
}

class PipelineParity : public ::testing::Test {
 protected:
  static std::string folder() { return std::string(SPARSEREEL_TEST_DATA) + "/pipeline"; }

  void expect_golden(const GenerateRequest& request, const std::string& name) {
    const test::Golden golden("pipeline_golden");
    const GenerateResult result = pipeline->generate(request);
    EXPECT_TRUE(test::close_to(result.latents, golden[name + ".latents"], kTolerance));
    const at::Tensor sampled =
        result.frames.slice(0, 0, c10::nullopt, 4).slice(1, 0, c10::nullopt, 2).slice(2, 0, c10::nullopt, 2);
    EXPECT_TRUE(test::close_to(sampled, golden[name + ".frames"], kTolerance));
  }

  std::shared_ptr<Pipeline> pipeline = Pipeline::open(folder(), "cpu", "fp32");
};

TEST_F(PipelineParity, DdimWithGuidanceMatchesDiffusers) {
  expect_golden(golden_request(), "ddim");
}

TEST_F(PipelineParity, DpmWithDynamicGuidanceMatchesDiffusers) {
  GenerateRequest request = golden_request();
  request.scheduler = "dpm";
  request.use_dynamic_cfg = true;
  expect_golden(request, "dpm");
}

TEST_F(PipelineParity, WithoutGuidanceMatchesDiffusers) {
  GenerateRequest request = golden_request();
  request.guidance_scale = 1.0;
  expect_golden(request, "no_guidance");
}

TEST_F(PipelineParity, OtherSizeAndFrameCountMatchDiffusers) {
  GenerateRequest request = golden_request();
  request.width = 96;
  request.height = 48;
  request.num_frames = 5;
  expect_golden(request, "wide");
}

TEST_F(PipelineParity, TokenOrderChangesNothingUnderFullAttention) {
  GenerateRequest request = golden_request();
  const at::Tensor native = pipeline->generate(request).frames;
  for (const auto order : {hilbert::TokenOrder::hilbert, hilbert::TokenOrder::time_major, hilbert::TokenOrder::morton,
                           hilbert::TokenOrder::random}) {
    request.token_order = order;
    EXPECT_TRUE(test::close_to(pipeline->generate(request).frames, native, kTolerance)) << hilbert::name(order);
  }
}

TEST_F(PipelineParity, SparseAttentionThatKeepsEveryBlockIsFullAttention) {
  GenerateRequest request = golden_request();
  const at::Tensor full = pipeline->generate(request).frames;
  request.attention_mode = attention::Mode::sparse;
  request.attention_policy.defaults.topk = 1.0;
  request.attention_policy.defaults.pv_threshold = 32;
  const GenerateResult sparse = pipeline->generate(request);
  EXPECT_TRUE(test::close_to(sparse.frames, full, kTolerance));
  EXPECT_GT(sparse.attention.statistics.calls, 0);
  EXPECT_EQ(sparse.attention.statistics.sparsity(), 0.0);
}

TEST_F(PipelineParity, TheSameSeedGivesTheSameFramesAndAnotherSeedOthers) {
  GenerateRequest request = golden_request();
  const at::Tensor first = pipeline->generate(request).frames;
  EXPECT_TRUE(first.equal(pipeline->generate(request).frames));
  request.seed = 8;
  EXPECT_FALSE(first.equal(pipeline->generate(request).frames));
}

TEST_F(PipelineParity, SavedLatentsDecodeToTheSameFrames) {
  const GenerateResult result = pipeline->generate(golden_request());
  const Decoded decoded = pipeline->decode(result.latents, VaeTiling::off);
  EXPECT_TRUE(decoded.frames.equal(result.frames));
  EXPECT_FALSE(decoded.tiled);
  EXPECT_TRUE(decoded.warning.empty());
}

TEST_F(PipelineParity, InitLatentsReplaceTheNoiseAndConsumeNoDraw) {
  GenerateRequest request = golden_request();
  request.decode = false;
  const at::Tensor drawn = pipeline->generate(request).latents;
  request.init_latents = at::randn({1, 3, 4, 8, 8}, at::make_generator<at::CPUGeneratorImpl>(7));
  EXPECT_TRUE(pipeline->generate(request).latents.equal(drawn));
  request.init_latents = at::zeros({1, 2, 4, 8, 8});
  EXPECT_THROW(pipeline->generate(request), Error);
}

TEST_F(PipelineParity, ImpossibleSizesNameTheTwoNearest) {
  const auto message = [&](auto change) {
    GenerateRequest request = golden_request();
    change(request);
    try {
      pipeline->resolve(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      return std::string(error.what()) + " | " + error.remedy();
    }
    return std::string("no error");
  };
  EXPECT_THAT(message([](auto& r) { r.width = 100; }),
              ::testing::AllOf(HasSubstr("--width 100"), HasSubstr("96 or 112")));
  EXPECT_THAT(message([](auto& r) { r.height = 8; }), HasSubstr("16 or 32"));
  EXPECT_THAT(message([](auto& r) { r.num_frames = 10; }),
              ::testing::AllOf(HasSubstr("--frames 10"), HasSubstr("9 or 13")));
  EXPECT_THAT(message([](auto& r) { r.num_frames = 0; }), HasSubstr("1 or 5"));
  EXPECT_THAT(message([](auto& r) { r.num_inference_steps = 2000; }), HasSubstr("--steps 2000"));
  EXPECT_THAT(message([](auto& r) { r.max_sequence_length = 300; }), HasSubstr("at most 16"));
  EXPECT_THAT(message([](auto& r) { r.scheduler = "euler"; }), HasSubstr("--scheduler euler"));
}

TEST_F(PipelineParity, CancellingBetweenStepsThrowsCancelled) {
  int steps = 0;
  GenerateObserver observer;
  observer.step = [&](int64_t, int64_t, double) { ++steps; };
  observer.cancelled = [&] { return steps == 2; };
  EXPECT_THROW(pipeline->generate(golden_request(), observer), Cancelled);
  EXPECT_EQ(steps, 2);
}

TEST_F(PipelineParity, ATruncatedPromptIsReported) {
  GenerateRequest request = golden_request();
  request.max_sequence_length = 3;
  request.decode = false;
  EXPECT_THAT(pipeline->generate(request).warnings, ::testing::Contains(HasSubstr("cut to 3 tokens")));
}

}  // namespace
}  // namespace sparsereel::models
