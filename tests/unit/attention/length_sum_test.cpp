// Tests the sum from which the mean length of outputs is computed. It is exact, so it does not depend on the order.
#include "attention/length_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace sparsereel::attention {
namespace {

LengthSum sum_of(const std::vector<float>& lengths) {
  LengthSum sum;
  for (const float length : lengths) sum.add(length);
  return sum;
}

TEST(LengthSum, GivesTheMeanOfAnyLengths) {
  constexpr float kLargest = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sum_of({1, 2, 6}).mean(), 3);
  EXPECT_EQ(sum_of({0, 0}).mean(), 0);
  EXPECT_EQ(sum_of({kLeast, 3 * kLeast}).mean(), 2 * static_cast<double>(kLeast));
  EXPECT_EQ(sum_of({kLargest, kLargest}).mean(), static_cast<double>(kLargest));
  EXPECT_EQ(sum_of({1e-6F, 1e4F}).mean(), (static_cast<double>(1e-6F) + 1e4) / 2);
  for (int exponent = -149; exponent < 128; ++exponent) {
    const float power = std::ldexp(1.0F, exponent);
    EXPECT_EQ(sum_of({power}).mean(), static_cast<double>(power)) << exponent;
  }
}

TEST(LengthSum, IgnoresValuesThatAreNotFinite) {
  EXPECT_EQ(sum_of({NAN, 4, INFINITY}).mean(), 4);
  EXPECT_TRUE(std::isnan(sum_of({NAN, INFINITY}).mean()));
  EXPECT_TRUE(std::isnan(sum_of({}).mean()));
}

/// The lengths differ by so many orders of magnitude that a sum in fp32 or fp64 would depend on their order.
TEST(LengthSum, IsTheSameInAnyOrder) {
  std::mt19937 generator(1);
  std::lognormal_distribution<float> lengths(0, 20);
  std::vector<float> all(5000);
  for (float& each : all) each = lengths(generator);
  const LengthSum first = sum_of(all);
  EXPECT_NEAR(first.mean(), std::accumulate(all.begin(), all.end(), 0.0) / 5000, 1e-9 * first.mean());
  for (int i = 0; i < 5; ++i) {
    std::shuffle(all.begin(), all.end(), generator);
    const LengthSum again = sum_of(all);
    EXPECT_TRUE(std::equal(std::begin(first.bins), std::end(first.bins), std::begin(again.bins)));
    EXPECT_EQ(again.mean(), first.mean());
  }
}

}  // namespace
}  // namespace sparsereel::attention
