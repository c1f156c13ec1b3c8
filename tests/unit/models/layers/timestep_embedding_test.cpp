// Tests timestep sinusoids at points where their values are known.
#include "models/layers/timestep_embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sparsereel::models {
namespace {

TEST(TimestepSinusoids, AreSinesThenCosinesOrFlipped) {
  const at::Tensor times = at::tensor(std::vector<int64_t>{0, 3});
  const at::Tensor plain = timestep_sinusoids(times, 8, false, 0), flipped = timestep_sinusoids(times, 8, true, 0);
  for (int64_t i = 0; i < 4; ++i) {
    const double angle = 3 * std::pow(10000.0, -static_cast<double>(i) / 4);
    EXPECT_NEAR(plain[1][i].item<double>(), std::sin(angle), 1e-6);
    EXPECT_NEAR(plain[1][4 + i].item<double>(), std::cos(angle), 1e-6);
    EXPECT_EQ(flipped[1][i].item<float>(), plain[1][4 + i].item<float>());
    EXPECT_EQ(flipped[1][4 + i].item<float>(), plain[1][i].item<float>());
    EXPECT_EQ(plain[0][i].item<float>(), 0);
  }
}

TEST(TimestepSinusoids, ReachTheLowestFrequencyWithAShift) {
  const at::Tensor times = at::tensor(std::vector<int64_t>{5000});
  EXPECT_NEAR(timestep_sinusoids(times, 8, false, 1)[0][3].item<double>(), std::sin(0.5), 1e-5);
}

TEST(TimestepSinusoids, PadAnOddWidthWithZero) {
  const at::Tensor table = timestep_sinusoids(at::tensor(std::vector<int64_t>{7}), 9, true, 0);
  EXPECT_EQ(table.size(1), 9);
  EXPECT_EQ(table[0][8].item<float>(), 0);
}

}  // namespace
}  // namespace sparsereel::models
