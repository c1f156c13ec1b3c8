// Tests that an open pipeline serves videos with and without images, but not a video with another dtype.
#include "app/serve/planner.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace sparsereel::app::serve {
namespace {

TEST(OpenPipeline, ServesVideosWithAndWithoutImages) {
  const c10::InferenceMode guard;
  VideoTask video;
  video.options.run.model = std::string(SPARSEREEL_TEST_DATA) + "/pipeline";
  video.options.request.device = "cpu";
  video.options.run.with_images = false;
  OpenPipeline pipeline;
  EXPECT_FALSE(pipeline.serves(video));
  const models::Pipeline* opened = &pipeline.open(video);
  for (const auto& with_images : {std::optional(true), std::optional<bool>(), std::optional(false)}) {
    video.options.run.with_images = with_images;
    EXPECT_TRUE(pipeline.serves(video));
  }
  EXPECT_EQ(pipeline.get(), opened);
  video.options.request.dtype = "bf16";
  EXPECT_FALSE(pipeline.serves(video));
  pipeline.close();
  EXPECT_EQ(pipeline.get(), nullptr);
}

}  // namespace
}  // namespace sparsereel::app::serve
