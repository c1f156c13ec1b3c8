// Tests MiniMax-H3's models on a GPU against results that diffusers computed on a CPU. Skipped without a GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <string>

#include "models/families/minimax_h3/loaders.h"
#include "models/request/attention_run.h"
#include "models/store/weights/device.h"
#include "tests/support/minimax_h3_cases.h"

namespace sparsereel::models {
namespace {

using test::close_to;

class MiniMaxH3OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    at::globalContext().setAllowTF32CuDNN(true);  // libtorch's default, which must not make fp32 models use TF32
  }
  c10::InferenceMode inference_;
};

// Bounds the error in bf16 by about twice that of diffusers: on a CPU, its bf16 differs from its fp32 by up to 7.2e-3
// of the scale.
TEST_F(MiniMaxH3OnGpu, PredictsVideoAndSound) {
  const test::Golden golden("minimax_h3/dit_golden");
  for (const test::ParityCase& one : test::minimax_h3_cases())
    for (const auto& [dtype, tolerance] : {std::pair(at::kFloat, 2e-5), {at::kBFloat16, 1.5e-2}})
      for (const bool offload : {false, true}) {
        SCOPED_TRACE(::testing::Message() << one.name << " " << dtype << (offload ? " offloaded" : ""));
        const Component component = test::transformer_component(one);
        const auto transformer =
            load_minimax_h3_transformer(component, at::kCUDA, dtype, offload ? Streaming::all() : Streaming{});
        AttentionRun run;
        const Prediction prediction = transformer->predict(test::minimax_h3_input(one, golden, dtype), run);
        EXPECT_TRUE(close_to(prediction.video.cpu(), golden[one.name + "/output"], tolerance));
        EXPECT_TRUE(close_to(prediction.sound.cpu(), golden[one.name + "/sound_output"], tolerance));
      }
}

// The tolerance allows for products in fp16 with a residual stream in fp32.
TEST_F(MiniMaxH3OnGpu, DecodesAndEncodesPictures) {
  const test::Golden golden("minimax_h3/vae_golden");
  const Component component = test::vae_component(test::minimax_h3(), "vae");
  const auto vae = load_minimax_h3_vae(component, at::kCUDA, at::kBFloat16, VaeParts::both);
  const at::Tensor latents = golden["tiles/latents"].to(at::kCUDA, at::kFloat);
  const at::Tensor frames = vae->decode(latents, /*tiled=*/false).cpu();
  EXPECT_TRUE(
      close_to(frames.slice(3, 0, c10::nullopt, 13).slice(4, 0, c10::nullopt, 13), golden["tiles/frames"], 5e-3));
  const at::Tensor picture = test::frames_to_encode({1, 3, 1, 272, 448}).to(at::kCUDA);
  EXPECT_TRUE(close_to(vae->encode(picture, /*tiled=*/false).mean.cpu(), golden["picture_in_tiles/mean"], 2e-5));
}

TEST_F(MiniMaxH3OnGpu, DecodesSoundInFp32) {
  const test::Golden golden("minimax_h3/sound_golden");
  const Component component = test::vae_component(test::minimax_h3(), "sound");
  const auto vae = load_minimax_h3_sound_vae(component, at::kCUDA);
  EXPECT_TRUE(close_to(vae->decode(golden["23/latents"].to(at::kCUDA)).cpu(), golden["23/wave"], 2e-5));
}

}  // namespace
}  // namespace sparsereel::models
