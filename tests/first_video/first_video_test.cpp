// The video that app/quickstart makes without arguments, as a player sees it. SPARSEREEL_FIRST_VIDEO names it; .ci/run
// sets that.
#include <gtest/gtest.h>

#include <cstdlib>

#include "app/commands/bench/judge.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

at::Tensor tensor_of(const Decoded& video) {
  std::vector<at::Tensor> frames;
  for (const std::vector<uint8_t>& frame : video.frames)
    frames.push_back(at::tensor(frame, at::kByte).view({video.height, video.width, 3}));
  return at::stack(frames).to(at::kFloat).div(255);
}

TEST(FirstVideo, ShowsTheRedCircleOfTheFrontPage) {
  const char* file = std::getenv("SPARSEREEL_FIRST_VIDEO");
  if (file == nullptr) GTEST_SKIP() << "SPARSEREEL_FIRST_VIDEO is not set";
  const Decoded video = decode_video(file);
  EXPECT_EQ(video.codec, AV_CODEC_ID_H264);
  ASSERT_EQ(video.frames.size(), 33U);
  EXPECT_EQ(video.width, 256);
  EXPECT_EQ(video.height, 256);
  const bench::Judge judge(std::filesystem::path(SPARSEREEL_SOURCE_DIR) / "assets/tiny-training/judge.safetensors");
  EXPECT_EQ(judge.read(tensor_of(video)), bench::traits_of("a red circle moving to the right on a blue background"));
}

}  // namespace
}  // namespace sparsereel::app
