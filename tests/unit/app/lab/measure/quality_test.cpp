// Compares PSNR, SSIM and the relative L1 error with values that were computed by hand, and MS-SSIM with its reference.
#include "app/lab/measure/quality.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sparsereel::app::bench {
namespace {

/// Returns frames with waves from 0.1 to 0.9. Frames and channels differ.
at::Tensor pattern(int64_t frames, int64_t height, int64_t width) {
  const at::Tensor t = at::arange(frames, at::kFloat).view({frames, 1, 1, 1});
  const at::Tensor y = at::arange(height, at::kFloat).view({1, height, 1, 1});
  const at::Tensor x = at::arange(width, at::kFloat).view({1, 1, width, 1});
  const at::Tensor c = at::arange(3, at::kFloat).view({1, 1, 1, 3});
  return at::sin(0.3 * x + 0.2 * y + t + c) * 0.4 + 0.5;
}

TEST(Psnr, IsTheLogarithmOfAConstantError) {
  const at::Tensor frames = at::full({2, 16, 16, 3}, 0.5F);
  EXPECT_NEAR(*psnr(frames + 0.1, frames), 20, 1e-4);
  EXPECT_NEAR(*psnr(frames - 0.01, frames), 40, 1e-3);
  EXPECT_FALSE(psnr(frames, frames).has_value());
}

TEST(Ssim, IsOneForEqualFrames) {
  const at::Tensor frames = pattern(11, 24, 20);
  EXPECT_NEAR(ssim(frames, frames, at::kCPU), 1, 1e-6);
}

TEST(Ssim, IsTheTermOfTheMeansForFlatFrames) {
  const at::Tensor a = at::full({1, 16, 16, 3}, 0.5F), b = at::full({1, 16, 16, 3}, 0.7F);
  const double c1 = 1e-4;
  const double expected = (2 * 0.5 * 0.7 + c1) / (0.25 + 0.49 + c1);
  EXPECT_NEAR(ssim(a, b, at::kCPU), expected, 1e-6);
}

TEST(Ssim, MatchesTheFormulaForAChangeOfContrast) {
  // The means mx of x and my of y = 0.5 x + 0.25 are both near 0.5. With vx, the variance of x in a window, y has the
  // variance 0.25 vx and the covariance 0.5 vx with x. So the SSIM of the window is
  // (2 mx my + C1)(vx + C2) / ((mx^2 + my^2 + C1)(1.25 vx + C2)).
  const at::Tensor x = pattern(9, 32, 32), y = x * 0.5 + 0.25;
  const double forward = ssim(x, y, at::kCPU), backward = ssim(y, x, at::kCPU);
  EXPECT_NEAR(forward, backward, 1e-6) << "it is symmetric";
  EXPECT_GT(forward, 0.7);
  EXPECT_LT(forward, 0.81) << "at most the contrast term, 2 * 0.5 / 1.25";
}

TEST(Ssim, CountsFramesAfterTheFirstChunkAlike) {
  const at::Tensor frames = pattern(9, 16, 16);
  at::Tensor changed = frames.clone();
  changed[8].copy_(1 - frames[8]);
  const double last = ssim(changed.narrow(0, 8, 1), frames.narrow(0, 8, 1), at::kCPU);
  EXPECT_NEAR(ssim(changed, frames, at::kCPU), (8 + last) / 9, 1e-5);
}

/// The expected values come from pytorch-msssim 1.0.0 for luma as a single channel in fp64.
TEST(MsSsim, MatchesTheReferenceImplementation) {
  const at::Tensor x = pattern(2, 176, 192);
  EXPECT_NEAR(*ms_ssim(x.roll({2, 3}, {1, 2}) * 0.7 + 0.1, x, at::kCPU), 0.2751078039182075, 1e-6);
  const at::Tensor waves = at::sin(at::arange(192, at::kDouble).view({1, 1, 192, 1}) * 1.7) *
                           at::sin(at::arange(176, at::kDouble).view({1, 176, 1, 1}) * 2.3);
  EXPECT_NEAR(*ms_ssim((x + 0.1 * waves).to(at::kFloat), x, at::kCPU), 0.9947268720757245, 1e-6);
  EXPECT_NEAR(*ms_ssim(x, x, at::kCPU), 1, 1e-9);
}

TEST(MsSsim, CountsFramesAfterTheFirstChunkAlike) {
  const at::Tensor frames = pattern(9, 176, 176), changed = frames.clone();
  changed[8].copy_(frames[8] * 0.5 + 0.25);
  const double last = *ms_ssim(changed.narrow(0, 8, 1), frames.narrow(0, 8, 1), at::kCPU);
  EXPECT_NEAR(*ms_ssim(changed, frames, at::kCPU), (8 + last) / 9, 1e-6);
}

TEST(MsSsim, IsZeroIfTheStructureIsReversed) {
  const at::Tensor x = pattern(1, 176, 176);
  EXPECT_EQ(*ms_ssim(1 - x, x, at::kCPU), 0) << "structure is reversed";
}

TEST(MsSsim, NeedsFramesThatAreLargeEnoughForFiveScales) {
  EXPECT_TRUE(ms_ssim(pattern(1, 176, 176), pattern(1, 176, 176), at::kCPU).has_value());
  EXPECT_FALSE(ms_ssim(pattern(1, 175, 400), pattern(1, 175, 400), at::kCPU).has_value());
  EXPECT_FALSE(ms_ssim(pattern(1, 400, 175), pattern(1, 400, 175), at::kCPU).has_value());
}

TEST(RelativeL1, DividesByTheSizeOfTheReference) {
  EXPECT_DOUBLE_EQ(relative_l1(at::full({4}, 3.0), at::full({4}, 2.0)), 0.5);
  EXPECT_DOUBLE_EQ(relative_l1(at::ones({2}, at::kBFloat16), at::ones({2}, at::kBFloat16)), 0);
}

}  // namespace
}  // namespace sparsereel::app::bench
