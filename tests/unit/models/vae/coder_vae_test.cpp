// Tests code that the VAEs of all families share: loading encoders and decoders, and scaling latents.
#include "models/vae/coder_vae.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TEST(CoderVae, DenormalizesEachChannelInFp32) {
  const at::Tensor latents = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kFloat).to(at::kBFloat16).view({1, 2, 2, 1, 1});
  const at::Tensor expected = at::tensor({7.0, 13.0, 3.5, 5.0}, at::kFloat).view({1, 2, 2, 1, 1});
  const at::Tensor scaled = denormalized(latents, {1, -1}, {2, 0.5}, 3);
  EXPECT_EQ(scaled.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(scaled.to(at::kFloat).equal(expected));
  EXPECT_TRUE(denormalized(latents, {0, 0}, {1, 1}).equal(latents));
}

TEST(CoderVae, StoresConvolutionsChannelsLast) {
  Component component;
  component.random_seed = 1;
  WeightReader reader(component, at::kCPU, at::kFloat);
  const Visit loads = loads_of_coder(reader);
  at::Tensor picture, video, matrix;
  loads(picture, parameter("a.weight", {4, 3, 3, 3}));
  loads(video, parameter("b.weight", {4, 3, 3, 3, 3}));
  loads(matrix, {.names = {"c.weight"}, .stored = {4, 3, 1, 1, 1}, .shape = {4, 3}});
  EXPECT_TRUE(picture.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(video.is_contiguous(at::MemoryFormat::ChannelsLast3d));
  EXPECT_EQ(matrix.sizes(), at::IntArrayRef({4, 3}));
}

TEST(CoderVae, CountsTheWeightsThatItLoads) {
  Component component;
  component.random_seed = 1;
  WeightReader reader(component, at::kCPU, at::kBFloat16);
  VaeWeights weights;
  const Visit loads = counted(loads_of_coder(reader), weights);
  at::Tensor matrix, wide;
  loads(matrix, parameter("a.weight", {4, 3}));
  loads(wide, parameter("b.weight", {5}, /*fp32=*/true));
  EXPECT_TRUE(matrix.defined() && wide.defined());
  EXPECT_EQ(weights.count, 17U);
  EXPECT_EQ(weights.bytes, 12U * 2 + 5 * 4);
}

}  // namespace
}  // namespace sparsereel::models
