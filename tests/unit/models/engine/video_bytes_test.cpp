// Tests the bytes of a VAE that chooses its own number formats, on a CPU and on a GPU.
#include "models/engine/video_bytes.h"

#include <gtest/gtest.h>

#include "models/engine/components.h"
#include "models/store/checkpoint/describe.h"

namespace sparsereel::models {
namespace {

const c10::Device kGpu(c10::kCUDA, 0), kCpu(c10::kCPU);

TEST(VideoBytes, DescribeAVaeWithItsOwnFormatsByTheDevice) {
  const Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/minimax_h3/pipeline");
  const ModelSpec spec = describe(model);
  ASSERT_FALSE(spec.takes_vae_dtype);
  const auto dtype_on = [&](c10::Device device) { return described_vae_dtype(spec, c10::kFloat, device); };
  const auto on_cpu = describe_vae(model, dtype_on(kCpu)), on_gpu = describe_vae(model, dtype_on(kGpu));
  EXPECT_EQ(on_cpu->weights().bytes, 4 * on_cpu->weights().count) << "a CPU multiplies in fp32";
  EXPECT_LT(on_gpu->weights().bytes, on_cpu->weights().bytes) << "a GPU multiplies in fp16";
  EXPECT_EQ(vae_bytes(*on_cpu, dtype_on(kCpu), kCpu), on_cpu->weights().bytes);
  EXPECT_EQ(vae_bytes(*on_gpu, dtype_on(kGpu), kGpu), on_gpu->weights().bytes);
}

TEST(VideoBytes, DescribeAnyOtherVaeInTheDtypeOfTheRun) {
  ModelSpec spec;
  spec.takes_vae_dtype = true;
  for (const c10::Device device : {kCpu, kGpu})
    EXPECT_EQ(described_vae_dtype(spec, c10::kBFloat16, device), c10::kBFloat16);
}

TEST(VideoBytes, CountWhatLooksAtImagesInItsDtypeWithItsActivations) {
  const Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/minimax_h3/pipeline");
  const PatchConfig patches = *describe(model).image.text_patches;
  const WorkBytes wide = text_vision_bytes(model, c10::kFloat, patches, 256, 256),
                  half = text_vision_bytes(model, c10::kBFloat16, patches, 256, 256);
  EXPECT_LT(half.weights, wide.weights);
  EXPECT_GT(half.activations, 0U);
  EXPECT_GT(text_vision_bytes(model, c10::kBFloat16, patches, 512, 256).activations, half.activations);
}

}  // namespace
}  // namespace sparsereel::models
