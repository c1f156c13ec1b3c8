// The progress line, and the texts that reports and messages are made of.
#include "app/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/outputs.h"
#include "app/report.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressLine, ShowsStepTimeAStepAndTimeLeft) {
  const std::string line = progress_line("denoise", 10, 50, 15);
  EXPECT_THAT(line, HasSubstr("denoise [######........................] 10/50"));
  EXPECT_THAT(line, HasSubstr("1.50 s/it"));
  EXPECT_THAT(line, HasSubstr("ETA 1:00"));
}

TEST(ProgressLine, ShowsNoTimeBeforeTheFirstStep) {
  EXPECT_THAT(progress_line("denoise", 0, 50, 0), Not(HasSubstr("ETA")));
}

TEST(ProgressLine, IsFullAtTheEnd) {
  EXPECT_THAT(progress_line("decode", 3, 3, 6), HasSubstr("[##############################] 3/3"));
}

TEST(ShellQuoted, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_quoted("out/clip-1.mp4"), "out/clip-1.mp4");
  EXPECT_EQ(shell_quoted("my clip.mp4"), "'my clip.mp4'");
  EXPECT_EQ(shell_quoted("it's.mp4"), "'it'\\''s.mp4'");
  EXPECT_EQ(shell_quoted(""), "''");
}

TEST(Dump, MakesValidUtf8OfAnything) {
  EXPECT_EQ(dump(nlohmann::json("a\xff")), "\"a\xef\xbf\xbd\"");
}

TEST(HumanBytes, TakesTheUnitThatFits) {
  EXPECT_EQ(human_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(human_bytes(10 << 20), "10.0 MiB");
  EXPECT_EQ(human_bytes(512), "0.5 KiB");
}

TEST(LatentsBeside, StandsNextToTheOutput) {
  EXPECT_EQ(latents_beside("a/clip.mp4"), "a/clip.mp4.latents.safetensors");
  EXPECT_EQ(latents_beside("a/frames/"), "a/frames.latents.safetensors");
}

TEST(LatentsBeside, IsTheFirstNameThatIsFree) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "clip.mp4.latents.safetensors", "kept");
  EXPECT_EQ(latents_beside(folder / "clip.mp4"), folder / "clip.mp4.latents-2.safetensors");
  std::filesystem::create_symlink("nowhere", folder / "clip.mp4.latents-2.safetensors");
  EXPECT_EQ(latents_beside(folder / "clip.mp4"), folder / "clip.mp4.latents-3.safetensors");
}

}  // namespace
}  // namespace sparsereel::app
