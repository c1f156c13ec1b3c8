// Tests the writers of GIF, PNG folders, y4m, safetensors and contact sheets by reading back what they wrote.
#include "app/media/writers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hilbert/error.h"
#include "models/store/checkpoint/tensor_file.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Writers : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  Clip clip = make_clip(5, 48, 64);
};

TEST_F(Writers, WriteEveryGifFrameInGoodColors) {
  const auto path = folder / "clip.gif";
  const WrittenVideo written = write_video(path, clip.view, {.fps = 8});
  const Decoded decoded = decode_video(path);
  EXPECT_EQ(decoded.frames.size(), 5U);
  EXPECT_EQ(decoded.width, 64);
  EXPECT_EQ(decoded.height, 48);
  EXPECT_GT(psnr(decoded, clip.view), 30);
  EXPECT_EQ(written.encoder, "gif");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("clip.gif"));
}

TEST_F(Writers, WriteAGifOfFewColorsAlmostExactly) {
  for (float& value : clip.values) value = std::round(value);
  const auto path = folder / "flat.gif";
  write_video(path, clip.view, {});
  EXPECT_GT(psnr(decode_video(path), clip.view), 60);
}

TEST_F(Writers, PutTheRecipeOfAGifBesideIt) {
  const auto path = folder / "clip.gif";
  write_video(path, clip.view, {.recipe = R"({"seed":1})"});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("clip.gif", "clip.gif.json"));
  EXPECT_EQ(read_recipe(path), R"({"seed":1})");
}

TEST_F(Writers, WritePngFramesExactlyExceptForRounding) {
  const auto path = folder / "frames";
  write_video(path, clip.view, {});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("frames"));
  for (int64_t f = 0; f < 5; ++f) {
    const Decoded decoded = decode_video(path / ("00000" + std::to_string(f) + ".png"));
    ASSERT_EQ(decoded.frames.size(), 1U);
    EXPECT_EQ(decoded.frames[0], rgb8(clip.view.values(f))) << "frame " << f;
  }
}

TEST_F(Writers, AcceptAnEmptyPngFolderAndAFinalSlash) {
  std::filesystem::create_directory(folder / "frames");
  write_video((folder / "frames").string() + "/", clip.view, {});
  EXPECT_TRUE(std::filesystem::exists(folder / "frames" / "000004.png"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("frames"));
}

TEST_F(Writers, RefuseAPngFolderThatHoldsFiles) {
  std::filesystem::create_directory(folder / "frames");
  std::ofstream(folder / "frames" / "mine.txt") << "keep";
  EXPECT_THROW(check_output(folder / "frames", {}), Error);
  EXPECT_THROW(write_video(folder / "frames", clip.view, {}), Error);
  EXPECT_EQ(read_bytes(folder / "frames" / "mine.txt"), "keep");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("frames"));
}

TEST_F(Writers, WriteAY4mHeaderAndFramesThatDecode) {
  const auto path = folder / "clip.y4m";
  const WrittenVideo written = write_video(path, clip.view, {.fps = 12.5});
  const std::string bytes = read_bytes(path);
  const std::string header = "YUV4MPEG2 W64 H48 F25:2 Ip A1:1 C444 XYSCSS=444 XCOLORRANGE=LIMITED\n";
  EXPECT_THAT(bytes, StartsWith(header));
  EXPECT_EQ(bytes.size(), header.size() + 5 * (6 + 64 * 48 * 3));
  EXPECT_EQ(written.bytes, bytes.size());
  EXPECT_EQ(decode_video(path).frames.size(), 5U);
}

TEST_F(Writers, WriteY4mColorsAsFfmpegReadsThem) {
  for (const Clip& each : {make_clip(2, 256, 256), make_clip(1, 720, 1280)}) {
    write_video(folder / "clip.y4m", each.view, {});
    EXPECT_GT(psnr(decode_video(folder / "clip.y4m"), each.view), 48) << each.view.width;
  }
}

TEST_F(Writers, WriteY4mInTheLimitedRangeOfBt601) {
  // The pixels are white, black, and pure red, green and blue. The expected bytes follow ITU-R BT.601.
  const std::vector<float> pixels = {1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  const auto path = folder / "colours.y4m";
  write_video(path, {.data = pixels.data(), .frames = 1, .height = 1, .width = 5}, {});
  const std::string bytes = read_bytes(path);
  const std::string planes = bytes.substr(bytes.size() - 15);
  const std::vector<uint8_t> values(planes.begin(), planes.end());
  EXPECT_THAT(values, ElementsAre(235, 16, 81, 145, 41, 128, 128, 90, 54, 240, 128, 128, 240, 34, 110));
}

TEST_F(Writers, WriteUnchangedFloatsIntoSafetensors) {
  const auto path = folder / "clip.safetensors";
  write_video(path, clip.view, {});
  const models::TensorFile file(path);
  const models::TensorEntry* entry = file.find("frames");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->dtype, models::Dtype::f32);
  EXPECT_THAT(entry->shape, ElementsAre(5, 48, 64, 3));
  EXPECT_EQ(std::memcmp(file.data(*entry).data(), clip.values.data(), entry->bytes), 0);
}

TEST_F(Writers, ShowFirstFrameLastFrameAndCaptionOnAContactSheet) {
  const auto path = folder / "sheet.png";
  const Clip many = make_clip(20, 48, 64);
  write_contact_sheet(path, many.view, "a red disc, gr\xc3\xbc\xc3\x9f Gott", 6);
  const Decoded sheet = decode_video(path);
  ASSERT_EQ(sheet.frames.size(), 1U);
  EXPECT_EQ(sheet.width, 4 + 6 * (64 + 4));
  EXPECT_GT(sheet.height, 4 + 48 + 4);
  const auto pixel = [&](int x, int y) {
    const uint8_t* p = sheet.frames[0].data() + (static_cast<size_t>(y) * sheet.width + x) * 3;
    return std::vector<uint8_t>(p, p + 3);
  };
  const auto expected = [&](int64_t frame, int x, int y) {
    const std::vector<uint8_t> rgb = rgb8(many.view.values(frame));
    const uint8_t* p = rgb.data() + (static_cast<size_t>(y) * 64 + x) * 3;
    return std::vector<uint8_t>(p, p + 3);
  };
  EXPECT_EQ(pixel(4 + 20, 4 + 24), expected(0, 20, 24));
  EXPECT_EQ(pixel(4 + 5 * 68 + 40, 4 + 24), expected(19, 40, 24));
  const auto below = sheet.frames[0].begin() + static_cast<ptrdiff_t>(56) * sheet.width * 3;
  EXPECT_LT(*std::min_element(below, sheet.frames[0].end()), 100) << "the caption has no dark pixel";
}

TEST_F(Writers, LimitTheCaptionOfAContactSheetToSixLines) {
  std::string prompt;
  for (int i = 0; i < 20'000; ++i) prompt += "hello ";
  const auto height_with = [&](const std::string& caption) {
    write_contact_sheet(folder / "sheet.png", make_clip(20, 16, 64).view, caption);
    return decode_video(folder / "sheet.png").height;
  };
  const int bare = height_with("");
  EXPECT_EQ(height_with(prompt), bare + 6 * 18);
  EXPECT_EQ(height_with(std::string(100'000, 'x')), bare + 18);
}

TEST_F(Writers, ReplaceCharactersThatTheFontOfAContactSheetLacks) {
  const auto sheet_with = [&](const std::string& caption) {
    write_contact_sheet(folder / "sheet.png", make_clip(20, 16, 64).view, caption);
    return decode_video(folder / "sheet.png").frames.at(0);
  };
  EXPECT_EQ(sheet_with("a red disc, \u8d64\u3044\u4e38"), sheet_with("a red disc, ?"));
  EXPECT_EQ(sheet_with("\u0642\u0631\u0635 or \U0001F468\u200D\U0001F469\uFE0F \u9752"), sheet_with("? or ? ?"));
  EXPECT_EQ(sheet_with("gru\u0308\u00df\xe8"), sheet_with("grus?"));
  EXPECT_EQ(sheet_with("gr\u00fc\u00df Gott \u2014 \u201cya\u201d\u2026"), sheet_with("grus Gott - \"ya\"..."));
}

TEST_F(Writers, WrapAContactSheetAfterSixFrames) {
  write_contact_sheet(folder / "sheet.png", make_clip(20, 16, 16).view, "", 12);
  const Decoded sheet = decode_video(folder / "sheet.png");
  EXPECT_EQ(sheet.width, 4 + 6 * 20);
  EXPECT_EQ(sheet.height, 2 * 20 + 4);
}

TEST(Pixels, RoundToNearestAndClamp) {
  const std::vector<float> values = {-1, 0, 0.5F, 1, 2, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(rgb8(values), ElementsAre(0, 0, 128, 255, 255, 0));
}

TEST(FrameRates, AreExactFractions) {
  const auto check = [](double fps, int numerator, int denominator) {
    const FrameRate rate = frame_rate(fps);
    EXPECT_EQ(rate.numerator, numerator) << fps;
    EXPECT_EQ(rate.denominator, denominator) << fps;
  };
  check(8, 8, 1);
  check(12.5, 25, 2);
  check(29.97, 30000, 1001);
  check(59.94, 60000, 1001);
  check(0.1, 1, 10);
}

}  // namespace
}  // namespace sparsereel::app
