// Tests whole pipelines with a small checkpoint on a GPU: dtypes, modes of attention, offloading, LoRAs and step
// caches. Skipped without a GPU, except for FaultyStep on a CPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/engine/denoising.h"
#include "models/engine/pipeline.h"
#include "models/request/attention_run.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/device.h"
#include "models/store/weights/upload.h"
#include "tests/support/callback_observer.h"
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

  static Request request() {
    Request request;
    request.prompt = "a red circle moving to the right on a blue background";
    request.negative_prompt = "blurry, gray";
    request.seed = 7;
    request.attention_mode = attention::Mode::full;
    request.num_inference_steps = 4;
    return request;
  }
};

TEST_F(PipelineOnGpu, MatchesTheFramesOfDiffusersInFp32) {
  const test::Golden golden("pipeline_golden");
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp32");
  for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert}) {
    Request wanted = request();
    wanted.token_order = order;
    const Outcome result = pipeline->generate(wanted);
    EXPECT_TRUE(test::close_to(result.latents.video, golden["ddim.latents"], 1e-3));
    const at::Tensor sampled =
        result.frames.slice(0, 0, c10::nullopt, 4).slice(1, 0, c10::nullopt, 2).slice(2, 0, c10::nullopt, 2);
    EXPECT_TRUE(test::close_to(sampled, golden["ddim.frames"], 1e-3));
  }
}

TEST_F(PipelineOnGpu, RunsInHalfPrecisionWithFiniteLatents) {
  for (const char* dtype : {"bf16", "fp16"}) {
    const auto pipeline = Pipeline::open(folder(), "cuda", dtype);
    const Outcome result = pipeline->generate(request());
    EXPECT_TRUE(at::isfinite(result.latents.video.to(at::kFloat)).all().item<bool>()) << dtype;
    EXPECT_GT(result.frames.std().item<double>(), 0.01) << dtype;
  }
}

TEST_F(PipelineOnGpu, DecodesInTiles) {
  Request wanted = request();
  wanted.vae_tiling = VaeTiling::on;
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp32");
  const Outcome result = pipeline->generate(wanted);
  EXPECT_TRUE(result.vae_tiled);
  EXPECT_EQ(result.frames.sizes(), at::IntArrayRef({9, 64, 64, 3}));
}

TEST_F(PipelineOnGpu, RefusesSparseAttentionInFp32AndSaysWhy) {
  EXPECT_THAT(attention::unsupported_reason(attention::Mode::sparse, at::Device(at::kCUDA), at::kFloat),
              ::testing::HasSubstr("fp16 or bf16"));
  Request wanted = request();
  wanted.attention_mode = attention::Mode::sparse;
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp32");
  EXPECT_THROW(pipeline->generate(wanted), Error);
}

TEST_F(PipelineOnGpu, StaysNearFullAttentionWithQuantizedAttention) {
  const auto pipeline = Pipeline::open(folder(), "cuda", "fp16");
  Request wanted = request();
  const at::Tensor full = pipeline->generate(wanted).frames;
  wanted.attention_mode = attention::Mode::quantized;
  const Outcome result = pipeline->generate(wanted);
  EXPECT_THAT(result.attention.kernel, ::testing::HasSubstr("cuda"));
  EXPECT_EQ(result.attention.statistics.sparsity(), 0.0);
  EXPECT_LT((result.frames - full).abs().mean().item<double>(), 0.02);
}

TEST_F(PipelineOnGpu, GivesTheSameLatentsWithOffloadedBlocks) {
  Request wanted = request();
  const auto resident = Pipeline::open(Checkpoint::open(folder()), {.device = "cuda", .dtype = "bf16"});
  const auto offloaded =
      Pipeline::open(Checkpoint::open(folder()), {.device = "cuda", .dtype = "bf16", .offload = Offload::on});
  const Outcome first = resident->generate(wanted, {.decode = false}),
                second = offloaded->generate(wanted, {.decode = false});
  EXPECT_TRUE(second.latents.video.equal(first.latents.video));
}

TEST_F(PipelineOnGpu, GivesTheSameLatentsWithOffloadedBlocksThatACacheSkips) {
  Request wanted = request();
  wanted.num_inference_steps = 12;
  for (const CacheKind kind : {CacheKind::first_block, CacheKind::forecast}) {
    wanted.cache = {.kind = kind, .threshold = 1.2};
    const auto run = [&](bool offload) {
      return Pipeline::open(Checkpoint::open(folder()),
                            {.device = "cuda", .dtype = "bf16", .offload = offload ? Offload::on : Offload::off})
          ->generate(wanted, {.decode = false});
    };
    const Outcome resident = run(false), offloaded = run(true);
    EXPECT_FALSE(reused_steps(resident.attention).empty());
    EXPECT_LT(reused_steps(resident.attention).size(), 11U);
    EXPECT_EQ(reused_steps(offloaded.attention), reused_steps(resident.attention));
    EXPECT_TRUE(offloaded.latents.video.equal(resident.latents.video));
  }
}

TEST_F(PipelineOnGpu, MergesLorasAlikeIntoResidentAndOffloadedWeights) {
  Request wanted = request();
  const auto run = [&](const char* device, const char* dtype, bool offload, const std::string& loras) {
    const Request options{
        .device = device, .dtype = dtype, .offload = offload ? Offload::on : Offload::off, .loras = parse_loras(loras)};
    return Pipeline::open(Checkpoint::open(folder()), options)->generate(wanted, {.decode = false}).latents.video;
  };
  const std::string data = std::string(SPARSEREEL_TEST_DATA) + "/lora/";
  const std::string loras = data + "metadata.safetensors:0.8," + data + "text.safetensors:-0.5";
  const at::Tensor resident = run("cuda", "bf16", false, loras);
  EXPECT_TRUE(run("cuda", "bf16", true, loras).equal(resident));
  EXPECT_FALSE(run("cuda", "bf16", false, "").equal(resident));
  EXPECT_TRUE(run("cuda", "fp32", false, loras).allclose(run("cpu", "fp32", false, loras), 1e-3, 1e-3));
}

TEST_F(PipelineOnGpu, RepeatsRandomWeightsAndReportsPeakMemory) {
  const Checkpoint files = Checkpoint::open(folder());
  nlohmann::json architecture;
  for (const char* name : {"transformer", "vae", "text_encoder", "scheduler"}) architecture[name] = files.config(name);
  const auto run = [&](bool offload) {
    const auto pipeline = Pipeline::open(
        Checkpoint::with_random_weights("small.yaml", files.component_class("transformer"), architecture),
        {.device = "cuda", .dtype = "bf16", .offload = offload ? Offload::on : Offload::off});
    return pipeline->generate(request());
  };
  const Outcome first = run(false), second = run(false), offloaded = run(true);
  EXPECT_TRUE(at::isfinite(first.frames).all().item<bool>());
  EXPECT_TRUE(second.latents.video.equal(first.latents.video));
  EXPECT_TRUE(offloaded.latents.video.equal(first.latents.video));
  EXPECT_GT(first.memory.text, 0U);
  EXPECT_GT(first.memory.denoise, 0U);
  EXPECT_GT(first.memory.decode, 0U);
}

/// Puts NaN into the attention of one step. The pipeline then repeats the step without the observer that does this.
/// Runs on a CPU too.
class FaultyStep : public PipelineOnGpu, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() != std::string("cpu")) PipelineOnGpu::SetUp();
  }
};

TEST_P(FaultyStep, IsRedoneWithFullAttention) {
  const std::string device = GetParam();
  const auto pipeline = Pipeline::open(folder(), device, device == "cpu" ? "fp32" : "fp16");
  Request wanted = request();
  wanted.width = wanted.height = 128;
  wanted.attention_mode = attention::Mode::sparse;
  attention::Policy policy;
  policy.defaults.topk = 0.2;
  policy.dense_operations = 0;  // so that even short sequences run sparse
  wanted.policy = policy;
  test::CallbackObserver observer;
  models::Run run;
  run.observer = &observer;
  observer.on_attention_call = [](const AttentionCall& call) {
    if (call.step == 2 && call.layer == 1) call.v.fill_(std::nanf(""));
  };
  const Outcome result = pipeline->generate(wanted, {}, run);
  EXPECT_THAT(result.attention.redone_steps, ::testing::ElementsAre(2));
  ASSERT_THAT(result.warnings, ::testing::SizeIs(1));
  EXPECT_THAT(result.warnings[0], ::testing::HasSubstr("step 3 gave NaN or Inf with sparse attention"));
  EXPECT_TRUE(at::isfinite(result.latents.video.to(at::kFloat)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(result.frames).all().item<bool>());
  ASSERT_THAT(result.attention.per_step, ::testing::SizeIs(4));
  for (size_t step = 0; step < 4; ++step) {
    for (const attention::Statistics& layer : result.attention.per_step[step]) {
      EXPECT_EQ(layer.calls, 1) << step;
      EXPECT_EQ(layer.sparsity() > 0.1, step != 2) << step << " has sparsity " << layer.sparsity();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Device, FaultyStep, ::testing::Values("cpu", "cuda"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(PipelineOnGpu, UploadsWeightsOfAnySizeCompletely) {
  const at::Device gpu(at::kCUDA, 0);
  Uploader uploader(gpu);
  for (const int64_t bytes : {int64_t{1}, int64_t{4097}, int64_t{16} << 20, (int64_t{150} << 20) + 3}) {
    const at::Tensor sent = at::randint(256, {bytes}, at::kByte);
    const at::Tensor received = at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(gpu));
    const auto* data = reinterpret_cast<const std::byte*>(sent.const_data_ptr<uint8_t>());
    uploader.upload({data, static_cast<size_t>(bytes)}, received);
    EXPECT_TRUE(received.cpu().equal(sent)) << bytes;
  }
}

}  // namespace
}  // namespace sparsereel::models
