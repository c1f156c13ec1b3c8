// CLI11 stores one description per option, but our help has several texts. Tests that they are joined and split again.
#include "app/options/option_text.h"

#include <gtest/gtest.h>

namespace sparsereel::app {
namespace {

TEST(OptionText, IsUnpackedAsItWasPacked) {
  const OptionText text = unpacked(packed({.help = "frames per second (default: the model's)",
                                           .manual = R"(Sets the rate.
                                                        It changes nothing else.)",
                                           .example = "sparsereel generate -p \"a  b\" --fps 16",
                                           .in_help = InHelp::research}));
  EXPECT_EQ(text.help, "frames per second (default: the model's)");
  EXPECT_EQ(text.manual, "Sets the rate. It changes nothing else.");
  EXPECT_EQ(text.example, "sparsereel generate -p \"a  b\" --fps 16");
  EXPECT_EQ(text.in_help, InHelp::research);
}

TEST(OptionText, OfAnOptionWithoutManualIsItsDescription) {
  const OptionText text = unpacked("a description of CLI11's own");
  EXPECT_EQ(text.help, "a description of CLI11's own");
  EXPECT_EQ(text.manual, "");
  EXPECT_EQ(text.example, "");
  EXPECT_EQ(text.in_help, InHelp::everywhere);
}

}  // namespace
}  // namespace sparsereel::app
