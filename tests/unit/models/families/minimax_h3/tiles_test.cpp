// Tests where the tiles of MiniMax-H3's VAE lie, and how they are blended.
#include "models/families/minimax_h3/tiles.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> starts_in_pixels(int64_t pixels) {
  std::vector<int64_t> starts = fixed_tiles(pixels / 16, 16).starts;
  for (int64_t& start : starts) start *= 16;
  return starts;
}

TEST(FixedTiles, LieWhereTheReferencePutsThem) {
  EXPECT_THAT(starts_in_pixels(96), ElementsAre(0));
  EXPECT_THAT(starts_in_pixels(256), ElementsAre(0));
  EXPECT_THAT(starts_in_pixels(272), ElementsAre(0, 16));
  EXPECT_THAT(starts_in_pixels(480), ElementsAre(0, 112, 224));
  EXPECT_THAT(starts_in_pixels(768), ElementsAre(0, 160, 336, 512));
  EXPECT_THAT(starts_in_pixels(864), ElementsAre(0, 144, 288, 448, 608));
  EXPECT_THAT(starts_in_pixels(1344), ElementsAre(0, 176, 352, 528, 704, 896, 1088));
}

TEST(FixedTiles, CoverTheAxisWithTheLeastOverlap) {
  for (int64_t length = 1; length <= 130; ++length) {
    const FixedTiles tiles = fixed_tiles(length, 16);
    EXPECT_EQ(tiles.starts.back() + tiles.size, length);
    for (size_t i = 1; i < tiles.starts.size(); ++i) EXPECT_GE(tiles.overlap(i), 4) << length;
  }
}

// Each tile's result is its number everywhere. Where two tiles overlap, the expected values change linearly from one
// number to the other.
TEST(RunInTiles, BlendsWithTheTilesAboveAndToTheLeftBeforeTheyAreBlended) {
  double number = 0;
  const at::Tensor result = run_in_tiles({.whole = at::zeros({1, 1, 1, 3, 3}),
                                          .in = 1,
                                          .out = 2,
                                          .rows = {.size = 2, .starts = {0, 1}},
                                          .columns = {.size = 2, .starts = {0, 1}},
                                          .run = [&](const at::Tensor& tiles) {
                                            at::Tensor made = at::empty({tiles.size(0), 1, 1, 4, 4});
                                            for (int64_t i = 0; i < tiles.size(0); ++i) made[i].fill_(number++);
                                            return made;
                                          }});
  const at::Tensor expected = at::tensor({0.0F, 0.0F, 0.0F, 0.5F, 1.0F, 1.0F,  //
                                          0.0F, 0.0F, 0.0F, 0.5F, 1.0F, 1.0F,  //
                                          0.0F, 0.0F, 2.0F, 1.5F, 1.0F, 1.0F,  // tile 3 blended with 1, then with 2
                                          1.0F, 1.0F, 2.0F, 2.0F, 2.0F, 2.0F,  //
                                          2.0F, 2.0F, 2.0F, 2.5F, 3.0F, 3.0F,  //
                                          2.0F, 2.0F, 2.0F, 2.5F, 3.0F, 3.0F});
  EXPECT_TRUE(result.flatten().equal(expected)) << result;
}

}  // namespace
}  // namespace sparsereel::models
