// Tests the size that a video gets from the shape of its image.
#include "models/request/image_size.h"

#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

void expect_size(PixelSize image, PixelSize area, int64_t step, PixelSize expected) {
  const PixelSize size = size_like(image, area.height * area.width, {step, step});
  EXPECT_EQ(size.width, expected.width) << image.width << "x" << image.height;
  EXPECT_EQ(size.height, expected.height) << image.width << "x" << image.height;
}

TEST(ImageSize, IsTheModelsSizeForAnImageOfItsShape) {
  for (const auto& [height, width] : {std::pair(480, 832), std::pair(832, 480), std::pair(720, 1280)})
    expect_size({height * 3, width * 3}, {height, width}, 16, {height, width});
}

TEST(ImageSize, KeepsTheShapeOfTheImageWithinTheArea) {  // as Wan's best_output_size()
  expect_size({1000, 1000}, {704, 1280}, 32, {928, 960});
  expect_size({1080, 1920}, {704, 1280}, 32, {704, 1248});
  expect_size({1920, 1080}, {704, 1280}, 32, {1248, 704});
  expect_size({3000, 4000}, {480, 832}, 16, {544, 720});
}

TEST(ImageSize, ConvertsLinesToTheUsualSizes) {
  EXPECT_EQ((FrameArea{.lines = 480}.pixels()), 832 * 480);
  EXPECT_EQ((FrameArea{.lines = 720}.pixels()), 1280 * 720);
  EXPECT_EQ(find_frame_area("1080P"), (FrameArea{.lines = 1080}));
  EXPECT_EQ(size_like(kUsualShape, FrameArea{.lines = 480}.pixels(), {16, 16}), (PixelSize{480, 832}));
  EXPECT_EQ(size_like(kUsualShape, FrameArea{.lines = 720}.pixels(), {16, 16}), (PixelSize{720, 1280}));
  EXPECT_EQ(size_like(kUsualShape, FrameArea{.lines = 720}.pixels(), {32, 32}), (PixelSize{704, 1280}));
}

TEST(ImageSize, StaysWithinTheModelsLargestSize) {
  const PixelSize grid = {16, 16}, largest = {.height = 160, .width = 160};
  EXPECT_EQ(size_like({20, 30}, 160 * 160, grid, largest), (PixelSize{.height = 96, .width = 160}));
  EXPECT_EQ(size_like({30, 20}, 160 * 160, grid, largest), (PixelSize{.height = 160, .width = 96}));
  EXPECT_EQ(size_like({20, 20}, 160 * 160, grid, largest), (PixelSize{.height = 160, .width = 160}));
  EXPECT_EQ(size_like({1, 100}, 160 * 160, grid, largest), (PixelSize{.height = 16, .width = 160}));
}

TEST(ImageSize, IsAtLeastOneStepForThinImages) {
  expect_size({1, 20000}, {480, 832}, 16, {16, 24960});
  expect_size({7, 7}, {4, 4}, 16, {16, 16});
}

}  // namespace
}  // namespace sparsereel::models
