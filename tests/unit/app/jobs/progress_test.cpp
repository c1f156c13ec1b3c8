// Tests the progress line, and how reports and messages write times, sizes and names.
#include "app/jobs/progress.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/jobs/latents.h"
#include "app/jobs/outputs.h"
#include "app/jobs/report.h"
#include "models/engine/pipeline.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressLine, ShowsTheStepTheSecondsPerStepAndTheTimeLeft) {
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

TEST(ProgressLine, FitsTheTerminal) {
  for (const int columns : {20, 40, 60, 80, 120, 200}) {
    const std::string line = progress_line("measure heads, prompt 1 of 12", 10, 50, 15, columns);
    EXPECT_LT(line.size(), static_cast<size_t>(columns));
    EXPECT_THAT(line, ::testing::StartsWith("measure heads, prom"));
  }
  EXPECT_THAT(progress_line("denoise", 10, 50, 15, 45), HasSubstr("denoise [#......] 10/50"));
  EXPECT_THAT(progress_line("denoise", 10, 50, 15, 20), Not(HasSubstr("[")));
}

TEST(ProgressText, CountsHours) {
  EXPECT_EQ(progress_text(1, 11, 400), "1/11  400.00 s/it  ETA 1:06:40");
}

class ProgressLines : public ::testing::Test {
 protected:
  ProgressLines() { ::testing::internal::CaptureStderr(); }  // the captured stderr is no terminal
  static std::string printed() { return ::testing::internal::GetCapturedStderr(); }
};

TEST_F(ProgressLines, ArePrintedWhenTheIntervalHasPassed) {
  Progress progress(true, 0);
  progress.stage("denoise");
  progress.step(1, 4, 2);
  progress.set("set", 1, 9, 1, 10);
  progress.step(2, 4, 2);
  EXPECT_EQ(printed(),
            "denoise ...\ndenoise 1/4  2.00 s/it  ETA 0:06\nset 1/9  10.00 s/it  ETA 1:20\n"
            "set 1/9, denoise 2/4  2.00 s/it  ETA 0:04\n");
}

TEST_F(ProgressLines, ReportOnlyFinishedVideosWithinTheInterval) {
  Progress progress(true);
  progress.set("set", 3, 9, 0, 0);  // 3 of 9 rows were finished in an earlier run
  progress.stage("denoise");
  progress.step(1, 4, 2);
  progress.set("set", 4, 9, 1, 10);
  EXPECT_EQ(printed(), "set 4/9  10.00 s/it  ETA 0:50\n");
}

TEST_F(ProgressLines, ReportTheCurrentStepDuringLongSteps) {
  Progress progress(true, 0);
  ShownRun run(progress);
  run.stage("denoise");
  run.within_step({.step = 0, .steps = 50});
  run.step({.step = 1, .steps = 50, .seconds = 2});
  progress.set("set", 1, 9, 1, 10);
  run.within_step({.step = 1, .steps = 50});
  EXPECT_EQ(printed(),
            "denoise ...\ndenoise: step 1 of 50, 0 s so far\ndenoise 1/50  2.00 s/it  ETA 1:38\n"
            "set 1/9  10.00 s/it  ETA 1:20\nset 1/9, denoise: step 2 of 50, 0 s so far\n");
}

TEST_F(ProgressLines, OmitShortSteps) {
  Progress progress(true);
  progress.stage("denoise");
  progress.within(1, 50);
  EXPECT_EQ(printed(), "");
}

TEST_F(ProgressLines, AreAbsentWithQuiet) {
  Progress progress(false, 0);
  progress.stage("denoise");
  progress.within(1, 4);
  progress.set("set", 1, 9, 1, 10);
  EXPECT_EQ(printed(), "");
}

TEST(ShellQuoted, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_quoted("out/clip-1.mp4"), "out/clip-1.mp4");
  EXPECT_EQ(shell_quoted("my clip.mp4"), "'my clip.mp4'");
  EXPECT_EQ(shell_quoted("it's.mp4"), "'it'\\''s.mp4'");
  EXPECT_EQ(shell_quoted(""), "''");
}

TEST(Dump, ReplacesInvalidUtf8) {
  EXPECT_EQ(dump(nlohmann::json("a\xff")), "\"a\xef\xbf\xbd\"");
}

TEST(HumanBytes, ChoosesTheUnitBySize) {
  EXPECT_EQ(human_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(human_bytes(10 << 20), "10.0 MiB");
  EXPECT_EQ(human_bytes(512), "0.5 KiB");
}

TEST(LatentsBeside, PutsTheFileNextToTheOutput) {
  EXPECT_EQ(latents_beside("a/clip.mp4"), "a/clip.mp4.latents.safetensors");
  EXPECT_EQ(latents_beside("a/frames/"), "a/frames.latents.safetensors");
}

TEST(LatentsBeside, TakesTheFirstFreeName) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "clip.mp4.latents.safetensors", "kept");
  EXPECT_EQ(latents_beside(folder / "clip.mp4"), folder / "clip.mp4.latents-2.safetensors");
  std::filesystem::create_symlink("nowhere", folder / "clip.mp4.latents-2.safetensors");
  EXPECT_EQ(latents_beside(folder / "clip.mp4"), folder / "clip.mp4.latents-3.safetensors");
}

TEST(KeptLatents, RemovesLatentsOfAFailedRunWhateverTheirNumber) {
  const test::TemporaryFolder folder;
  const at::Tensor latents = at::ones({1, 2, 3, 2, 2});
  save_latents(folder / "clip.mp4.latents-2.safetensors", latents, "", LatentsPurpose::until_the_video_is_written);
  KeptLatents kept({}, folder / "clip.mp4");
  EXPECT_EQ(kept.save(latents, ""), "");
  EXPECT_EQ(kept.saved(), folder / "clip.mp4.latents-2.safetensors");
  kept.let_go();
  EXPECT_TRUE(test::names_in(folder.path()).empty());
}

}  // namespace
}  // namespace sparsereel::app
