// Tests the line that `generate` prints at its end: the length of the video and the duration of the run.
#include "app/jobs/last_line.h"

#include <gtest/gtest.h>

namespace sparsereel::app {
namespace {

TEST(LastLine, WritesDurationsInHoursMinutesAndSeconds) {
  EXPECT_EQ(duration_text(0.04), "0.0 s");
  EXPECT_EQ(duration_text(9.94), "9.9 s");
  EXPECT_EQ(duration_text(9.96), "10 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1 min 0 s");
  EXPECT_EQ(duration_text(252), "4 min 12 s");
  EXPECT_EQ(duration_text(3599.7), "1 h 0 min");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

TEST(LastLine, CountsFramesOfFormatsWithoutAFrameRate) {
  RunOptions run;
  run.video.fps = 8;
  const auto text = [&](const char* output, int64_t frames) {
    run.output = output;
    return video_text(run, {.frames = frames, .height = 128, .width = 256});
  };
  EXPECT_EQ(text("a.mp4", 33), "a.mp4: 4.1 s of video, 256x128");
  EXPECT_EQ(text("a.gif", 33), "a.gif: 4.1 s of video, 256x128");
  EXPECT_EQ(text("a.y4m", 1), "a.y4m: 1 frame, 256x128");
  EXPECT_EQ(text("a.safetensors", 33), "a.safetensors: 33 frames, 256x128");
  EXPECT_EQ(text("folder/", 33), "folder/: 33 frames, 256x128");
}

TEST(LastLine, SaysLengthKindAndRateOfTheSound) {
  WrittenSound sound = {.format = {.channels = 2, .sampling_rate = 32000}, .count = 165'600};
  EXPECT_EQ(sound_text(sound), ", 5.2 s of stereo sound at 32 kHz");
  sound.format = {.channels = 1, .sampling_rate = 22050};
  sound.file = "clip.gif.wav";
  EXPECT_EQ(sound_text(sound), ", 7.5 s of mono sound at 22.05 kHz in clip.gif.wav");
  EXPECT_EQ(sound_text({}), "");
}

}  // namespace
}  // namespace sparsereel::app
