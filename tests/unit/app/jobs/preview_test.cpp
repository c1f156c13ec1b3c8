// Tests previews: which steps are drawn, what happens after an error, and which files are written.
#include "app/jobs/preview.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/media/video.h"
#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::ElementsAre;

constexpr std::array<models::LinearColor, 1> kChannels = {{{1, 1, 1}}};
constexpr models::LatentColors kGray = {.channels = kChannels};

models::LatentPreview gray() {
  return {kGray, models::LatentLayout::channels_first};
}

class PreviewsTest : public ::testing::Test {
 protected:
  /// Reports the steps from `first` to `steps` to `previews`, without a pause. The latents of step n have the value
  /// n / 100.
  void run(Previews& previews, int64_t first, int64_t steps) {
    for (int64_t step = first; step <= steps; ++step)
      previews.step({.step = step, .steps = steps, .predicted_latents = [this, step] {
                       drawn_.push_back(step);
                       return at::full({1, 1, 3, 4, 6}, static_cast<double>(step) / 100);
                     }});
  }

  c10::InferenceMode guard_;
  test::TemporaryFolder folder_;
  std::vector<int64_t> drawn_;
};

TEST_F(PreviewsTest, EndsWithTheLastStep) {
  int64_t last = 0;
  at::Tensor taken;
  Previews previews(gray(), [&](int64_t step, const at::Tensor& frames) {
    last = step;
    taken = frames;
  });
  run(previews, 1, 20);
  EXPECT_EQ(previews.finish(), nullptr);
  EXPECT_EQ(last, 20);
  EXPECT_TRUE(taken.equal(at::full({3, 4, 6, 3}, 153, at::kByte))) << taken;
  ASSERT_GE(drawn_.size(), 2U);
  EXPECT_EQ(drawn_.front(), 1);
  // The last step, and at most every third step from the first one on: steps 1, 4, 7, 10, 13, 16 and 19.
  EXPECT_LE(drawn_.size(), 8U);
}

TEST_F(PreviewsTest, BeginsWithTheFirstStepOfAResumedRun) {
  std::vector<int64_t> taken;
  Previews previews(gray(), [&](int64_t step, const at::Tensor&) { taken.push_back(step); });
  previews.step({.step = 1, .steps = 9});  // a step without latents, such as an encoded text
  run(previews, 9, 9);
  EXPECT_EQ(previews.finish(), nullptr);
  EXPECT_THAT(taken, ElementsAre(9));
}

TEST_F(PreviewsTest, DrawsNothingAfterAnError) {
  Previews previews(gray(), [](int64_t, const at::Tensor&) { throw std::runtime_error("full"); });
  run(previews, 1, 1);
  EXPECT_NE(previews.finish(), nullptr);
  run(previews, 1, 1);
  EXPECT_THAT(drawn_, ElementsAre(1));
}

TEST_F(PreviewsTest, WritesTheMiddleFrame) {
  const at::Tensor frames = at::zeros({3, 4, 6, 3}, at::kByte);
  const std::string file = folder_ / "preview.png";
  check_preview(file);
  EXPECT_FALSE(std::filesystem::exists(file));
  write_preview(file, frames, 1);
  const std::string black = test::read_text(file);
  EXPECT_EQ(black.substr(1, 3), "PNG");
  const std::vector<uint8_t> bytes = preview_png(frames);
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), black);
  EXPECT_EQ(black[19], 6) << "its width";
  EXPECT_EQ(black[23], 4) << "its height";
  const auto with = [&](int64_t index) {
    at::Tensor changed = frames.clone();
    changed.select(0, index).fill_(200);
    write_preview(file, changed, 1);
    return test::read_text(file);
  };
  EXPECT_EQ(with(0), black);
  EXPECT_NE(with(1), black);
  EXPECT_EQ(with(2), black);
}

TEST_F(PreviewsTest, WritesAGifOfAllFrames) {
  if (media_report().libraries.empty()) GTEST_SKIP() << "needs FFmpeg";
  const std::string file = folder_ / "preview.gif";
  check_preview(file);
  write_preview(file, at::arange(3 * 4 * 6 * 3).view({3, 4, 6, 3}).to(at::kByte), 1.5);
  EXPECT_EQ(test::read_text(file).substr(0, 6), "GIF89a");
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("preview.gif"));
}

TEST_F(PreviewsTest, RefusesOtherFiles) {
  EXPECT_THROW(check_preview(folder_ / "preview.jpg"), Error);
  EXPECT_THROW(check_preview(folder_ / "none/preview.png"), Error);
}

}  // namespace
}  // namespace sparsereel::app
