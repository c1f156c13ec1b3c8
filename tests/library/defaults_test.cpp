// Tests that configs, presets and profiles set the options that a request leaves unset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/library/small_requests.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel {
namespace {

using test::failure_of;
using test::kModel;
using test::small;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Returns the text of a config file that matches the model of these tests and has these defaults.
std::string config_of(const std::string& defaults) {
  return "match: {class: CogVideoXTransformer3DModel}\ndefaults: {" + defaults +
         "}\npresets:\n  fast: {steps: 1, cache: \"0.5\"}\n";
}

// tests/cli/library_test.py checks that the program takes the same defaults.
TEST(LibraryDefaults, TakeUnsetOptionsFromTheMatchingConfig) {
  const test::TemporaryFolder folder;
  test::write_text(
      folder / "small.yaml",
      config_of("size: 32x64, frames: 5, steps: 2, fps: 3, cfg_scale: 3, negative_prompt: blurry, topk: 0.3, "
                "dynamic_cfg: true, scheduler: ddim, token_order: native"));
  TextToVideo plain(kModel, {.device = "cpu"}), model(kModel, {.device = "cpu", .configs = folder.path().string()});
  VideoRequest bare, full;
  bare.prompt = full.prompt = "a red circle";
  full.width = 32, full.height = 64, full.frames = 5, full.steps = 2;
  full.cfg_scale = 3, full.negative_prompt = "blurry", full.topk = 0.3, full.dynamic_cfg = true;
  full.scheduler = "ddim", full.token_order = "native";
  const Video expected = plain.generate(full), video = model.generate(bare);
  EXPECT_EQ(video.pixels, expected.pixels);
  EXPECT_EQ(video.warnings, expected.warnings);

  bare.error = full.error = 0.2;  // an error bound replaces the topk of the config file
  bare.dynamic_cfg = full.dynamic_cfg = false;
  full.topk.reset();
  EXPECT_EQ(model.generate(bare).pixels, plain.generate(full).pixels);
  bare.preset = "fast";
  full.steps = 1, full.cache = "0.5";
  EXPECT_EQ(model.generate(bare).pixels, plain.generate(full).pixels);
  bare.preset = "slow";
  const Failure failure = failure_of([&] { model.generate(bare); });
  EXPECT_THAT(failure.cause(), StartsWith("preset slow: "));
  EXPECT_EQ(failure.field(), "preset");
}

TEST(LibraryDefaults, UseTheBalancedPresetUnlessAnotherIsChosen) {
  const test::TemporaryFolder folder;
  test::write_text(
      folder / "small.yaml",
      "match: {class: CogVideoXTransformer3DModel}\ndefaults: {topk: 0.3}\npresets:\n  exact: {attention: full}\n"
      "  near: {attention: quantized}\n  balanced: {topk: 0.2, dense_steps: 20%, cache: \"steps:4\"}\n");
  TextToVideo plain(kModel, {.device = "cpu"}), model(kModel, {.device = "cpu", .configs = folder.path().string()});
  VideoRequest bare = small(), full = small();
  bare.steps = full.steps = 10;
  full.topk = 0.2, full.dense_steps = "2", full.cache = "steps:4";
  EXPECT_EQ(model.generate(bare).pixels, plain.generate(full).pixels);
  bare.attention = full.attention = "full";
  full.cache.clear(), full.topk.reset(), full.dense_steps.reset();
  EXPECT_EQ(model.generate(bare).pixels, plain.generate(full).pixels);
  bare.attention.clear(), full.attention = "quantized", bare.preset = "quality";
  EXPECT_EQ(model.generate(bare).pixels, plain.generate(full).pixels);
  // For fewer than 10 steps, the rest of the preset does not apply.
  bare.preset.clear(), full.attention.clear(), full.topk = 0.2, bare.steps = full.steps = 9;
  EXPECT_EQ(model.generate(bare).pixels, plain.generate(full).pixels);
}

TEST(LibraryDefaults, SetWhatADistilledLoraNeeds) {
  const test::TemporaryFolder folder;
  const std::string configs = folder.path().string(), lora = folder.path() / "fast.safetensors";
  std::filesystem::copy_file(SPARSEREEL_TEST_DATA "/lora/metadata.safetensors", lora);
  test::write_text(folder / "small.yaml",
                   "match: {class: CogVideoXTransformer3DModel}\ndefaults: {steps: 3, cfg_scale: 3}\ndistilled:\n"
                   "  - {name: Fast, steps: 2, lora: fast.safetensors, repository: some/Fast, words: [fast],\n"
                   "     source: a page, options: {steps: 2, scheduler: ddim, cfg_scale: 1}}\n");
  TextToVideo plain(kModel, {.device = "cpu", .lora = lora});
  TextToVideo model(kModel, {.device = "cpu", .lora = lora, .configs = configs});
  VideoRequest bare = small(), full = small();
  bare.steps.reset(), bare.cfg_scale.reset();
  EXPECT_THAT(model.generate(bare).warnings, Contains(HasSubstr("give distilled 2")));
  bare.distilled = 2;
  full.steps = 2, full.scheduler = "ddim", full.cfg_scale = 1;
  const Video video = model.generate(bare);
  EXPECT_EQ(video.pixels, plain.generate(full).pixels);
  EXPECT_THAT(video.warnings, Not(Contains(HasSubstr("distilled"))));
  TextToVideo other(kModel, {.device = "cpu", .configs = configs});
  EXPECT_EQ(failure_of([&] { other.generate(bare); }).field(), "distilled");
}

// tests/cli/library_test.py tests a profile that is accepted.
TEST(LibraryDefaults, RefuseProfilesOfOtherModelsUnlessAllBlocksAreComputed) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() / "p.yaml";
  TextToVideo model(kModel, {.device = "cpu"});
  VideoRequest request = small();
  request.profile = file;
  EXPECT_THAT(failure_of([&] { model.generate(request); }).cause(), StartsWith(file));
  test::write_text(file, "model: {name: other, sha256: " + std::string(64, 'a') +
                             "}\nmade_with: {width: 32, height: 32, frames: 5, steps: 2, token_order: hilbert, "
                             "device: cpu, dtype: fp32}\nsettings: {topk: 0.2}\nmeasured: {}\n");
  const Failure failure = failure_of([&] { model.generate(request); });
  EXPECT_THAT(failure.cause(), StartsWith("profile " + file + " was made for another model (other)"));
  EXPECT_EQ(failure.field(), "profile");
  request.attention = "full";
  EXPECT_THAT(model.generate(request).warnings,
              ElementsAre("profile " + file + " has no effect with attention full, which computes every block"));
}

TEST(LibraryDefaults, AcceptAnyOptionByName) {
  TextToVideo model(kModel, {.device = "cpu"});
  VideoRequest member = small(), named = small();
  member.token_order = "native", member.topk = 0.5;
  named.options = {{"token-order", "native"}, {"topk", "0.5"}};
  EXPECT_EQ(model.generate(named).pixels, model.generate(member).pixels);
  const auto refused = [&](const std::map<std::string, std::string>& options) {
    VideoRequest request = member;
    request.options = options;
    return failure_of([&] { model.generate(request); });
  };
  EXPECT_THAT(refused({{"topk", "0.3"}}).cause(), HasSubstr("topk is given twice"));
  EXPECT_THAT(refused({{"dtype", "bf16"}}).cause(), HasSubstr("dtype cannot be given by name"));
  EXPECT_THAT(refused({{"image", "a.png"}}).cause(), HasSubstr("image cannot be given by name"));
  EXPECT_THAT(refused({{"frmes", "5"}}).cause(), HasSubstr("frmes"));
  EXPECT_THAT(refused({{"cell", "17"}}).cause(), HasSubstr("cell"));
}

TEST(LibraryDefaults, ReportMissingAndWrongConfigs) {
  const test::TemporaryFolder folder;
  const std::string place = folder.path().string();
  EXPECT_THAT(TextToVideo(kModel, {.device = "cpu", .configs = place}).generate(small()).warnings,
              ElementsAre(StartsWith(place + " holds no model configs")));
  const Failure missing = failure_of([&] { TextToVideo(kModel, {.device = "cpu", .configs = place + "/confgis"}); });
  EXPECT_EQ(missing.code(), 2);
  EXPECT_EQ(missing.field(), "configs");
  EXPECT_EQ(missing.cause(), "configs " + place + "/confgis is not a folder");
  test::write_text(folder / "wrong.yaml", config_of("steps: many"));
  TextToVideo model(kModel, {.device = "cpu", .configs = place});
  VideoRequest request = small();
  request.steps.reset();
  EXPECT_THAT(failure_of([&] { model.generate(request); }).cause(), HasSubstr("wrong.yaml:2:19: steps many"));
}

}  // namespace
}  // namespace sparsereel
