// The random-weights pipeline on a GPU through plain libtorch operations; skips itself, visibly, where there is none.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/device.h"
#include "models/pipeline.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

class PipelineOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
  }

  static std::string folder() { return std::string(SPARSEREEL_TEST_DATA) + "/pipeline"; }

  static GenerateRequest request() {
    GenerateRequest request;
    request.prompt = "a red circle moving to the right on a blue background";
    request.negative_prompt = "blurry, gray";
    request.seed = 7;
    request.num_inference_steps = 4;
    return request;
  }
};

TEST_F(PipelineOnGpu, Fp32FramesAreThoseOfDiffusersOnACpu) {
  const test::Golden golden("pipeline_golden");
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp32");
  for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert}) {
    GenerateRequest wanted = request();
    wanted.token_order = order;
    const GenerateResult result = pipeline->generate(wanted);
    EXPECT_TRUE(test::close_to(result.latents, golden["ddim.latents"], 1e-3));
    const at::Tensor sampled =
        result.frames.slice(0, 0, c10::nullopt, 4).slice(1, 0, c10::nullopt, 2).slice(2, 0, c10::nullopt, 2);
    EXPECT_TRUE(test::close_to(sampled, golden["ddim.frames"], 1e-3));
  }
}

TEST_F(PipelineOnGpu, HalfPrecisionRunsAndIsFinite) {
  for (const char* dtype : {"bf16", "fp16"}) {
    const auto pipeline = Pipeline::open(folder(), "cuda", dtype);
    const GenerateResult result = pipeline->generate(request());
    EXPECT_TRUE(at::isfinite(result.latents.to(at::kFloat)).all().item<bool>()) << dtype;
    EXPECT_GT(result.frames.std().item<double>(), 0.01) << dtype;
  }
}

TEST_F(PipelineOnGpu, TiledDecodingWorks) {
  GenerateRequest wanted = request();
  wanted.vae_tiling = VaeTiling::on;
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp32");
  const GenerateResult result = pipeline->generate(wanted);
  EXPECT_TRUE(result.settings.vae_tiled);
  EXPECT_EQ(result.frames.sizes(), at::IntArrayRef({9, 64, 64, 3}));
}

TEST_F(PipelineOnGpu, SparseAttentionRefusesFp32WithTheReason) {
  EXPECT_THAT(attention::unsupported_reason(attention::Mode::sparse, at::Device(at::kCUDA), at::kFloat),
              ::testing::HasSubstr("fp16 or bf16"));
  GenerateRequest wanted = request();
  wanted.attention_mode = attention::Mode::sparse;
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp32");
  EXPECT_THROW(pipeline->generate(wanted), Error);
}

TEST_F(PipelineOnGpu, QuantizedAttentionStaysNearFullAttention) {
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp16");
  GenerateRequest wanted = request();
  const at::Tensor full = pipeline->generate(wanted).frames;
  wanted.attention_mode = attention::Mode::quantized;
  const GenerateResult result = pipeline->generate(wanted);
  EXPECT_THAT(result.attention.kernel, ::testing::HasSubstr("cuda"));
  EXPECT_EQ(result.attention.statistics.sparsity(), 0.0);
  EXPECT_LT((result.frames - full).abs().mean().item<double>(), 0.02);
}

}  // namespace
}  // namespace sparsereel::models
