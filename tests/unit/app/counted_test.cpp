// Tests that a number below a bound is printed with enough digits to look smaller than the bound.
#include "app/counted.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sparsereel::app {
namespace {

TEST(FixedBelow, PrintsEnoughDigitsToStayBelowTheBound) {
  EXPECT_EQ(fixed_below(28.5, 30, 2), "28.50");
  EXPECT_EQ(fixed_below(29.9963, 30, 2), "29.996");
  EXPECT_EQ(fixed_below(29.99996, 30, 2), "29.99996");
  EXPECT_EQ(fixed_below(0.99996, 0.99999, 4), "0.99996");
  EXPECT_LT(std::stod(fixed_below(std::nextafter(0.9, 0), 0.9, 4)), 0.9);
  EXPECT_EQ(fixed_below(31.004, 30, 2), "31.00") << "it is not below";
  EXPECT_EQ(fixed_below(std::numeric_limits<double>::infinity(), 30, 2), "inf");
}

}  // namespace
}  // namespace sparsereel::app
