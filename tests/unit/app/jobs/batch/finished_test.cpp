// Tests that a video with its sound in a separate file counts as finished only if both files exist.
#include "app/jobs/batch/finished.h"

#include <gtest/gtest.h>

#include "models/files/sha256.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::sets {
namespace {

class FinishedSound : public ::testing::Test {
 protected:
  /// Writes a video file and returns the manifest entry that describes it.
  ManifestEntry done(const std::string& name, bool has_sound) const {
    test::write_text(folder_ / name, "frames");
    ManifestEntry entry;
    entry.output = name;
    entry.state = "done";
    entry.identity = "identity";
    entry.sha256 = models::sha256("frames");
    entry.bytes = 6;
    entry.line = {{"output", name}};
    if (has_sound) entry.line["sound"] = {{"channels", 2}};
    return entry;
  }
  bool is_finished(const ManifestEntry& entry) const {
    VideoTask row;
    row.identity = "identity";
    row.options.run.output = folder_ / entry.output;
    return FinishedVideos({entry}, folder_.path()).find(row) != nullptr;
  }

  test::TemporaryFolder folder_;
};

TEST_F(FinishedSound, IsNeededBesideAFormatWithoutSound) {
  const ManifestEntry entry = done("a.gif", true);
  EXPECT_FALSE(is_finished(entry));
  test::write_text(folder_ / "a.gif.wav", "sound");
  EXPECT_TRUE(is_finished(entry));
}

TEST_F(FinishedSound, MustBeWhole) {
  ManifestEntry entry = done("a.gif", true);
  entry.line["sound"].update({{"sha256", models::sha256("sound")}, {"bytes", 5}});
  for (const auto& [text, is_whole] : {std::pair("sound", true), {"soun", false}, {"SOUND", false}, {"", false}}) {
    test::write_text(folder_ / "a.gif.wav", text);
    EXPECT_EQ(is_finished(entry), is_whole) << text;
  }
}

TEST_F(FinishedSound, IsNotNeededIfTheVideoHoldsItOrHasNone) {
  EXPECT_TRUE(is_finished(done("a.mp4", true)));
  EXPECT_TRUE(is_finished(done("b.gif", false)));
}

}  // namespace
}  // namespace sparsereel::app::sets
