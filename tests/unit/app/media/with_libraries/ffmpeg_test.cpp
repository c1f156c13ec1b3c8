// Tests how messages of FFmpeg's libraries become parts of errors.
#include "app/media/with_libraries/ffmpeg.h"

#include <gtest/gtest.h>

namespace sparsereel::app {
namespace {

TEST(Ffmpeg, JoinsSeveralLinesIntoOneMessage) {
  ffmpeg::capture_log();
  av_log(nullptr, AV_LOG_ERROR, "no encoder here\n\n  the least driver is %d \n", 570);
  EXPECT_EQ(ffmpeg::message(AVERROR(EINVAL)), "Invalid argument (no encoder here; the least driver is 570)");
  ffmpeg::capture_log();
  EXPECT_EQ(ffmpeg::message(AVERROR(EINVAL)), "Invalid argument");
}

}  // namespace
}  // namespace sparsereel::app
