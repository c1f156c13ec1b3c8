// Tests the warnings about options without effect: for which options and for which sources of values they are given.
#include "models/request/effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/option_table.h"

namespace sparsereel::app {
namespace {

using models::no_effect_warnings;
using models::NoEffectCause;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const NoEffectCause kFull = {NoEffect::every_block, "attention", "with --attention full"};
const NoEffectCause kNoGuidance = {NoEffect::no_guidance, "cfg_scale", "without guidance"};

TEST(NoEffectWarnings, NameOptionsAndTheirPlaces) {
  Settings settings;
  settings.add(Source::command_line, {{"attention", "full"}, {"topk", "0.3"}, {"steps", "3"}});
  EXPECT_THAT(no_effect_warnings(settings, {kFull, kNoGuidance}),
              ElementsAre("--topk 0.3 has no effect with --attention full"));
  EXPECT_THAT(no_effect_warnings(settings, {}), IsEmpty());
  EXPECT_THAT(no_effect_warnings(settings, {{NoEffect::every_block, "attention", ""}}), IsEmpty());
  Settings file;
  file.add(Source::config_file, {{"attention", "full"}, {"cell", "32"}}, "my.yaml", {{"cell", {{2, 1}, {2, 7}}}});
  EXPECT_THAT(no_effect_warnings(file, {kFull}),
              ElementsAre("my.yaml:2:7: cell 32 has no effect with --attention full"));
}

TEST(NoEffectWarnings, AppearOncePerOption) {
  Settings settings;
  settings.add(Source::command_line, {{"cell", "32"}});
  const NoEffectCause no_means = {NoEffect::no_means, "dropped", "without means"};
  EXPECT_THAT(no_effect_warnings(settings, {no_means, kFull}), ElementsAre("--cell 32 has no effect without means"));
}

TEST(NoEffectWarnings, AreOmittedIfAStrongerSourceChose) {
  for (const auto& [weak, warned] : {std::pair{Source::matched_config, false}, std::pair{Source::recipe, false},
                                     std::pair{Source::config_file, false}, std::pair{Source::command_line, true}}) {
    Settings settings;
    settings.add(weak, {{"topk", "0.3"}}, "a file");
    settings.add(Source::command_line, {{"attention", "full"}});
    EXPECT_EQ(!no_effect_warnings(settings, {kFull}).empty(), warned);
  }
}

TEST(NoEffectWarnings, AreOmittedForConfigsAndRecipes) {
  for (const auto& [source, warned] : {std::pair{Source::matched_config, false}, std::pair{Source::recipe, false},
                                       std::pair{Source::config_file, true}, std::pair{Source::row, true}}) {
    Settings settings;
    settings.add(source, {{"topk", "0.3"}}, "a file");
    EXPECT_EQ(!no_effect_warnings(settings, {kFull}).empty(), warned);  // kFull is the device's default mode
  }
}

TEST(NoEffectWarnings, AreOmittedForNeutralValues) {
  Settings settings;
  settings.add(Source::command_line, {{"dynamic_cfg", "false"}, {"negative_prompt", ""}, {"cfg_scale", "1"}});
  EXPECT_THAT(no_effect_warnings(settings, {kNoGuidance}), IsEmpty());
}

TEST(NoEffectWarnings, NameNoAudioForAModelWithoutSound) {
  Settings settings;
  settings.add(Source::command_line, {{"no_audio", "true"}});
  models::ModelSpec model;
  const auto warnings = [&] {
    return no_effect_warnings(settings, models::no_effect_causes(models::kDecidedByModel, {.model = &model}));
  };
  EXPECT_THAT(warnings(), ElementsAre("--no-audio true has no effect for a model that makes no sound"));
  model.sound.latent_channels = 32;
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST(NoEffectWarnings, NameOptionsOfAVaeThatChoosesByItself) {
  Settings settings;
  settings.add(Source::command_line, {{"vae_tiling", "on"}, {"vae_dtype", "bf16"}});
  models::ModelSpec model;
  const auto warnings = [&] {
    return no_effect_warnings(settings, models::no_effect_causes(models::kDecidedByModel, {.model = &model}));
  };
  EXPECT_THAT(warnings(), IsEmpty());
  model.takes_vae_tiling = model.takes_vae_dtype = false;
  EXPECT_THAT(warnings(), UnorderedElementsAre(
                              "--vae-tiling on has no effect for a model whose VAE always works in tiles of one size",
                              "--vae-dtype bf16 has no effect for a model whose VAE has its own number format"));
  settings.add(Source::command_line, {{"vae_tiling", "auto"}, {"vae_dtype", "auto"}});
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST(OptionsWithoutEffect, AreListedForTheGivenCauses) {
  EXPECT_THAT(models::options_without_effect(program_options(), {kFull}), Contains("dense_layers"));
  EXPECT_THAT(models::options_without_effect(program_options(), {kFull}), Not(Contains("attention")));
  EXPECT_THAT(models::options_without_effect(program_options(), {{NoEffect::no_guidance, "cfg_scale", ""}}), IsEmpty());
}

}  // namespace
}  // namespace sparsereel::app
