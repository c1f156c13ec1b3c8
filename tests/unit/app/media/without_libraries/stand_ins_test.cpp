// Tests builds without FFmpeg and OpenCV: they refuse formats that they cannot write before any work, and write the
// others.
#include "app/media/image.h"
#include "app/media/video.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

TEST(WithoutMediaLibraries, RefusesOutputsThatNeedThemAtOnce) {
  const test::TemporaryFolder folder;
  for (const char* name : {"clip.mp4", "clip.gif", "frames"}) {
    EXPECT_TRUE(test::throws_error([&] { check_output(folder / name, {}); }, {name, "no media libraries"})) << name;
  }
  EXPECT_TRUE(test::throws_error([&] { check_contact_sheet(folder / "sheet.png"); }, {"sheet.png"}));
  EXPECT_TRUE(test::names_in(folder.path()).empty());
}

TEST(WithoutMediaLibraries, WritesOtherOutputs) {
  const test::TemporaryFolder folder;
  const std::vector<float> pixels(2 * 4 * 4 * 3, 0.5F);
  const FramesView frames{.data = pixels.data(), .frames = 2, .height = 4, .width = 4};
  for (const char* name : {"clip.y4m", "clip.safetensors"}) {
    check_output(folder / name, {});
    EXPECT_GT(write_video(folder / name, frames, {}).bytes, 0U);
  }
  EXPECT_EQ(test::names_in(folder.path()), (std::vector<std::string>{"clip.safetensors", "clip.y4m"}));
  EXPECT_TRUE(test::throws_error([&] { write_video(folder / "clip.gif", frames, {}); }, {"clip.gif"}));
}

TEST(WithoutMediaLibraries, ReadsOnlyPpmAndSafetensorsPictures) {
  const std::filesystem::path pictures = SPARSEREEL_TEST_DATA "/images";
  const Image picture = read_image(pictures / "picture.ppm");
  EXPECT_EQ(picture.pixels, read_image(pictures / "bytes.safetensors").pixels);
  EXPECT_EQ(picture.pixels, read_image(pictures / "floats.safetensors").pixels);
  for (const char* name : {"grey.png", "picture.bmp"})
    EXPECT_TRUE(
        test::throws_error([&] { read_image(pictures / name); }, {name, "reads only .ppm and .safetensors pictures"}));
}

TEST(WithoutMediaLibraries, ReportsNoLibrariesAndNoFormats) {
  EXPECT_TRUE(media_report().libraries.empty());
  EXPECT_TRUE(media_report().formats.empty());
}

}  // namespace
}  // namespace sparsereel::app
