// Checks the video that app/quickstart makes without arguments, as a player sees it. SPARSEREEL_FIRST_VIDEO names the
// file. .ci/run sets it.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "app/lab/bench/classifier.h"
#include "models/engine/components.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

at::Tensor tensor_of(const Decoded& video) {
  std::vector<at::Tensor> frames;
  for (const std::vector<uint8_t>& frame : video.frames)
    frames.push_back(at::tensor(frame, at::kByte).view({video.height, video.width, 3}));
  return at::stack(frames).to(at::kFloat).div(255);
}

class FirstVideo : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* file = std::getenv("SPARSEREEL_FIRST_VIDEO");
    if (file == nullptr) GTEST_SKIP() << "SPARSEREEL_FIRST_VIDEO is not set";
    video = decode_video(file);
  }

  Decoded video;
};

TEST_F(FirstVideo, SurvivesEncodingAndDecodingByItsOwnVae) {
  const c10::InferenceMode inference;
  const auto vae = models::load_vae(models::Checkpoint::open(SPARSEREEL_TINY_MODEL).component("vae"), at::kCPU,
                                    at::kFloat, models::VaeParts::both);
  const at::Tensor frame = tensor_of(video)[16].permute({2, 0, 1}).mul(2).sub(1).unsqueeze(0).unsqueeze(2).contiguous();
  const at::Tensor error = (vae->decode(vae->encode(frame, false).mean, false) - frame).div(2);
  EXPECT_GT(-10 * std::log10(error.square().mean().item<double>()), 30);
}

TEST_F(FirstVideo, ShowsTheRedCircleOfTheReadme) {
  EXPECT_EQ(video.codec, AV_CODEC_ID_H264);
  ASSERT_EQ(video.frames.size(), 33U);
  EXPECT_EQ(video.width, 256);
  EXPECT_EQ(video.height, 256);
  const bench::Classifier classifier(std::filesystem::path(SPARSEREEL_SOURCE_DIR) /
                                     "assets/tiny-training/judge.safetensors");
  EXPECT_EQ(classifier.read(tensor_of(video)),
            bench::traits_of("a red circle moving to the right on a blue background"));
}

}  // namespace
}  // namespace sparsereel::app
