// Compares the fused row kernels with plain loops in double precision, at widths around the lengths of vector
// registers.
#include "models/layers/row_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sparsereel::models {
namespace {

std::vector<float> random_floats(size_t count, float mean, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(mean, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

class RowKernels : public ::testing::TestWithParam<int64_t> {
 protected:
  static constexpr int64_t kRows = 3;
  int64_t channels_ = GetParam();
  size_t width_ = static_cast<size_t>(GetParam());
  size_t size_ = static_cast<size_t>(kRows * GetParam());
};

TEST_P(RowKernels, ComputeLayerNormLikeDoublePrecision) {
  // The mean is far from zero. A variance computed as E(x^2) - E(x)^2 would be wrong, because both terms are large.
  const std::vector<float> x = random_floats(size_, 100.0F, 1), weight = random_floats(width_, 1.0F, 2),
                           bias = random_floats(width_, 0.0F, 3);
  std::vector<float> y(size_);
  layer_norm_rows({.input = x.data(),
                   .output = y.data(),
                   .weight = weight.data(),
                   .bias = bias.data(),
                   .rows = kRows,
                   .channels = channels_,
                   .eps = 1e-5F});
  for (size_t row = 0; row < kRows; ++row) {
    const float* in = x.data() + row * width_;
    double mean = 0, variance = 0;
    for (size_t c = 0; c < width_; ++c) mean += in[c] / static_cast<double>(width_);
    for (size_t c = 0; c < width_; ++c) variance += (in[c] - mean) * (in[c] - mean) / static_cast<double>(width_);
    for (size_t c = 0; c < width_; ++c) {
      EXPECT_NEAR(y[row * width_ + c], (in[c] - mean) / std::sqrt(variance + 1e-5) * weight[c] + bias[c], 1e-4)
          << row << " " << c;
    }
  }
}

TEST_P(RowKernels, ComputeLayerNormInPlace) {
  std::vector<float> x = random_floats(size_, 1.0F, 4), y(size_);
  const std::vector<float> weight = random_floats(width_, 1.0F, 5), bias(width_, 0.5F);
  LayerNormRows rows{.input = x.data(),
                     .output = y.data(),
                     .weight = weight.data(),
                     .bias = bias.data(),
                     .rows = kRows,
                     .channels = channels_,
                     .eps = 1e-5F};
  layer_norm_rows(rows);
  rows.output = x.data();
  layer_norm_rows(rows);
  EXPECT_EQ(x, y);
}

TEST_P(RowKernels, AddGateTimesUpdate) {
  const std::vector<float> before = random_floats(size_, 0.0F, 6), update = random_floats(size_, 0.0F, 7),
                           gate = random_floats(width_, 0.0F, 8);
  std::vector<float> residual = before;
  add_gated_rows({.residual = residual.data(),
                  .update = update.data(),
                  .gate = gate.data(),
                  .rows = kRows,
                  .channels = channels_});
  for (size_t i = 0; i < size_; ++i)
    EXPECT_NEAR(residual[i], before[i] + static_cast<double>(gate[i % width_]) * update[i], 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Widths, RowKernels, ::testing::Values(1, 15, 16, 63, 64, 65, 127, 200, 256, 1920),
                         ::testing::PrintToStringParamName());

TEST(RowKernelsWithoutRows, AccessNoMemory) {
  layer_norm_rows({.input = nullptr,
                   .output = nullptr,
                   .weight = nullptr,
                   .bias = nullptr,
                   .rows = 0,
                   .channels = 64,
                   .eps = 1e-5F});
  add_gated_rows({.residual = nullptr, .update = nullptr, .gate = nullptr, .rows = 0, .channels = 64});
}

}  // namespace
}  // namespace sparsereel::models
