// Where the latents of an image come to stand.
#include "models/engine/image_stage.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TEST(ImageStage, ItsLatentsAreTheFirstThatAreNoFilling) {
  for (const auto layout : {LatentLayout::frames_first, LatentLayout::channels_first}) {
    ModelSpec spec;
    spec.latent_channels = 4;
    spec.patch = {2, 1, 1};
    spec.layout = layout;
    Plan plan;
    plan.latent = {.frames = 3, .height = 2, .width = 5};
    Conditioning conditioning;
    const at::Tensor latents = at::randn({1, 4, 1, 2, 5});
    keep_first_frame(conditioning, latents, plan, spec);
    const int64_t axis = frames_axis(layout);
    EXPECT_EQ(conditioning.latents.sizes(), at::IntArrayRef(latents_shape(spec, plan.latent)));
    EXPECT_TRUE(conditioning.latents.select(axis, 1).equal(latents.select(2, 0)));
    EXPECT_TRUE(conditioning.mask.view(-1).equal(at::tensor({1.0F, 0.0F, 1.0F, 1.0F})));
    EXPECT_EQ(conditioning.mask.size(axis), 4);
  }
}

TEST(ImageStage, DrawsLatentsFromTheGeneratorOnceARun) {
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
    draw_latents(conditioning, layout, at::kBFloat16, generator);  // there are none left
    EXPECT_TRUE(generator.get_state().equal(same.get_state()));
  }
}

}  // namespace
}  // namespace sparsereel::models
