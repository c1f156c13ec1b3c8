// Tests videos that begin and end with images, through the interface of libsparsereel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/library/small_requests.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel {
namespace {

using test::failure_of;
using test::kModel;
using test::small;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LibraryImages, BeginAndEndAVideo) {
  const std::string folder = std::string(SPARSEREEL_TEST_DATA) + "/wan_i2v/";
  std::vector<uint8_t> light(30 * 20 * 3, 230), dark(50 * 50 * 3, 20);
  const ImageView first = {.pixels = light.data(), .height = 20, .width = 30};
  const ImageView last = {.pixels = dark.data(), .height = 50, .width = 50};
  VideoRequest request = {.prompt = "a red circle", .steps = 1, .frames = 5};
  TextToVideo begins(folder + "pipeline", {.device = "cpu"});
  EXPECT_EQ(failure_of([&] { begins.generate(request); }).field(), "image");
  request.width = 48;
  request.height = 32;
  request.image = first;
  const Video video = begins.generate(request);
  EXPECT_EQ((std::vector{video.frames, video.height, video.width}), (std::vector<int64_t>{5, 32, 48}));
  EXPECT_EQ(begins.generate(request).pixels, video.pixels);
  light[0] = 0;
  EXPECT_NE(begins.generate(request).pixels, video.pixels);
  request.resize = "stretch";
  request.image = last;
  const Video square = begins.generate(request);
  request.resize = "cover";
  EXPECT_EQ(begins.generate(request).pixels, square.pixels) << "of one colour";
  request.last_image = last;
  EXPECT_EQ(failure_of([&] { begins.generate(request); }).field(), "last_image");
  TextToVideo ends(folder + "pipeline_two_images", {.device = "cpu"});
  request.image = first;
  const Video both = ends.generate(request);
  request.last_image.pixels = light.data();
  EXPECT_NE(ends.generate(request).pixels, both.pixels);
}

TEST(LibraryImages, GiveAVideoTheirShape) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "small.yaml", "match: {class: WanTransformer3DModel}\ndefaults: {size: 64x64}\n");
  TextToVideo model(std::string(SPARSEREEL_TEST_DATA) + "/wan_i2v/pipeline",
                    {.device = "cpu", .configs = folder.path().string()});
  const std::vector<uint8_t> pixels(16 * 3 * 3, 9);
  VideoRequest request = {.prompt = "a red circle", .steps = 1, .frames = 1};
  request.image = {.pixels = pixels.data(), .height = 16, .width = 3};
  const Video high = model.generate(request);
  EXPECT_EQ((std::vector{high.height, high.width}), (std::vector<int64_t>{144, 16}));
  request.size = "32p";
  const Video small_area = model.generate(request);
  EXPECT_EQ((std::vector{small_area.height, small_area.width}), (std::vector<int64_t>{64, 16}));
  request.width = 32;
  EXPECT_THAT(failure_of([&] { model.generate(request); }).cause(), HasSubstr("size and width exclude each other"));
  request.size.clear();
  request.height = 64;
  const Video asked = model.generate(request);
  EXPECT_EQ((std::vector{asked.height, asked.width}), (std::vector<int64_t>{64, 32}));
}

TEST(LibraryImages, AreRefusedIfTheModelCannotUseThem) {
  TextToVideo model(kModel, {.device = "cpu"});
  const std::vector<uint8_t> pixels(4 * 6 * 3, 200);
  VideoRequest request = small();
  request.resize = "stretch";
  EXPECT_THAT(model.generate(request).warnings, ElementsAre("resize stretch has no effect without an image"));
  request.image = {.pixels = pixels.data(), .height = 4, .width = 6};
  const Failure text_alone = failure_of([&] { model.generate(request); });
  EXPECT_EQ(text_alone.field(), "image");
  EXPECT_THAT(text_alone.cause(), HasSubstr("makes videos from text only"));
  for (const int64_t height : {int64_t{0}, int64_t{1} << 40}) {
    request.image.height = height;
    const Failure impossible = failure_of([&] { model.generate(request); });
    EXPECT_EQ(impossible.field(), "image");
    EXPECT_THAT(impossible.cause(), HasSubstr("6x" + std::to_string(height)));
  }
}

}  // namespace
}  // namespace sparsereel
