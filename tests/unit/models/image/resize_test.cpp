// Tests that images resized to several sizes have the same bytes as Pillow's. tests/parity/make_resize.py writes the
// golden images.
#include "models/image/resize.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "models/image/images.h"
#include "models/image/resample.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

constexpr std::array<std::array<int64_t, 2>, 7> kSizes = {
    {{8, 8}, {20, 30}, {23, 31}, {40, 37}, {5, 60}, {23, 7}, {1, 1}}};  // height, width

Picture of_bytes(const at::Tensor& bytes) {
  return picture_of(bytes.to(at::kFloat).div(255));
}

std::string name_of(const std::string& kind, int64_t height, int64_t width) {
  return kind + "." + std::to_string(height) + "x" + std::to_string(width);
}

TEST(PictureOf, RefusesNaNAndInf) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor image = at::rand({4, 5, 3});
    image[2][3][1] = value;
    EXPECT_TRUE(test::throws_error([&] { picture_of(image); }, {"an image holds NaN or Inf"}));
  }
}

TEST(Resize, MatchesEveryByteOfPillow) {
  const test::Golden golden("resize_golden");
  const Picture image = of_bytes(golden["image"]);
  for (const auto& [height, width] : kSizes) {
    const auto made = [&, height = height, width = width](ResampleFilter filter, const PictureBox& part) {
      return resample(image, height, width, filter, part).pixels;
    };
    const auto expected = [&, height = height, width = width](const std::string& kind) {
      return of_bytes(golden[name_of(kind, height, width)]).pixels;
    };
    EXPECT_EQ(made(ResampleFilter::lanczos, whole(image)), expected("lanczos.stretch")) << height << "x" << width;
    EXPECT_EQ(made(ResampleFilter::lanczos, center(image, height, width)), expected("lanczos.cover"))
        << height << "x" << width;
    EXPECT_EQ(made(ResampleFilter::bicubic, whole(image)), expected("bicubic.stretch")) << height << "x" << width;
  }
}

TEST(Resize, ScalesFramesToMinusOneToOne) {
  const test::Golden golden("resize_golden");
  const Picture image = of_bytes(golden["image"]);
  for (const auto& [rule, kind] :
       {std::pair(ResizeRule::cover, "lanczos.cover"), std::pair(ResizeRule::stretch, "lanczos.stretch")}) {
    const at::Tensor frame = fit_image(image, 5, 60, rule);
    ASSERT_EQ(frame.sizes(), at::IntArrayRef({1, 3, 1, 5, 60}));
    const at::Tensor bytes = golden[name_of(kind, 5, 60)].to(at::kFloat);
    EXPECT_TRUE(frame.select(2, 0)[0].permute({1, 2, 0}).equal(bytes.div(255).mul(2).sub(1))) << kind;
  }
}

TEST(Resize, MatchesTheSquareImageOfTransformers) {
  const test::Golden golden("resize_golden");
  const Picture wide = of_bytes(golden["image"]), high = of_bytes(golden["image"].transpose(0, 1));
  for (const int64_t side : {14, 32}) {
    const std::string number = std::to_string(side);
    const auto expected = [&](const std::string& shape) {
      return golden["square." + shape + "." + number].to(at::kFloat).div(255);
    };
    EXPECT_TRUE(square_image(wide, side).equal(expected("wide"))) << side;
    EXPECT_TRUE(square_image(high, side).equal(expected("high"))) << side;
  }
}

TEST(Resize, MakesASmoothPictureFromASeed) {
  const Picture picture = make_up_image(40, 60, 7);
  EXPECT_EQ(picture.height, 40);
  EXPECT_EQ(picture.width, 60);
  const at::Tensor pixels = at::tensor(picture.pixels, at::kFloat).view({40, 60, 3}).div(255);
  EXPECT_GT(pixels.std().item<float>(), 0.1F);
  EXPECT_LT(pixels.diff(1, 1).abs().max().item<float>(), 0.1F);
  EXPECT_EQ(picture.pixels, make_up_image(40, 60, 7).pixels);
  EXPECT_NE(picture.pixels, make_up_image(40, 60, 8).pixels);
}

TEST(Resize, RefusesASizeOfZero) {
  const Picture dot{.height = 1, .width = 1, .pixels = {1, 2, 3}};
  EXPECT_TRUE(test::throws_error([&] { resample(dot, 0, 4, ResampleFilter::lanczos, whole(dot)); }, {"4x0"}));
}

}  // namespace
}  // namespace sparsereel::models
