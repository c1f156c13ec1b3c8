// Tests which settings of distilled models apply: those of a made-up config file, and those of every file in configs/.
#include "models/request/distilled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/options/option_table.h"
#include "hilbert/error.h"
#include "models/request/asked_policy.h"
#include "models/request/fields.h"
#include "models/request/resolve.h"
#include "models/store/configs/config_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using OptionValues = std::map<std::string, std::string>;

ModelConfig config() {
  const std::string text =
      "match: {class: Some}\n"
      "architecture: {transformer: {}}\n"
      "defaults: {steps: 50, cfg_scale: 5}\n"
      "presets:\n"
      "  near: {attention: quantized, cache: forecast:0.1}\n"
      "  balanced: {topk: 0.3, dense_steps: 20%, cache: forecast:0.15}\n"
      "distilled:\n"
      "  - {name: fast, steps: 4, lora: [fast-high.safetensors, fast-low.safetensors], repository: some/Fast,\n"
      "     words: [fast], source: a page, options: {sigmas: '1,0.75,0.5,0.25', scheduler: euler, cfg_scale: 1}}\n"
      "  - {name: Slow, steps: 4, lora: slow.safetensors, repository: some/Slow, words: [slow], source: a page,\n"
      "     options: {steps: 4, scheduler: unipc, cfg_scale: 1}}\n"
      "  - {name: Slow, steps: 8, lora: slow.safetensors, repository: some/Slow, words: [slow], source: a page,\n"
      "     options: {steps: 8, scheduler: unipc, cfg_scale: 1}}\n";
  return parse_architecture(text, "some.yaml").config;
}

app::Settings settings_of(const OptionValues& given, const ModelConfig& file = config()) {
  app::Settings settings;
  settings.add(Source::command_line, given);
  settings.set_model_config(file);
  settings.add_model_config(PresetUse::whole);
  return settings;
}

/// Returns the cause and the remedy of the error that these options cause.
std::string refusal(const OptionValues& given, const ModelConfig& file = config()) {
  try {
    settings_of(given, file);
  } catch (const Error& error) {
    return std::string(error.what()) + "; " + error.remedy();
  }
  return "none";
}

std::string text(const app::Settings& settings, const char* key) {
  return settings.text(key, "none");
}

TEST(Distilled, SetsWhatTheFileListsForTheNumberOfSteps) {
  const app::Settings settings = settings_of({{"distilled", "4"}, {"lora", "renamed.safetensors"}});
  EXPECT_EQ(text(settings, "sigmas"), "1,0.75,0.5,0.25");
  EXPECT_EQ(text(settings, "steps"), "none") << "sigmas exclude the default number of steps";
  EXPECT_EQ(text(settings, "scheduler"), "euler");
  EXPECT_EQ(text(settings, "cfg_scale"), "1");
  EXPECT_EQ(text(settings_of({}), "cfg_scale"), "5");
}

TEST(Distilled, ChoosesTheRowByTheNameOfLoraTransformerOrFolder) {
  const auto scheduler = [](const OptionValues& given) { return text(settings_of(given), "scheduler"); };
  for (const char* lora :
       {"a/Slow_v2.safetensors", "Slow/rank64/low_noise_model.safetensors", "x.safetensors,SLOW.safetensors:0.5"})
    EXPECT_EQ(scheduler({{"distilled", "4"}, {"lora", lora}}), "unipc") << lora;
  EXPECT_EQ(scheduler({{"distilled", "4"}, {"transformer", "wan-slow-fp8.safetensors"}}), "unipc");
  EXPECT_EQ(scheduler({{"distilled", "4"}, {"transformer", "wan-fast.gguf"}}), "euler");
  EXPECT_EQ(scheduler({{"distilled", "4"}, {"model", "models/Wan-Fast/"}}), "euler");
  EXPECT_EQ(scheduler({{"distilled", "4"}, {"lora", "slow/a/b/c/x.safetensors"}}), "euler") << "a folder too far above";
  ModelConfig opened = config();
  opened.loras = {"slow.safetensors"};
  EXPECT_EQ(text(settings_of({{"distilled", "8"}}, opened), "steps"), "8");
}

TEST(Distilled, YieldsToStrongerSourcesAndOverridesThePreset) {
  const OptionValues lora = {{"lora", "fast.safetensors"}, {"distilled", "4"}};
  OptionValues given = lora;
  given["steps"] = "6";
  EXPECT_EQ(text(settings_of(given), "sigmas"), "none");
  EXPECT_EQ(text(settings_of(given), "steps"), "6");
  app::Settings settings;
  settings.add(Source::recipe, {{"scheduler", "dpm"}}, "a.mp4");
  settings.add(Source::command_line, lora);
  settings.set_model_config(config());
  settings.add_model_config(PresetUse::whole);
  EXPECT_EQ(text(settings, "scheduler"), "dpm");
  EXPECT_EQ(text(settings, "cfg_scale"), "1");
}

TEST(Distilled, LeavesOutThePresetsCacheAndDenseSteps) {
  const app::Settings settings = settings_of({{"lora", "fast.safetensors"}, {"distilled", "4"}});
  EXPECT_TRUE(settings.preset().cut);
  EXPECT_EQ(text(settings, "cache"), "none");
  EXPECT_EQ(text(settings, "topk"), "0.3");
}

TEST(Distilled, NeedsALoraOrADistilledTransformer) {
  const std::string none = refusal({{"distilled", "4"}});
  for (const char* part :
       {"distilled 4", "no LoRA", "fast-high.safetensors and fast-low.safetensors", "some/Fast", "--lora"})
    EXPECT_THAT(none, HasSubstr(part));
  EXPECT_THAT(refusal({{"distilled", "4"}, {"transformer", "wan.safetensors"}}), HasSubstr("no LoRA"));
  EXPECT_EQ(text(settings_of({{"distilled", "4"}, {"random_weights", "some.yaml"}}), "scheduler"), "euler");
}

TEST(Distilled, RefusesStepsAndModelsWithoutSettings) {
  EXPECT_THAT(refusal({{"distilled", "5"}, {"lora", "fast.safetensors"}}), HasSubstr("--distilled 4 or 8"));
  EXPECT_THAT(refusal({{"distilled", "4"}}, {.file = "other.yaml"}), HasSubstr("sigmas"));
}

TEST(Distilled, WarnsOfDistilledWeightsWithoutSettings) {
  const auto warning = [](const OptionValues& given) { return settings_of(given).distilled_warning(); };
  EXPECT_THAT(warning({{"lora", "x/fast-high.safetensors"}}), HasSubstr("fast-high.safetensors"));
  EXPECT_THAT(warning({{"lora", "x/fast-high.safetensors"}}), HasSubstr("--distilled 4"));
  EXPECT_THAT(warning({{"lora", "style.safetensors"}}), IsEmpty());
  EXPECT_THAT(warning({{"lora", "fast.safetensors"}, {"distilled", "4"}}), IsEmpty());
  EXPECT_THAT(warning({{"lora", "fast.safetensors"}, {"sigmas", "1,0.5"}}), IsEmpty());
  EXPECT_THAT(warning({{"lora", "fast.safetensors"}, {"steps", "8"}}), IsEmpty());
}

TEST(Distilled, RowsWithoutAKeyAreRefused) {
  for (const char* row : {"{name: fast, steps: 4}", "4",
                          "{name: a, steps: many, lora: a, repository: b, words: [c], source: d, options: {}}",
                          "{name: a, steps: 4, lora: a, repository: b, words: [c], source: d, options: {}, more: 1}"})
    EXPECT_TRUE(throws_error(
        [&] {
          parse_architecture(
              std::string("match: {class: Some}\narchitecture: {transformer: {}}\ndistilled: [") + row + "]\n",
              "some.yaml");
        },
        {"some.yaml:3", "distilled"}))
        << row;
}

TEST(ShippedDistilledRows, AreValidAndNameTheirWeights) {
  int64_t rows = 0;
  for (const Architecture& model : architectures_in(SPARSEREEL_SOURCE_DIR "/configs")) {
    SCOPED_TRACE(model.config.file.string());
    for (const Distilled& row : model.config.distilled) {
      ++rows;
      const bool is_whole_model = row.loras.empty();
      const std::string name = is_whole_model ? row.repository : row.loras.front();
      const app::Settings settings = settings_of(
          {{"distilled", std::to_string(row.steps)}, {is_whole_model ? "transformer" : "lora", name}}, model.config);
      const Request request = read_request(settings);
      check_ranges(request);
      const int64_t steps =
          request.sigmas.empty() ? request.num_inference_steps.value_or(0) : std::ssize(request.sigmas);
      EXPECT_EQ(steps, row.steps);
      EXPECT_EQ(request.guidance_scale.value_or(1), 1) << "a model without guidance sets none";
      EXPECT_NE(distilled_as(model.config, name), nullptr) << "its own words are in its name";
    }
  }
  EXPECT_GE(rows, 10);
}

}  // namespace
}  // namespace sparsereel::models
