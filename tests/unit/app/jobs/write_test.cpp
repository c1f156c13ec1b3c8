// Tests the warnings about defects of a written video, and what the report says about its sound.
#include "app/jobs/write.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "app/jobs/latents.h"
#include "models/engine/frames.h"
#include "models/request/settings.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

models::FrameFacts facts_of(double brightness) {
  models::FrameWatch watch;
  watch.add(at::full({2, 4, 4, 3}, brightness));
  return watch.facts();
}

const WrittenSound kSound = {.format = {.channels = 2, .sampling_rate = 32000}, .count = 165'600, .encoder = "aac"};

WrittenSound with_nan() {
  WrittenSound sound = kSound;
  sound.silenced = 3;
  return sound;
}

TEST(Defects, AreABlackVideoAndASoundWithNaN) {
  EXPECT_THAT(defects(facts_of(0.5), kSound), IsEmpty());
  EXPECT_THAT(defects(facts_of(0.5), {}), IsEmpty());
  EXPECT_THAT(
      defects(facts_of(0), with_nan()),
      ElementsAre("the video is black", "the sound held NaN or infinity in 3 of 331200 samples; they are silent"));
}

TEST(Defects, KeepTheLatents) {
  const test::TemporaryFolder folder;
  const auto kept_file = folder / "clip.mp4.latents.safetensors";
  KeptLatents kept({}, folder / "clip.mp4");
  ASSERT_EQ(kept.save({at::zeros({1, 1, 4, 2, 2})}, "{}"), "");
  EXPECT_THAT(defect_warnings(facts_of(0.5), with_nan(), kept),
              ElementsAre(HasSubstr("3 of 331200 samples; they are silent; its latents are in " + kept_file.string())));
  EXPECT_TRUE(std::filesystem::exists(kept_file));
  EXPECT_THAT(defect_warnings(facts_of(0.5), kSound, kept), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(kept_file));
}

TEST(OutputReport, DescribesTheSound) {
  RunOptions run;
  run.output = "clip.mp4";
  nlohmann::json report;
  WrittenVideo written = {.encoder = "libx264", .bytes = 5, .sound = kSound};
  add_output_report(report, run, {.frames = 124, .height = 480, .width = 864}, written);
  const nlohmann::json in_video = {{"seconds", 5.175}, {"sampling_rate", 32000}, {"channels", 2}, {"encoder", "aac"}};
  EXPECT_EQ(report["output"]["sound"], in_video);
  written.sound.file = "clip.gif.wav";
  add_output_report(report, run, {.frames = 124, .height = 480, .width = 864}, written);
  EXPECT_EQ(report["output"]["sound"]["path"], "clip.gif.wav");
  written.sound = {};
  add_output_report(report, run, {.frames = 124, .height = 480, .width = 864}, written);
  EXPECT_FALSE(report["output"].contains("sound"));
}

TEST(DecodeCommand, RepeatsNoAudioOnlyIfItWasGiven) {
  RunOptions run;
  run.output = "clip.mp4";
  run.model = "model";
  for (const bool is_given : {true, false}) {
    Settings settings;
    settings.add(Source::command_line, {{"no_audio", is_given ? "true" : "false"}, {"vae_tiling", "on"}});
    const std::string command = decode_command(settings, run, "kept.safetensors");
    EXPECT_THAT(command, HasSubstr("--vae-tiling on"));
    EXPECT_EQ(command.find("--no-audio") != std::string::npos, is_given) << command;
    EXPECT_EQ(command.find("--no-audio true"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace sparsereel::app
