// Tests which preset applies and which values it sets: with a made-up config file, and with every file in configs/.
#include "models/request/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/options/option_table.h"
#include "hilbert/error.h"
#include "models/request/asked_policy.h"
#include "models/request/fields.h"
#include "models/request/request.h"
#include "models/store/configs/config_file.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Pair;
using OptionValues = std::map<std::string, std::string>;

YamlOptions yaml(const OptionValues& values) {
  YamlOptions options{.values = values, .places = {}};
  for (const auto& [key, value] : values) options.places[key] = {};
  return options;
}

ModelConfig config_with_presets() {
  ModelConfig config{.file = "some.yaml", .defaults = {{"steps", "50"}, {"topk", "0.5"}}};
  config.places = yaml(config.defaults).places;
  config.presets = {{"exact", yaml({{"attention", "full"}})},
                    {"near", yaml({{"attention", "quantized"}, {"cache", "forecast:0.1"}})},
                    {"balanced", yaml({{"topk", "0.3"}, {"dense_steps", "20%"}, {"cache", "forecast:0.15"}})}};
  return config;
}

std::string chosen(const OptionValues& given, const ModelConfig& config = config_with_presets()) {
  return choose_preset(config, given, 50).name;
}

TEST(Presets, DefaultToBalancedUnlessAnotherIsChosen) {
  EXPECT_EQ(chosen({}), "balanced");
  EXPECT_EQ(chosen({{"attention", "quantized"}, {"topk", "0.5"}}), "balanced");
  EXPECT_EQ(chosen({{"attention", "full"}}), "exact");
  EXPECT_EQ(chosen({{"attention", "full"}, {"preset", "balanced"}}), "balanced");
  EXPECT_EQ(chosen({{"preset", "near"}}), "near");
  EXPECT_EQ(chosen({{"preset", "quality"}}), "near");
  EXPECT_EQ(chosen({{"from", "a.mp4"}}), "");
  EXPECT_EQ(chosen({{"profile", "a.yaml"}}), "");
  EXPECT_EQ(chosen({{"profile", "a.yaml"}, {"preset", "near"}}), "near");
}

TEST(Presets, AreOptionalInAConfigFile) {
  ModelConfig config = config_with_presets();
  config.presets.clear();
  EXPECT_EQ(chosen({}, config), "");
  EXPECT_EQ(chosen({{"attention", "full"}}, config), "");
  EXPECT_THAT(defaults_of(config, choose_preset(config, {}, 50)).values,
              ElementsAre(Pair("steps", "50"), Pair("topk", "0.5")));
  try {
    chosen({{"preset", "quality"}}, config);
    ADD_FAILURE() << "it has none";
  } catch (const Error& error) {
    EXPECT_EQ(error.field(), "preset");
    EXPECT_STREQ(error.what(), "preset quality: some.yaml has no such preset");
  }
}

TEST(Presets, OverrideDefaultsAndRemoveExcludedOptions) {
  ModelConfig config = config_with_presets();
  EXPECT_EQ(defaults_of(config, choose_preset(config, {}, 50)).values,
            OptionValues({{"steps", "50"}, {"topk", "0.3"}, {"dense_steps", "20%"}, {"cache", "forecast:0.15"}}));
  config.presets["balanced"] = yaml({{"cdf", "0.9"}});
  EXPECT_EQ(defaults_of(config, choose_preset(config, {}, 50)).values, OptionValues({{"steps", "50"}, {"cdf", "0.9"}}));
}

TEST(Presets, OmitCacheAndDenseStepsForFewSteps) {
  ModelConfig config = config_with_presets();
  const auto is_cut = [&](const OptionValues& given) {
    const PresetChoice choice = choose_preset(config, given, 50);
    EXPECT_EQ(choice.cut, choice.options.values.size() == 1);
    EXPECT_TRUE(choice.options.values.contains("topk"));
    return choice.cut;
  };
  EXPECT_FALSE(is_cut({}));
  EXPECT_FALSE(is_cut({{"steps", "10"}}));
  EXPECT_TRUE(is_cut({{"steps", "9"}}));
  EXPECT_TRUE(is_cut({{"sigmas", "1,0.75,0.5,0.25"}}));
  config.defaults["steps"] = "4";
  EXPECT_TRUE(is_cut({}));
  EXPECT_FALSE(is_cut({{"steps", "20"}}));
  config.defaults.erase("steps");
  EXPECT_FALSE(is_cut({}));
  EXPECT_TRUE(choose_preset(config, {}, 4).cut);
  EXPECT_FALSE(choose_preset(config, {{"preset", "exact"}}, 4).cut) << "it has none to leave out";
}

TEST(Presets, TakeTheirOptionsForFewStepsFromTheFile) {
  ModelConfig config = config_with_presets();
  config.few_steps = {{"balanced", yaml({{"topk", "0.6"}, {"dense_steps", "25%"}})}};
  const PresetChoice few = choose_preset(config, {{"steps", "9"}}, 50);
  EXPECT_EQ(few.name, "balanced");
  EXPECT_EQ(few.options.values, OptionValues({{"topk", "0.6"}, {"dense_steps", "25%"}}));
  EXPECT_TRUE(few.few_steps && !few.cut);
  const PresetChoice many = choose_preset(config, {{"steps", "10"}}, 50);
  EXPECT_EQ(many.options.values, config.presets.at("balanced").values);
  EXPECT_FALSE(many.few_steps || many.cut);
  const PresetChoice other = choose_preset(config, {{"steps", "4"}, {"preset", "near"}}, 50);
  EXPECT_EQ(other.options.values, OptionValues({{"attention", "quantized"}})) << "the file has no row for near";
  EXPECT_TRUE(other.cut && !other.few_steps);
}

TEST(Presets, AreChosenAgainWhenSettingsChange) {
  app::Settings settings;
  settings.set_model_config(config_with_presets());
  settings.add_model_config(PresetUse::whole);
  EXPECT_EQ(settings.text("cache"), "forecast:0.15");
  settings.add(Source::row, {{"attention", "full"}}, "set.csv");
  settings.add_model_config(PresetUse::whole);
  EXPECT_EQ(settings.preset().name, "exact");
  EXPECT_FALSE(settings.has("cache") || settings.has("dense_steps"));
  EXPECT_EQ(settings.text("topk"), "0.5");
}

TEST(Presets, OmitTheCacheForMeasuringUnlessChosenByName) {
  const auto cache_of = [](PresetUse use, const OptionValues& given) {
    app::Settings settings;
    settings.set_model_config(config_with_presets());
    settings.add(Source::command_line, given);
    settings.add_model_config(use);
    EXPECT_EQ(settings.text("topk"), "0.3");
    return settings.text("cache", "none");
  };
  EXPECT_EQ(cache_of(PresetUse::whole_where_named, {}), "none");
  EXPECT_EQ(cache_of(PresetUse::whole_where_named, {{"profile", "a.yaml"}}), "none");
  EXPECT_EQ(cache_of(PresetUse::whole_where_named, {{"preset", "balanced"}}), "forecast:0.15");
  EXPECT_EQ(cache_of(PresetUse::blocks_alone, {{"preset", "balanced"}}), "none");
}

std::vector<std::filesystem::path> committed() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SPARSEREEL_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  return files;
}

/// Checks the presets for few steps: they compute every step, and faster presets compute fewer blocks.
void check_few_steps(const ModelConfig& config) {
  EXPECT_THAT(config.few_steps, ElementsAre(Key("balanced"), Key("fast"), Key("near")));
  for (const auto& [name, preset] : config.few_steps) {
    app::Settings settings;
    settings.add(Source::matched_config, preset.values, config.file.string(), preset.places);
    const Request request = read_request(preset.values);
    check_ranges(request);
    make_policy(request);
    EXPECT_FALSE(request.cache.on()) << name;
    EXPECT_EQ(request.attention_mode.value_or(attention::Mode::sparse) == attention::Mode::quantized, name == "near");
  }
  EXPECT_GT(std::stod(config.few_steps.at("balanced").values.at("topk")),
            std::stod(config.few_steps.at("fast").values.at("topk")));
}

/// In presets of published models, the first fifth of the steps must compute every block.
TEST(ShippedPresets, AreValidAndComputeEarlyStepsDensely) {
  ASSERT_GE(committed().size(), 8U);
  for (const std::filesystem::path& file : committed()) {
    SCOPED_TRACE(file.string());
    const ModelConfig config = read_architecture(file).config;
    EXPECT_THAT(config.presets, ElementsAre(Key("balanced"), Key("exact"), Key("fast"), Key("near")));
    EXPECT_EQ(config.presets.at("exact").values, OptionValues({{"attention", "full"}}));
    for (const auto& [name, preset] : config.presets) {
      app::Settings settings;
      // Throws an Error if a value is wrong.
      settings.add(Source::matched_config, preset.values, file.string(), preset.places);
      const Request request = read_request(preset.values);
      check_ranges(request);
      make_policy(request);
      const attention::Mode mode = request.attention_mode.value_or(attention::Mode::sparse);
      EXPECT_EQ(request.cache.on(), name != "exact") << name;
      if (attention::drops_blocks(mode)) {
        ASSERT_TRUE(request.dense_steps.has_value()) << name;
        EXPECT_EQ(request.dense_steps->of(50), 10) << name;
      }
    }
    app::Settings settings;
    settings.set_model_config(config);
    settings.add_model_config(PresetUse::whole);
    EXPECT_EQ(settings.preset().name, "balanced");
    EXPECT_FALSE(settings.preset().few_steps);
    check_few_steps(config);
  }
}

}  // namespace
}  // namespace sparsereel::models
