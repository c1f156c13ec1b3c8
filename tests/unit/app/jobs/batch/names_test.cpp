// Tests the file names that `batch` gives to videos.
#include "app/jobs/batch/names.h"

#include <gtest/gtest.h>

namespace sparsereel::app::sets {
namespace {

TEST(VideoName, JoinsTheIndexAndASlugOfThePrompt) {
  EXPECT_EQ(video_name(7, "A red Circle, moving!", ".mp4"), "0007-a-red-circle-moving.mp4");
  EXPECT_EQ(video_name(12345, "x", ".gif"), "12345-x.gif");
  EXPECT_EQ(video_name(0, "../../etc/passwd", ".mp4"), "0000-etc-passwd.mp4");
  EXPECT_EQ(video_name(0, "\xE6\x97\xA5\xE6\x9C\xAC", ".mp4"), "0000.mp4");
  EXPECT_EQ(video_name(0, "", ".mp4"), "0000.mp4");
  EXPECT_LE(video_name(1, std::string(300, 'a'), ".safetensors").size(), 80U);
}

TEST(PlainName, RefusesPathsOutsideTheFolderAndNamesThatSomeSystemsForbid) {
  for (const char* name : {"", ".", "..", "a/b", "a\\b", ".hidden", "a:b", "a\nb", "a.", "a "})
    EXPECT_FALSE(is_plain_name(name)) << name;
  EXPECT_FALSE(is_plain_name(std::string(201, 'a')));
  EXPECT_TRUE(is_plain_name("0001-a b.mp4"));
  EXPECT_TRUE(is_plain_name("\xE6\x97\xA5.mp4"));
}

}  // namespace
}  // namespace sparsereel::app::sets
