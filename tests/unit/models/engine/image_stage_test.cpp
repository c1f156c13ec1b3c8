// Where the latents of an image come to stand.
#include "models/engine/image_stage.h"

#include <ATen/ATen.h>
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

}  // namespace
}  // namespace sparsereel::models
