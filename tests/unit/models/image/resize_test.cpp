// The same bytes as Pillow's, whatever the scale; tests/parity/make_resize.py writes the golden.
#include "models/image/resize.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/image/images.h"
#include "models/image/resample.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

constexpr std::array<std::array<int64_t, 2>, 7> kSizes = {
    {{8, 8}, {20, 30}, {23, 31}, {40, 37}, {5, 60}, {23, 7}, {1, 1}}};  // height, width

Picture picture_of(const at::Tensor& image) {
  const at::Tensor bytes = image.to(at::kByte).contiguous();
  const auto* pixels = bytes.const_data_ptr<uint8_t>();
  return {.height = bytes.size(0), .width = bytes.size(1), .pixels = {pixels, pixels + bytes.numel()}};
}

std::string name_of(const std::string& kind, int64_t height, int64_t width) {
  return kind + "." + std::to_string(height) + "x" + std::to_string(width);
}

TEST(Resize, EveryByteIsPillows) {
  const test::Golden golden("resize_golden");
  const Picture image = picture_of(golden["image"]);
  for (const auto& [height, width] : kSizes) {
    const auto made = [&, height = height, width = width](ResampleFilter filter, const PictureBox& part) {
      return resample(image, height, width, filter, part).pixels;
    };
    const auto expected = [&, height = height, width = width](const std::string& kind) {
      return picture_of(golden[name_of(kind, height, width)]).pixels;
    };
    EXPECT_EQ(made(ResampleFilter::lanczos, whole(image)), expected("lanczos.stretch")) << height << "x" << width;
    EXPECT_EQ(made(ResampleFilter::lanczos, centre(image, height, width)), expected("lanczos.cover"))
        << height << "x" << width;
    EXPECT_EQ(made(ResampleFilter::bicubic, whole(image)), expected("bicubic.stretch")) << height << "x" << width;
  }
}

TEST(Resize, AFrameIsInBothSigns) {
  const test::Golden golden("resize_golden");
  const at::Tensor image = golden["image"].to(at::kFloat).div(255);
  for (const auto& [rule, kind] :
       {std::pair(ResizeRule::cover, "lanczos.cover"), std::pair(ResizeRule::stretch, "lanczos.stretch")}) {
    const at::Tensor frame = fit_image(image, 5, 60, rule);
    ASSERT_EQ(frame.sizes(), at::IntArrayRef({1, 3, 1, 5, 60}));
    const at::Tensor bytes = golden[name_of(kind, 5, 60)].to(at::kFloat);
    EXPECT_TRUE(frame.select(2, 0)[0].permute({1, 2, 0}).equal(bytes.div(255).mul(2).sub(1))) << kind;
  }
}

TEST(Resize, ASquareIsThatOfTransformers) {
  const test::Golden golden("resize_golden");
  const at::Tensor wide = golden["image"].to(at::kFloat).div(255);
  for (const int64_t side : {14, 32}) {
    const std::string number = std::to_string(side);
    const auto expected = [&](const std::string& shape) {
      return golden["square." + shape + "." + number].to(at::kFloat).div(255);
    };
    EXPECT_TRUE(square_image(wide, side).equal(expected("wide"))) << side;
    EXPECT_TRUE(square_image(wide.transpose(0, 1), side).equal(expected("high"))) << side;
  }
}

TEST(Resize, AMadeUpPictureIsSmoothAndItsSeeds) {
  const at::Tensor picture = make_up_image(40, 60, 7);
  ASSERT_EQ(picture.sizes(), at::IntArrayRef({40, 60, 3}));
  EXPECT_GE(picture.min().item<float>(), 0);
  EXPECT_LE(picture.max().item<float>(), 1);
  EXPECT_GT(picture.std().item<float>(), 0.1F);
  EXPECT_LT(picture.diff(1, 1).abs().max().item<float>(), 0.1F);
  EXPECT_TRUE(picture.equal(make_up_image(40, 60, 7)));
  EXPECT_FALSE(picture.equal(make_up_image(40, 60, 8)));
}

TEST(Resize, NothingIsNoSize) {
  const Picture dot{.height = 1, .width = 1, .pixels = {1, 2, 3}};
  EXPECT_TRUE(test::throws_error([&] { resample(dot, 0, 4, ResampleFilter::lanczos, whole(dot)); }, {"4x0"}));
}

}  // namespace
}  // namespace sparsereel::models
