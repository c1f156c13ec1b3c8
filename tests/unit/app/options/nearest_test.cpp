// Tests which name is suggested for a misspelled name.
#include "app/options/nearest.h"

#include <gtest/gtest.h>

namespace sparsereel::app {
namespace {

TEST(Nearest, FindsTheIntendedName) {
  const std::vector<std::string> names = {"steps", "seed", "scheduler", "frames", "negative_prompt"};
  EXPECT_EQ(nearest("stpes", names), "steps");
  EXPECT_EQ(nearest("sead", names), "seed");
  EXPECT_EQ(nearest("negativeprompt", names), "negative_prompt");
  EXPECT_EQ(nearest("colour", names), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), names), "");
}

}  // namespace
}  // namespace sparsereel::app
