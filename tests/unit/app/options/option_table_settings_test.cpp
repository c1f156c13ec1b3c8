// Tests how option values from several sources are merged: which source overrides which, which options exclude each
// other, and which values are refused.
#include "app/options/option_table.h"
#include "models/request/asked_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/request/request.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Returns the cause of the Error that adding these values throws.
std::string cause_of(Source source, const std::map<std::string, std::string>& values, const std::string& file = {}) {
  Settings settings;
  try {
    settings.add(source, values, file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(error.remedy(), "");
    return error.what();
  }
  return "no error";
}

TEST(Settings, PreferTheStrongerSourceInAnyOrderOfAddition) {
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

TEST(Settings, RemoveWeakerChoicesThatAStrongerOneExcludesInAnyOrder) {
  for (const bool strong_first : {true, false}) {
    Settings settings;
    if (strong_first) settings.add(Source::command_line, {{"topk", "0.3"}});
    settings.add(Source::config_file, {{"cdf", "0.9"}}, "c.yaml");
    if (!strong_first) settings.add(Source::command_line, {{"topk", "0.3"}});
    EXPECT_EQ(settings.number("topk"), 0.3);
    EXPECT_FALSE(settings.has("cdf"));
  }
}

TEST(Settings, RemoveValuesThatAStrongerChoiceOfMeansExcludes) {
  using Values = std::map<std::string, std::string>;
  struct Case {
    Values weak, strong, left;  // `strong` overrides `weak`; `left` is what remains of `weak`
  };
  const Values published = {{"dropped", "none"}, {"select", "mass"}, {"topk", "0.3"}};
  const Values by_error = {{"dropped", "mean"}, {"select", "error"}, {"error", "0.05"}};
  const Values by_block = {{"dropped", "mean"}, {"select", "error"}, {"block_error", "0.05"}};
  for (const auto& [weak, strong, left] :
       {Case{published, {{"error", "0.05"}}, {}}, Case{published, {{"select", "error"}}, {{"topk", "0.3"}}},
        Case{published, {{"dropped", "mean"}}, {{"select", "mass"}, {"topk", "0.3"}}},
        Case{by_error, {{"dropped", "none"}}, {}}, Case{by_error, {{"select", "mass"}}, {{"dropped", "mean"}}},
        Case{by_error, {{"topk", "0.3"}}, {{"dropped", "mean"}, {"select", "error"}}},
        Case{by_error, {{"dropped", "mean"}}, {{"select", "error"}, {"error", "0.05"}}},
        Case{published, {{"block_error", "0.05"}}, {}}, Case{by_block, {{"dropped", "none"}}, {}},
        Case{by_block, {{"select", "mass"}}, {{"dropped", "mean"}}},
        Case{by_block, {{"error", "0.3"}}, {{"dropped", "mean"}, {"select", "error"}}},
        Case{by_error, {{"block_error", "0.3"}}, {{"dropped", "mean"}, {"select", "error"}}}}) {
    for (const bool strong_first : {true, false}) {
      Settings settings;
      if (strong_first) settings.add(Source::command_line, strong);
      settings.add(Source::recipe, weak, "a.mp4");
      if (!strong_first) settings.add(Source::command_line, strong);
      Values found;
      for (const auto& [key, value] : weak)
        if (settings.has(key) && settings.find(key)->source == Source::recipe) found[key] = value;
      EXPECT_EQ(found, left) << strong.begin()->first << " " << strong_first;
    }
  }
}

TEST(Settings, TurnASizeIntoWidthAndHeight) {
  Settings settings;
  settings.add(Source::config_file, {{"width", "64"}, {"height", "64"}}, "c.yaml");
  settings.add(Source::command_line, {{"size", "720x480"}});
  EXPECT_EQ(settings.whole("width"), 720);
  EXPECT_EQ(settings.whole("height"), 480);
}

TEST(Settings, LetAnAreaReplaceWeakerSidesAndYieldToStrongerOnes) {
  Settings settings;
  settings.add(Source::recipe, {{"width", "64"}, {"height", "64"}}, "v.mp4");
  settings.add(Source::config_file, {{"size", "720p"}}, "c.yaml");
  settings.add(Source::matched_config, {{"size", "832x480"}}, "m.yaml");
  EXPECT_EQ(settings.text("size"), "720p");
  EXPECT_FALSE(settings.has("width") || settings.has("height"));
  settings.add(Source::command_line, {{"width", "320"}});
  EXPECT_FALSE(settings.has("size"));
  EXPECT_EQ(settings.whole("width"), 320);
}

TEST(Settings, AreEmptyForUnsetOptions) {
  const Settings settings;
  EXPECT_EQ(settings.whole("steps"), std::nullopt);
  EXPECT_EQ(settings.text("output", "video.mp4"), "video.mp4");
  EXPECT_TRUE(settings.flag("quiet", true));
}

TEST(Settings, AcceptUnsigned64BitSeeds) {
  Settings settings;
  settings.add(Source::command_line, {{"seed", "18446744073709551615"}});
  EXPECT_EQ(settings.unsigned_whole("seed"), UINT64_MAX);
  settings.add(Source::command_line, {{"seed", "-1"}});
  EXPECT_THROW(settings.unsigned_whole("seed"), Error);
}

TEST(Settings, NameTheOptionOrTheFileAndKeyOfWrongValues) {
  EXPECT_THAT(cause_of(Source::command_line, {{"steps", "1.5"}}), HasSubstr("--steps 1.5"));
  EXPECT_THAT(cause_of(Source::command_line, {{"cfg_scale", "inf"}}), HasSubstr("--cfg-scale inf"));
  EXPECT_THAT(cause_of(Source::config_file, {{"quiet", "perhaps"}}, "c.yaml"), HasSubstr("c.yaml: quiet perhaps"));
  EXPECT_THAT(cause_of(Source::config_file, {{"attention", "dense"}}, "c.yaml"), HasSubstr("sparse"));
  EXPECT_THAT(cause_of(Source::config_file, {{"stepz", "1"}}, "c.yaml"), HasSubstr("c.yaml: the key stepz"));
  EXPECT_THAT(cause_of(Source::command_line, {{"size", "64"}}), HasSubstr("WxH"));
  EXPECT_THAT(cause_of(Source::command_line, {{"size", "720 p"}}), HasSubstr("nor an area such as 720p"));
  EXPECT_THAT(cause_of(Source::command_line, {{"topk", "1"}, {"cdf", "1"}}), HasSubstr("--topk and --cdf"));
  EXPECT_EQ(cause_of(Source::command_line, {{"topk", "1"}, {"error", "1"}}), "--topk and --error exclude each other");
  EXPECT_EQ(cause_of(Source::command_line, {{"error", "1"}, {"block_error", "1"}}),
            "--error and --block-error exclude each other");
  EXPECT_EQ(cause_of(Source::command_line, {{"dropped", "none"}, {"select", "error"}}),
            "--dropped none and --select error exclude each other");
  EXPECT_EQ(cause_of(Source::config_file, {{"select", "mass"}, {"error", "1"}}, "c.yaml"),
            "c.yaml: select mass and c.yaml: error exclude each other");
  EXPECT_EQ(cause_of(Source::command_line, {{"dropped", "mean"}, {"select", "mass"}}), "no error");
  EXPECT_THAT(cause_of(Source::command_line, {{"cell", "48"}}), HasSubstr("--cell 48: one of 16, 32, 64"));
  EXPECT_THAT(cause_of(Source::config_file, {{"steps", "1"}, {"num_inference_steps", "1"}}, "c.yaml"),
              HasSubstr("twice"));
}

TEST(Settings, SuggestTheNearestNameOrChoice) {
  const auto remedy = [](const std::string& key, const std::string& value) {
    try {
      Settings().add(Source::config_file, {{key, value}}, "c.yaml");
    } catch (const Error& error) {
      return error.remedy();
    }
    return std::string();
  };
  EXPECT_THAT(remedy("stepz", "1"), HasSubstr("did you mean steps?"));
  EXPECT_THAT(remedy("negativeprompt", "1"), HasSubstr("did you mean negative_prompt?"));
  EXPECT_THAT(remedy("attention", "spares"), HasSubstr("did you mean sparse?"));
  EXPECT_THAT(remedy("dtype", "bf61"), HasSubstr("did you mean bf16?"));
  EXPECT_THAT(remedy("zebra", "1"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(remedy(std::string(100'000, 's'), "1"), Not(HasSubstr("did you mean")));
}

TEST(Settings, AddThePlaceOfAValueToErrorsOfLaterStages) {
  Settings settings;
  settings.add(Source::command_line, {{"width", "8"}});
  settings.add(Source::config_file, {{"frames", "8"}, {"topk", "3"}}, "c.yaml",
               {{"frames", {{2, 1}, {2, 9}}}, {"topk", {{3, 1}, {3, 7}}}});
  const auto placed = [&](const char* field, const char* problem) -> std::string {
    return settings.with_place(bad_option(field, problem, "r")).what();
  };
  EXPECT_EQ(placed("frames", "8 is wrong"), "c.yaml:2:9: frames 8 is wrong");
  EXPECT_EQ(placed("num_frames", "8 is wrong"), "c.yaml:2:9: frames 8 is wrong");
  EXPECT_EQ(placed("topk", "is 3"), "c.yaml:3:7: topk is 3");
  EXPECT_EQ(placed("width", "8 is wrong"), "--width 8 is wrong");
  EXPECT_EQ(placed("negative_prompt", "is too long"), "--negative-prompt is too long");  // no source gave this option
  EXPECT_EQ(placed("per_head[0][1].topk", "is 3"), "per_head[0][1].topk is 3");
  settings.given_as_lists({"--topk"});
  EXPECT_EQ(placed("topk", "is 3"), "--topk is 3");
  EXPECT_STREQ(settings.with_place(bad_input("frames 8 is wrong", "r")).what(), "frames 8 is wrong");
}

TEST(Settings, NameTheLineOfARowOfASet) {
  Settings settings;
  settings.add(Source::row, {{"frames", "8"}}, "set.csv", {{"frames", {.key = {.line = 3}, .value = {.line = 3}}}});
  const Error placed = settings.with_place(bad_option("frames", "8 is wrong", "r"));
  EXPECT_STREQ(placed.what(), "set.csv:3: frames 8 is wrong");
  EXPECT_EQ(placed.file(), "set.csv");
  EXPECT_EQ(settings.with_place(bad_option("steps", "0 is wrong", "r")).file(), "");
  EXPECT_EQ(settings.describe("frames"), "frames 8") << "the row's place stands before its warnings";
}

/// Puts the values into a configuration file. Returns the key that with_place() names for an error about `file`; empty
/// if it names none.
std::string blamed(const std::map<std::string, std::string>& values, const std::string& file,
                   const std::map<std::string, std::string>& command_line = {}) {
  Settings settings;
  settings.add(Source::command_line, command_line);
  settings.add(Source::config_file, values, "c.yaml");
  const Error error = bad_file(file, "is wrong", "r");
  const std::string cause = error.what(), placed = settings.with_place(error).what();
  if (placed == cause) return "";
  EXPECT_TRUE(placed.starts_with("c.yaml: ") && placed.ends_with(": " + cause)) << placed;
  return placed.substr(8, placed.size() - cause.size() - 10);
}

TEST(Settings, AddThePlaceThatNamesAFileToErrorsOfThatFile) {
  EXPECT_EQ(blamed({{"output", "a.mp5"}}, "a.mp5"), "output");
  EXPECT_EQ(blamed({{"profile", "p.yaml"}}, "p.yaml"), "profile");
  EXPECT_EQ(blamed({{"output", "out/a.mp4"}}, std::filesystem::absolute("out/a.mp4").string()), "output");
  for (const char* model : {"models/2b", "models/2b/"})
    EXPECT_EQ(blamed({{"model", model}}, "models/2b/vae/config.json"), "model");
  for (const char* file : {"a.safetensors", "b.safetensors"})
    EXPECT_EQ(blamed({{"lora", "a.safetensors:0.5, b.safetensors@high"}}, file), "lora");
}

TEST(Settings, DoNotBlameFilesForErrorsOfOthers) {
  EXPECT_EQ(blamed({{"output", "a"}}, "a.mp4"), "");
  EXPECT_EQ(blamed({{"output", "a"}}, "a/b.png"), "");
  EXPECT_EQ(blamed({{"output", "b.png"}}, "a/b.png"), "");
  EXPECT_EQ(blamed({{"model", "models/2"}}, "models/2b/vae/config.json"), "");
  EXPECT_EQ(blamed({{"lora", "a:0.5,b"}}, "a:0.5"), "");
}

TEST(Settings, BlameTheFileThatTheErrorNamesInFull) {
  const std::string file = "models/a.mp4";
  EXPECT_EQ(blamed({{"model", "models"}, {"from", file}}, file), "from");
  EXPECT_EQ(blamed({{"model", "models"}}, file, {{"from", file}}), "");
  EXPECT_EQ(blamed({{"model", "models"}, {"lora", "models/a.mp4"}}, file), "lora");
  EXPECT_EQ(blamed({{"output", "a"}, {"contact_sheet", "a"}}, "a"), "");
  EXPECT_EQ(blamed({{"output", "a"}, {"contact_sheet", "./a"}}, "a"), "");
}

TEST(Settings, RefuseNumbersBeyondTheirRange) {
  EXPECT_THAT(cause_of(Source::command_line, {{"steps", "99999999999999999999"}}), HasSubstr("whole number"));
  Settings settings;
  settings.add(Source::command_line, {{"steps", "9223372036854775808"}});
  EXPECT_THROW(settings.whole("steps"), Error);
}

TEST(Settings, RefuseChoicesInTheWordsOfTheLibrary) {
  const auto words = [](const auto& parse) -> std::string {
    try {
      parse("mist");
    } catch (const Error& error) {
      return Settings().with_place(error).what();
    }
    return "no error";
  };
  const auto dtype = [](const char* text) { models::resolve_dtype(text, at::kCPU, at::kFloat); };
  EXPECT_EQ(cause_of(Source::command_line, {{"attention", "mist"}}), words(attention::parse_mode));
  EXPECT_EQ(cause_of(Source::command_line, {{"dropped", "mist"}}), words(attention::parse_dropped));
  EXPECT_EQ(cause_of(Source::command_line, {{"select", "mist"}}), words(attention::parse_ranking));
  EXPECT_EQ(cause_of(Source::command_line, {{"token_order", "mist"}}), words(hilbert::parse_token_order));
  EXPECT_EQ(cause_of(Source::command_line, {{"vae_tiling", "mist"}}), words(models::parse_vae_tiling));
  EXPECT_EQ(cause_of(Source::command_line, {{"dtype", "mist"}}), words(dtype));
}

TEST(OptionTable, NamesTheDefaultsOfThePolicyForBlockSelection) {
  const attention::Policy policy;
  const auto help = [](const char* key) { return find_option(key)->help; };
  EXPECT_THAT(help("dropped"), HasSubstr("(default " + std::string(attention::name(policy.dropped)) + ")"));
  EXPECT_THAT(help("cell"), HasSubstr("(default " + std::to_string(policy.cell)));
  EXPECT_THAT(help("arithmetic"), HasSubstr("(default " + std::to_string(policy.arithmetic) + ")"));
  EXPECT_THAT(help("similarity"), HasSubstr("(default -0.1: none)"));
  EXPECT_THAT(help("pv_threshold"), HasSubstr("(default 50: never)"));
  EXPECT_EQ(help("topk").find("(default") != std::string::npos,
            policy.defaults.selection == attention::Selection::topk);
}

TEST(Request, UsesMeansOnRequest) {
  using namespace attention;  // NOLINT(google-build-using-namespace)
  using models::make_policy;
  const Policy published = make_policy({.topk = 0.3, .dropped = Dropped::none});
  EXPECT_EQ(published.ranking, Ranking::mass);
  EXPECT_EQ(published.defaults.selection, Selection::topk);
  EXPECT_EQ(published.defaults.topk, 0.3);
  EXPECT_EQ(make_policy({.dropped = Dropped::none}).defaults.topk, 0.5);
  EXPECT_EQ(make_policy({.dropped = Dropped::mean}).defaults.topk, Policy{}.defaults.topk);
  EXPECT_EQ(make_policy({.dropped = Dropped::mean, .ranking = Ranking::mass}).ranking, Ranking::mass);
  EXPECT_EQ(make_policy({.dropped = Dropped::mean}).ranking, usual_ranking(Dropped::mean));
  EXPECT_EQ(make_policy({.ranking = Ranking::error}).dropped, Dropped::mean);
  const Policy bounded = make_policy({.error = 0.02});
  EXPECT_EQ(bounded.dropped, Dropped::mean);
  EXPECT_EQ(bounded.ranking, Ranking::error);
  EXPECT_EQ(bounded.defaults.selection, Selection::error);
  EXPECT_EQ(bounded.defaults.error, 0.02);
  const Policy by_block = make_policy({.block_error = 0.02});
  EXPECT_EQ(by_block.dropped, Dropped::mean);
  EXPECT_EQ(by_block.ranking, Ranking::error);
  EXPECT_EQ(by_block.defaults.selection, Selection::block_error);
  EXPECT_EQ(by_block.defaults.block_error, 0.02);
  EXPECT_THROW(make_policy({.block_error = 0.02, .ranking = Ranking::mass}), Error);
  EXPECT_EQ(make_policy({}).dropped, Policy{}.dropped);
  EXPECT_EQ(make_policy({}).ranking, Policy{}.ranking);
  EXPECT_EQ(make_policy({}).cell, Policy{}.cell);
  EXPECT_EQ(make_policy({}).arithmetic, 8);
  EXPECT_EQ(make_policy({.arithmetic = 16}).arithmetic, 16);
}

TEST(OptionTable, UsesTheFirstLongNameAsKey) {
  for (const OptionSpec& spec : option_table()) {
    const OptionSpec* found = find_option(spec.key());
    ASSERT_NE(found, nullptr) << spec.key();
    EXPECT_EQ(found->key(), spec.key());
    EXPECT_NE(spec.help, "") << spec.key();
  }
  EXPECT_EQ(find_option("num_frames")->key(), "frames");
  EXPECT_EQ(find_option("s"), nullptr);
}

}  // namespace
}  // namespace sparsereel::app
