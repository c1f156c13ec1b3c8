// Tests where the latents of an image are placed among the latents of a video.
#include "models/engine/image_stage.h"
#include "models/image/resample.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TEST(ImageStage, PlacesImageLatentsAfterThePaddingFrames) {
  for (const auto layout : {LatentLayout::frames_first, LatentLayout::channels_first}) {
    ModelSpec spec;
    spec.latent_channels = 4;
    spec.patch = {2, 1, 1};
    spec.layout = layout;
    Plan plan;
    plan.latent = {.frames = 3, .height = 2, .width = 5};
    Conditioning conditioning;
    const at::Tensor latents = at::randn({1, 4, 1, 2, 5});
    spec.image.latents = ImageSpec::Latents::first_frame_stays;
    add_latents(conditioning, {.mean = latents, .deviation = {}}, /*has_last=*/false, plan, spec);
    const int64_t axis = frames_axis(layout);
    EXPECT_EQ(conditioning.latents.sizes(), at::IntArrayRef(latents_shape(spec, plan.latent)));
    EXPECT_TRUE(conditioning.latents.select(axis, 1).equal(latents.select(2, 0)));
    EXPECT_TRUE(conditioning.mask.view(-1).equal(at::tensor({1.0F, 0.0F, 1.0F, 1.0F})));
    EXPECT_EQ(conditioning.mask.size(axis), 4);
  }
}

/// A plan of three latent frames. The first one stands for one frame, the others for two frames each.
struct ImageLatents : ::testing::Test {
  ImageLatents() {
    spec.image.latents = ImageSpec::Latents::beside_noise;
    spec.latent_channels = 2;
    spec.stride = {2, 4, 4};
    plan.width = plan.height = 8;
    plan.num_frames = 5;
    plan.latent = {.frames = 3, .height = 2, .width = 2};
  }
  at::Tensor beside(const at::Tensor& mean, bool has_last) const {
    Conditioning conditioning;
    add_latents(conditioning, {.mean = mean, .deviation = {}}, has_last, plan, spec);
    EXPECT_FALSE(conditioning.mask.defined());
    return spec.layout == LatentLayout::frames_first ? conditioning.latents.transpose(1, 2) : conditioning.latents;
  }

  ModelSpec spec;
  Plan plan;
  static std::shared_ptr<const Picture> of_one_color(int64_t height, int64_t width, uint8_t color) {
    const std::vector<uint8_t> pixels(static_cast<size_t>(height * width * 3), color);
    return std::make_shared<const Picture>(Picture{.height = height, .width = width, .pixels = pixels});
  }
  const std::shared_ptr<const Picture> white = of_one_color(3, 5, 255), black = of_one_color(8, 8, 0);
};

TEST_F(ImageLatents, AreMadeFromTheFirstImageOrAVideoThatIsGrayBetweenImages) {
  EXPECT_TRUE(known_frames({.first = white}, plan, spec, at::kFloat).equal(at::ones({1, 3, 1, 8, 8})));
  spec.image.encodes_video = true;
  at::Tensor frames = known_frames({.first = white}, plan, spec, at::kDouble);
  EXPECT_EQ(frames.scalar_type(), at::kDouble);
  EXPECT_TRUE(frames.narrow(2, 0, 1).eq(1).all().item<bool>());
  EXPECT_TRUE(frames.narrow(2, 1, 4).eq(0).all().item<bool>());
  EXPECT_EQ(frames.sizes(), at::IntArrayRef({1, 3, 5, 8, 8}));
  frames = known_frames({.first = white, .last = black}, plan, spec, at::kFloat);
  EXPECT_TRUE(frames.narrow(2, 1, 3).eq(0).all().item<bool>());
  EXPECT_TRUE(frames.narrow(2, 4, 1).eq(-1).all().item<bool>());
}

TEST_F(ImageLatents, AreFollowedByZerosEvenWithPaddingFrames) {
  spec.patch = {2, 1, 1};
  for (const auto layout : {LatentLayout::frames_first, LatentLayout::channels_first}) {
    spec.layout = layout;
    const at::Tensor mean = at::randn({1, 2, 1, 2, 2}), all = beside(mean, false);
    EXPECT_TRUE(all.equal(at::cat({mean, at::zeros({1, 2, 3, 2, 2})}, 2)));
  }
}

TEST_F(ImageLatents, AreZerosWithoutAnImage) {
  for (const auto layout : {LatentLayout::frames_first, LatentLayout::channels_first}) {
    spec.layout = layout;
    EXPECT_TRUE(latents_without_image(plan, spec).equal(at::zeros(latents_shape(spec, plan.latent))));
  }
}

TEST_F(ImageLatents, ArePrecededByChannelsThatMarkGivenFrames) {
  spec.image.encodes_video = spec.image.tells_frames = true;
  for (const auto layout : {LatentLayout::frames_first, LatentLayout::channels_first}) {
    spec.layout = layout;
    const at::Tensor mean = at::randn({1, 2, 3, 2, 2});
    for (const bool has_last : {false, true}) {
      const at::Tensor all = beside(mean, has_last), given = all.narrow(1, 0, 2).mean({0, 3, 4});
      EXPECT_TRUE(all.narrow(1, 2, 2).equal(mean));
      // The mask has two entries per latent frame. The first latent frame stands for one frame, which is given, so both
      // its entries are 1. The second entry of the last latent frame stands for the video's last frame.
      const float last = has_last ? 1 : 0;
      EXPECT_TRUE(given.equal(at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 0.0F, last}).view({2, 3})));
    }
  }
}

TEST_F(ImageLatents, AreSampledOnlyWhereADeviationIsGiven) {
  spec.image.tells_frames = true;
  Conditioning conditioning;
  add_latents(conditioning, {.mean = at::zeros({1, 2, 1, 2, 2}), .deviation = at::ones({1, 2, 1, 2, 2})}, false, plan,
              spec);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const at::Tensor before = conditioning.latents;
  draw_latents(conditioning, LatentLayout::frames_first, at::kFloat, generator);
  const at::Tensor drawn = conditioning.latents.ne(before);
  EXPECT_TRUE(drawn.narrow(1, 0, 1).narrow(2, 2, 2).all().item<bool>());
  EXPECT_EQ(drawn.sum().item<int64_t>(), 8);
}

TEST(ImageStage, DrawsNoiseForTheFirstKeyframeBeforeTheLast) {
  const at::Tensor zeros = at::zeros({1, 2, 1, 2, 2});
  const ImageSpec spec = {.latents = ImageSpec::Latents::keyframes, .keyframe_time = 0.75};
  const auto drawn = [&](Conditioning conditioning) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    draw_keyframes(conditioning, spec, generator);
    return conditioning;
  };
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const at::Tensor first = at::randn(zeros.sizes(), generator) / 4, second = at::randn(zeros.sizes(), generator) / 4;
  const Conditioning both = drawn({.first_keyframe = zeros, .last_keyframe = zeros});
  EXPECT_TRUE(both.first_keyframe.equal(first));
  EXPECT_TRUE(both.last_keyframe.equal(second));
  const Conditioning last = drawn({.last_keyframe = zeros});
  EXPECT_TRUE(last.last_keyframe.equal(first));
  EXPECT_FALSE(last.first_keyframe.defined());
  EXPECT_TRUE(zeros.eq(0).all().item<bool>()) << "another run may share the latents";
}

/// An image encoder whose tokens hold the mean of the image's pixels.
class MeanEncoder final : public ImageEncoder {
 public:
  at::Tensor forward(const at::Tensor& pixels) const override {
    EXPECT_EQ(pixels.sizes(), at::IntArrayRef({1, 3, 224, 224}));
    return pixels.mean().expand({1, 2, 4});
  }
  int64_t image_size() const override { return 224; }
  int64_t tokens() const override { return 2; }
  int64_t width() const override { return 4; }
  uint64_t weight_bytes() const override { return 0; }
};

TEST_F(ImageLatents, PutTokensOfTheFirstImageBeforeThoseOfTheLast) {
  const at::Tensor one = context_of({.first = white}, MeanEncoder(), {});
  EXPECT_EQ(one.sizes(), at::IntArrayRef({1, 2, 4}));
  const at::Tensor two = context_of({.first = white, .last = black}, MeanEncoder(), {});
  EXPECT_EQ(two.sizes(), at::IntArrayRef({1, 4, 4}));
  EXPECT_TRUE(two.narrow(1, 0, 2).equal(one));
  EXPECT_TRUE(two.narrow(1, 2, 2).lt(one).all().item<bool>());
}

TEST(ImageStage, SamplesLatentsFromTheGeneratorOncePerRun) {
  for (const auto layout : {LatentLayout::frames_first, LatentLayout::channels_first}) {
    const int64_t axis = frames_axis(layout);
    Conditioning conditioning;
    conditioning.latents = at::randn({1, 3, 3, 2, 2});
    conditioning.deviation = at::rand({1, 3, 3, 2, 2}).narrow(axis, 0, 1);
    const at::Tensor mean = conditioning.latents, before = mean.clone(), deviation = conditioning.deviation;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5), same = generator.clone();
    draw_latents(conditioning, layout, at::kBFloat16, generator);
    const at::Tensor noise = at::randn(deviation.sizes(), same, at::TensorOptions().dtype(at::kBFloat16));
    EXPECT_TRUE(mean.equal(before));
    EXPECT_TRUE(
        conditioning.latents.narrow(axis, 0, 1).equal(mean.narrow(axis, 0, 1) + deviation * noise.to(at::kFloat)));
    EXPECT_TRUE(conditioning.latents.narrow(axis, 1, 2).equal(mean.narrow(axis, 1, 2)));
    EXPECT_FALSE(conditioning.deviation.defined());
    EXPECT_TRUE(generator.get_state().equal(same.get_state()));
    draw_latents(conditioning, layout, at::kBFloat16, generator);  // the latents were drawn already
    EXPECT_TRUE(generator.get_state().equal(same.get_state()));
  }
}

}  // namespace
}  // namespace sparsereel::models
