// Merging of option values: strength of sources, exclusive options, wrong values.
#include "app/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

using ::testing::HasSubstr;

/// The cause of the Error that adding these values throws.
std::string cause_of(Source source, const std::map<std::string, std::string>& values, const std::string& file = {}) {
  Settings settings;
  try {
    settings.add(source, values, file);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_NE(error.remedy(), "");
    return error.what();
  }
  return "no error";
}

TEST(Settings, StrongerSourceWinsInWhateverOrderTheyAreAdded) {
  for (const bool strong_first : {true, false}) {
    Settings settings;
    if (strong_first) settings.add(Source::command_line, {{"steps", "1"}});
    settings.add(Source::matched_config, {{"steps", "3"}, {"fps", "16"}}, "m.yaml");
    settings.add(Source::config_file, {{"steps", "2"}}, "c.yaml");
    if (!strong_first) settings.add(Source::command_line, {{"steps", "1"}});
    EXPECT_EQ(settings.whole("steps"), 1);
    EXPECT_EQ(settings.number("fps"), 16);
    EXPECT_EQ(settings.describe("steps"), "--steps 1");
    EXPECT_EQ(settings.describe("fps"), "m.yaml: fps 16");
  }
}

TEST(Settings, StrongerChoiceRemovesWhatItExcludesInWhateverOrder) {
  for (const bool strong_first : {true, false}) {
    Settings settings;
    if (strong_first) settings.add(Source::command_line, {{"topk", "0.3"}});
    settings.add(Source::config_file, {{"cdf", "0.9"}}, "c.yaml");
    if (!strong_first) settings.add(Source::command_line, {{"topk", "0.3"}});
    EXPECT_EQ(settings.number("topk"), 0.3);
    EXPECT_FALSE(settings.has("cdf"));
  }
}

TEST(Settings, SizeStandsForBothSides) {
  Settings settings;
  settings.add(Source::config_file, {{"width", "64"}, {"height", "64"}}, "c.yaml");
  settings.add(Source::command_line, {{"size", "720x480"}});
  EXPECT_EQ(settings.whole("width"), 720);
  EXPECT_EQ(settings.whole("height"), 480);
}

TEST(Settings, UnsetOptionsAreEmpty) {
  const Settings settings;
  EXPECT_EQ(settings.whole("steps"), std::nullopt);
  EXPECT_EQ(settings.text("output", "video.mp4"), "video.mp4");
  EXPECT_TRUE(settings.flag("quiet", true));
}

TEST(Settings, SeedTakesSixtyFourBitsAndNoSign) {
  Settings settings;
  settings.add(Source::command_line, {{"seed", "18446744073709551615"}});
  EXPECT_EQ(settings.unsigned_whole("seed"), UINT64_MAX);
  settings.add(Source::command_line, {{"seed", "-1"}});
  EXPECT_THROW(settings.unsigned_whole("seed"), Error);
}

TEST(Settings, WrongValuesNameOptionOrFileAndKey) {
  EXPECT_THAT(cause_of(Source::command_line, {{"steps", "1.5"}}), HasSubstr("--steps 1.5"));
  EXPECT_THAT(cause_of(Source::command_line, {{"cfg_scale", "inf"}}), HasSubstr("--cfg-scale inf"));
  EXPECT_THAT(cause_of(Source::config_file, {{"quiet", "perhaps"}}, "c.yaml"), HasSubstr("c.yaml: quiet perhaps"));
  EXPECT_THAT(cause_of(Source::config_file, {{"attention", "dense"}}, "c.yaml"), HasSubstr("sparse"));
  EXPECT_THAT(cause_of(Source::config_file, {{"stepz", "1"}}, "c.yaml"), HasSubstr("c.yaml: the key stepz"));
  EXPECT_THAT(cause_of(Source::command_line, {{"size", "64"}}), HasSubstr("WxH"));
  EXPECT_THAT(cause_of(Source::command_line, {{"topk", "1"}, {"cdf", "1"}}), HasSubstr("--topk and --cdf"));
  EXPECT_THAT(cause_of(Source::config_file, {{"steps", "1"}, {"num_inference_steps", "1"}}, "c.yaml"),
              HasSubstr("twice"));
}

TEST(Settings, NumbersBeyondTheirRangeAreErrors) {
  EXPECT_THAT(cause_of(Source::command_line, {{"steps", "99999999999999999999"}}), HasSubstr("whole number"));
  Settings settings;
  settings.add(Source::command_line, {{"steps", "9223372036854775808"}});
  EXPECT_THROW(settings.whole("steps"), Error);
}

TEST(OptionTable, KeysAreFirstLongNames) {
  for (const OptionSpec& spec : option_table()) {
    const OptionSpec* found = find_option(spec.key);
    ASSERT_NE(found, nullptr) << spec.key;
    EXPECT_EQ(found->key, spec.key);
    EXPECT_NE(spec.help, "") << spec.key;
  }
  EXPECT_EQ(find_option("num_frames")->key, "frames");
  EXPECT_EQ(find_option("s"), nullptr);
}

}  // namespace
}  // namespace sparsereel::app
