// Tests how tiles cover a frame and how they are blended.
#include "models/vae/tiling.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

// Decodes each latent to 8 x 8 equal pixels, so that the frame does not depend on the tiles.
at::Tensor repeat_pixels(const at::Tensor& latents) {
  return latents.repeat_interleave(8, 3).repeat_interleave(8, 4);
}

TEST(TileAxis, MatchesTheReferenceAtCogVideoXResolution) {
  const TileAxis height = tile_axis(480, 8, 1.0 / 6), width = tile_axis(720, 8, 1.0 / 5);
  EXPECT_EQ(height.size, 30);
  EXPECT_EQ(height.stride, 25);
  EXPECT_EQ(width.size, 45);
  EXPECT_EQ(width.stride, 36);
  EXPECT_EQ(width.count(90), 3);
  EXPECT_EQ(width.count(72), 2);
}

TEST(TileAxis, HasAStrideOfAtLeastOne) {
  const TileAxis axis = tile_axis(8, 8, 1.0 / 5);
  EXPECT_EQ(axis.size, 1);
  EXPECT_EQ(axis.stride, 1);
}

class Tiles : public ::testing::TestWithParam<int64_t> {};

TEST_P(Tiles, DecodeTheWholeFrameForAnySampleSize) {
  const c10::InferenceMode inference;
  TilePlan plan;
  plan.height = tile_axis(GetParam(), plan.scale, 1.0 / 6);
  plan.width = tile_axis(GetParam() + 8, plan.scale, 1.0 / 5);
  const at::Tensor latents = at::randn({1, 3, 2, 23, 17});
  int64_t tiles = 0;
  const at::Tensor frames = decode_tiles(plan, latents, [&](const at::Tensor& tile) {
    ++tiles;
    return repeat_pixels(tile);
  });
  EXPECT_EQ(tiles, plan.count(23, 17));
  ASSERT_EQ(frames.sizes(), (at::IntArrayRef{1, 3, 2, 184, 136}));
  EXPECT_LT((frames - repeat_pixels(latents)).abs().max().item<double>(), 1e-6);
}

// The parameters are sides in pixels of the frames for which a model was made. A tile covers half of such a side. Only
// for 480 does the reference return frames of the right size. 16 leaves tiles of a single latent.
INSTANTIATE_TEST_SUITE_P(Samples, Tiles, ::testing::Values(16, 48, 96, 100, 104, 112, 120, 192, 248, 480));

TEST(Tiles, BlendLinearlyIntoTheNext) {
  const c10::InferenceMode inference;
  TilePlan plan;
  plan.height = {.size = 4, .stride = 4};
  plan.width = {.size = 4, .stride = 3};
  float value = 0;
  const at::Tensor frames = decode_tiles(plan, at::zeros({1, 3, 1, 4, 6}), [&](const at::Tensor& tile) {
    return at::full({1, 3, 1, 8 * tile.size(3), 8 * tile.size(4)}, value++);
  });
  for (int64_t x = 0; x < 8; ++x)
    EXPECT_FLOAT_EQ(frames[0][0][0][5][24 + x].item<float>(), static_cast<float>(x) / 8.0F);
  EXPECT_EQ(frames[0][0][0][5][23].item<float>(), 0.0F);
  EXPECT_EQ(frames[0][0][0][5][32].item<float>(), 1.0F);
}

TEST_P(Tiles, EncodeTheWholeFrameForAnySampleSize) {
  const c10::InferenceMode inference;
  TilePlan plan;
  plan.height = tile_axis(GetParam(), plan.scale, 1.0 / 6);
  plan.width = tile_axis(GetParam() + 8, plan.scale, 1.0 / 5);
  const at::Tensor latents = at::randn({1, 3, 2, 23, 17});
  int64_t tiles = 0;
  const at::Tensor encoded = encode_tiles(plan, repeat_pixels(latents), [&](const at::Tensor& tile) {
    ++tiles;
    return tile.slice(3, 0, c10::nullopt, 8).slice(4, 0, c10::nullopt, 8).clone();
  });
  EXPECT_EQ(tiles, plan.count(23, 17));
  ASSERT_EQ(encoded.sizes(), latents.sizes());
  EXPECT_LT((encoded - latents).abs().max().item<double>(), 1e-6);
}

TEST(Tiles, AreNeededAboveTheSizeOfThePlan) {
  TilePlan plan{.height = {.size = 32, .stride = 24}, .width = {.size = 32, .stride = 24}};
  EXPECT_FALSE(plan.needed(32, 32));
  EXPECT_TRUE(plan.needed(8, 33));
  plan.whole = 16;
  EXPECT_FALSE(plan.needed(16, 16));
  EXPECT_TRUE(plan.needed(17, 8));
}

}  // namespace
}  // namespace sparsereel::models
