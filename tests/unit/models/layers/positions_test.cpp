// Tests tables of positions and rotary angles at points where their values are known.
#include "models/layers/positions.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

at::Tensor floats(std::vector<float> values) {
  return at::tensor(values);
}

TEST(AxisPositions, AreIndicesAtTheBaseSize) {
  const AxisPositions positions = cropped_axis_positions({3, 4, 6}, 4, 6);
  EXPECT_TRUE(close_to(positions.t, floats({0, 1, 2}), 1e-6));
  EXPECT_TRUE(close_to(positions.h, floats({0, 1, 2, 3}), 1e-6));
  EXPECT_TRUE(close_to(positions.w, floats({0, 1, 2, 3, 4, 5}), 1e-6));
}

TEST(AxisPositions, CropAWiderGridAtTheCenterOfTheHeight) {
  // To fit into 30 x 45, a grid of 4 x 16 is resized to 11 x 45, because 45 / 16 * 4 = 11.25. Of the 19 free rows,
  // round(19 / 2) = 10 are above it (ties round to even). Columns are 45 / 16 apart.
  const AxisPositions positions = cropped_axis_positions({1, 4, 16}, 30, 45);
  EXPECT_FLOAT_EQ(positions.h[0].item<float>(), 10);
  EXPECT_FLOAT_EQ(positions.h[3].item<float>(), 21.0F * 3 / 4);
  EXPECT_FLOAT_EQ(positions.w[0].item<float>(), 0);
  EXPECT_FLOAT_EQ(positions.w[15].item<float>(), 45.0F * 15 / 16);
}

TEST(AxisPositions, CropATallerGridAtTheCenterOfTheWidth) {
  // To fit into 30 x 45, a grid of 20 x 10 is resized to 30 x 15. Of the 30 free columns, 15 are to the left of it.
  const AxisPositions positions = cropped_axis_positions({1, 20, 10}, 30, 45);
  EXPECT_FLOAT_EQ(positions.h[0].item<float>(), 0);
  EXPECT_FLOAT_EQ(positions.h[19].item<float>(), 30.0F * 19 / 20);
  EXPECT_FLOAT_EQ(positions.w[0].item<float>(), 15);
  EXPECT_FLOAT_EQ(positions.w[9].item<float>(), 30.0F * 9 / 10);
}

TEST(AxisPositions, StartAtZeroForOneToken) {
  const AxisPositions positions = cropped_axis_positions({1, 1, 1}, 1, 1);
  EXPECT_TRUE(close_to(positions.h, floats({0}), 0));
}

TEST(RotaryPositions, HoldTimeThenRowThenColumnInInterleavedPairs) {
  const hilbert::Grid grid{2, 3, 4};
  const RotaryTable table = rotary_positions_3d({8, 12, 12}, plain_axis_positions(grid, at::kFloat));
  ASSERT_EQ(table.cos.sizes(), at::IntArrayRef({24, 32}));
  EXPECT_EQ(table.cos.scalar_type(), at::kFloat);
  const auto angle = [&](int64_t t, int64_t h, int64_t w, int64_t i) {
    const int64_t token = (t * 3 + h) * 4 + w;
    return std::atan2(table.sin[token][i].item<double>(), table.cos[token][i].item<double>());
  };
  for (const int64_t i : {0, 1}) {  // the first pair of each axis has the position as its angle
    EXPECT_NEAR(angle(1, 2, 3, i), 1, 1e-6);
    EXPECT_NEAR(angle(1, 2, 3, 8 + i), 2, 1e-6);
    EXPECT_NEAR(angle(1, 2, 3, 20 + i), 3, 1e-6);
  }
  EXPECT_NEAR(angle(1, 0, 0, 2), std::pow(10000.0, -2.0 / 8), 1e-6);
  EXPECT_NEAR(angle(0, 2, 0, 11), 2 * std::pow(10000.0, -2.0 / 12), 1e-6);
  EXPECT_NEAR(angle(0, 2, 0, 22), 0, 1e-6);
}

TEST(SincosPositions, HoldTimeThenColumnThenRow) {
  const hilbert::Grid grid{2, 3, 4};
  const at::Tensor table = sincos_positions_3d(32, grid, 2.0, 0.5);
  ASSERT_EQ(table.sizes(), at::IntArrayRef({24, 32}));
  const at::Tensor token = table[(1 * 3 + 2) * 4 + 3];  // t 1, row 2, column 3
  EXPECT_NEAR(token[0].item<double>(), std::sin(1 / 0.5), 1e-6);
  EXPECT_NEAR(token[4].item<double>(), std::cos(1 / 0.5), 1e-6);
  EXPECT_NEAR(token[8].item<double>(), std::sin(3 / 2.0), 1e-6);
  EXPECT_NEAR(token[14].item<double>(), std::cos(3 / 2.0), 1e-6);
  EXPECT_NEAR(token[20].item<double>(), std::sin(2 / 2.0), 1e-6);
  EXPECT_NEAR(token[21].item<double>(), std::sin(1.0 * std::pow(10000.0, -1.0 / 6)), 1e-6);
}

}  // namespace
}  // namespace sparsereel::models
