// Tests that images are read as Pillow reads them. tests/parity/make_images.py writes the images and the golden values.
#include "app/media/image.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "app/media/image_header.h"
#include "app/media/image_readers.h"
#include "app/media/png.h"
#include "app/media/video.h"
#include "models/files/regular_file.h"
#include "models/store/checkpoint/tensor_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

const fs::path kPictures = SPARSEREEL_TEST_DATA "/images";

/// The largest allowed difference of a pixel's channel from Pillow's, in units of 1/255. Lossy formats and converted
/// colors need such a tolerance.
const std::map<std::string, int> kTolerances = {
    {"turned1.avif", 3},    {"turned2.avif", 3}, {"turned3.avif", 3}, {"turned4.avif", 3}, {"turned5.avif", 3},
    {"turned6.avif", 3},    {"turned7.avif", 3}, {"turned8.avif", 3}, {"turned.jpg", 3},   {"half-colour.jpg", 6},
    {"progressive.jpg", 6}, {"grey.jpg", 2},     {"lossy.webp", 6}};

TEST(Image, DecodesEveryFormatAsPillowDoes) {
  const models::TensorFile golden(SPARSEREEL_TEST_DATA "/images_golden.safetensors");
  EXPECT_GE(golden.entries().size(), 37U);
  for (const models::TensorEntry& entry : golden.entries()) {
    const Image image = read_image(kPictures / entry.name);
    ASSERT_EQ((std::vector<int64_t>{image.height, image.width, 3}), entry.shape) << entry.name;
    const std::span<const std::byte> expected = golden.data(entry);
    int worst = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<int>(expected[i]) - static_cast<int>(image.pixels[i])));
    const auto tolerance = kTolerances.find(entry.name);
    EXPECT_LE(worst, tolerance == kTolerances.end() ? 0 : tolerance->second) << entry.name;
  }
}

TEST(Image, ReadsBackTheWrittenPng) {
  const test::TemporaryFolder folder;
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 5 * 7 * 3; ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
  write_png(folder / "a b%03d.png", 7, 5, pixels);
  const Image image = read_image(folder / "a b%03d.png");
  EXPECT_EQ(image.height, 5);
  EXPECT_EQ(image.width, 7);
  EXPECT_EQ(image.pixels, pixels);
}

TEST(Image, NamesFilesThatAreNoImages) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "none.png"); }, {"none.png", "No such file"}));
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "none.safetensors"); }, {"none.safetensors"}));
  for (const char* sequence : {"frame_%04d.png", "%d.jpg"})
    EXPECT_TRUE(test::throws_error([&] { read_image(folder / sequence); }, {sequence, "is a pattern for many files"}));
  EXPECT_TRUE(test::throws_error([&] { read_image(folder.path()); }, {"is a folder", "a single file"}));
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "100% done.png"); }, {"100% done.png", "No such file"}));
  std::ofstream(folder / "text.png") << "no picture";
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "text.png"); }, {"text.png", "cannot be read as an image"}));
  EXPECT_TRUE(test::throws_error([&] { read_image(kPictures / "cmyk.jpg"); }, {"cmyk.jpg", "is a CMYK picture"}));
  EXPECT_TRUE(test::throws_error([&] { read_image(kPictures / "animated.webp"); }, {"is an animated WebP"}));
}

TEST(Image, RefusesTruncatedImages) {
  const test::TemporaryFolder folder;
  for (const char* name : {"turned.jpg", "turned1.png", "lossy.webp", "picture.ppm"}) {
    const std::string whole = models::read_regular_file(kPictures / name, 1 << 20, "");
    std::ofstream(folder / name, std::ios::binary) << whole.substr(0, whole.size() * 3 / 4);
    EXPECT_TRUE(test::throws_error([&] { read_image(folder / name); }, {name})) << name;
  }
}

TEST(Image, RefusesTooManyPixelsBeforeItDecodesThem) {
  const test::TemporaryFolder folder;
  const auto with = [&](const char* name, size_t place, const std::string& size) {
    std::string file = models::read_regular_file(kPictures / name, 1 << 20, "");
    std::ofstream(folder / name, std::ios::binary) << file.replace(place, size.size(), size);
    EXPECT_TRUE(test::throws_error([&] { read_image(folder / name); }, {name, "30000x30000", "million pixels"}))
        << name;
  };
  with("grey.png", 16, {'\0', '\0', '\x75', '\x30', '\0', '\0', '\x75', '\x30'});
  std::ofstream(folder / "large.ppm") << "P6 30000 30000 255\n";
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "large.ppm"); }, {"large.ppm", "30000x30000"}));
  const std::string jpeg = models::read_regular_file(kPictures / "grey.jpg", 1 << 20, "");
  with("grey.jpg", jpeg.find(std::string("\xff\xc0", 2)) + 5, "\x75\x30\x75\x30");
}

TEST(Image, RefusesListsOfOtherFiles) {
  const test::TemporaryFolder folder;
  write_video(folder / "clip.mp4",
              {.data = std::vector<float>(32 * 32 * 3).data(), .frames = 1, .height = 32, .width = 32}, {});
  const std::map<std::string, std::string> lists = {
      {"hls", "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nclip.mp4\n"},
      {"concat", "ffconcat version 1.0\nfile clip.mp4\n"},
      {"dash",
       "<?xml version=\"1.0\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"dynamic\" "
       "profiles=\"urn:mpeg:dash:profile:isoff-live:2011\"></MPD>"},
      {"svg", "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"8\" height=\"8\"/>"}};
  for (const auto& [kind, text] : lists) {
    const std::string name = kind + ".png";
    std::ofstream(folder / name) << text;
    EXPECT_TRUE(test::throws_error([&] { read_image(folder / name); }, {name})) << name;
  }
}

TEST(Image, RefusesPipesWithoutWaiting) {
  const test::TemporaryFolder folder;
  const fs::path pipe = folder / "pipe.png";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(test::throws_error([&] { read_image(pipe); }, {"pipe.png", "is not a regular file"}));
  EXPECT_TRUE(test::throws_error([&] { read_image("/dev/zero"); }, {"/dev/zero", "is not a regular file"}));
}

std::string little(uint32_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> 8 * i);
  return text;
}

std::string bmp(int width, int height, const std::string& bgr) {
  std::string pixels;
  for (int i = 0; i < width * height; ++i) pixels += bgr;
  const auto length = static_cast<uint32_t>(pixels.size());
  return "BM" + little(54 + length, 4) + little(0, 4) + little(54, 4) + little(40, 4) +
         little(static_cast<uint32_t>(width), 4) + little(static_cast<uint32_t>(height), 4) + little(1, 2) +
         little(24, 2) + little(0, 4) + little(length, 4) + std::string(16, '\0') + pixels;
}

TEST(Image, TakesNamesWithPatternCharactersLiterally) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "x001.bmp", std::ios::binary) << bmp(8, 8, {'\0', '\0', '\xff'});
  for (const char* name : {"x%03d.bmp", "100%done.bmp", "x*.bmp"}) {
    std::ofstream(folder / name, std::ios::binary) << bmp(8, 8, {'\xff', '\0', '\0'});
    const Image image = read_image(folder / name);
    EXPECT_EQ(image.width, 8) << name;
    EXPECT_EQ((std::vector<uint8_t>(image.pixels.begin(), image.pixels.begin() + 3)), (std::vector<uint8_t>{0, 0, 255}))
        << name;
  }
}

// Our reader of headers does not know these formats, so only the decoder finds their size. It must not take gigabytes.
TEST(Image, RefusesTooManyPixelsThatOnlyTheDecoderFinds) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "large.pam") << "P7\nWIDTH 30000\nHEIGHT 30000\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n"
                                      << std::string(100, 'x');
  std::string sgi("\x01\xda\0\x01\0\x03\x75\x30\x75\x30\0\x03", 12);
  std::ofstream(folder / "large.sgi", std::ios::binary) << sgi + std::string(1024, '\0');
  for (const char* name : {"large.pam", "large.sgi"}) {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    EXPECT_TRUE(test::throws_error([&] { read_image(folder / name); }, {name})) << name;
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 200 << 10) << name;  // KiB
  }
}

TEST(Image, ReadsTheSizeFromTheHeader) {
  for (const auto& [name, format] : {std::pair("turned.jpg", ImageFormat::jpeg),
                                     {"progressive.jpg", ImageFormat::jpeg},
                                     {"deep.png", ImageFormat::png},
                                     {"lossy.webp", ImageFormat::webp},
                                     {"turned.webp", ImageFormat::webp},
                                     {"alpha.webp", ImageFormat::webp}}) {
    const std::string file = models::read_regular_file(kPictures / name, 1 << 20, "");
    const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
    ASSERT_EQ(image_format(bytes), format) << name;
    const ImageHeader header = read_image_header(format, bytes);
    EXPECT_EQ(header.height, 12) << name;
    EXPECT_EQ(header.width, 20) << name;
    // Must return for every truncated header.
    for (size_t size = 0; size < bytes.size(); ++size) read_image_header(format, bytes.first(size));
  }
}

TEST(Image, TakesTheLastFrameOfAVideo) {
  const test::TemporaryFolder folder;
  constexpr int64_t frames = 30, height = 32, width = 48;
  // In the last frame, red increases from left to right. All other frames are blue.
  std::vector<float> pixels;
  for (int64_t i = 0; i < frames * height * width; ++i) {
    const bool last = i / (height * width) == frames - 1;
    const std::array<float, 3> blue = {0, 0, 1}, red = {static_cast<float>(i % width) / width, 0.25F, 0.25F};
    pixels.insert(pixels.end(), last ? red.begin() : blue.begin(), last ? red.end() : blue.end());
  }
  const FramesView clip{.data = pixels.data(), .frames = frames, .height = height, .width = width};
  for (const char* name : {"clip.mp4", "clip.webm", "clip.gif", "clip.y4m", "clip.safetensors"}) {
    write_video(folder / name, clip, {.crf = 4});
    const Image image = read_image(folder / name);
    ASSERT_EQ((std::pair{image.height, image.width}), (std::pair{height, width})) << name;
    for (const int64_t x : {4, 24, 44}) {
      const uint8_t* pixel = image.pixels.data() + (16 * width + x) * 3;
      EXPECT_NEAR(pixel[0], static_cast<double>(x) / width * 255, 12) << name << " at " << x;
      EXPECT_NEAR(pixel[1], 64, 12) << name << " at " << x;
      EXPECT_NEAR(pixel[2], 64, 12) << name << " at " << x;
    }
  }
}

TEST(Image, RotatesAVideoAsItsFileSays) {
  const test::TemporaryFolder folder;
  constexpr int64_t height = 32, width = 64;
  std::vector<float> pixels;  // red on the left, blue on the right
  for (int64_t i = 0; i < height * width; ++i) {
    const float right = i % width < width / 2 ? 0 : 1;
    pixels.insert(pixels.end(), {1 - right, 0, right});
  }
  write_video(folder / "clip.mp4", {.data = pixels.data(), .frames = 1, .height = height, .width = width}, {});
  std::string file = models::read_regular_file(folder / "clip.mp4", 1 << 20, "");
  const std::array<unsigned char, 36> quarter = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0,    0, 0, 0,
                                                 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0,    0x40, 0, 0, 0};
  std::memcpy(file.data() + file.find("tkhd") + 44, quarter.data(), quarter.size());
  std::ofstream(folder / "turned.mp4", std::ios::binary) << file;
  const Image image = read_image(folder / "turned.mp4");
  ASSERT_EQ((std::pair{image.height, image.width}), (std::pair{width, height}));
  EXPECT_GT(image.pixels[0], 200) << "what was on the left is above";
  EXPECT_GT(image.pixels[image.pixels.size() - 1], 200);
}

TEST(Image, LimitsTheSearchForTheLastFrame) {
  const test::TemporaryFolder folder;
  const std::vector<float> pixels(32 * 32 * 3);
  write_video(folder / "clip.mp4", {.data = pixels.data(), .frames = 1, .height = 32, .width = 32}, {});
  const auto look = [&](std::chrono::seconds limit) { decode_last_frame(folder / "clip.mp4", std::nullopt, limit); };
  EXPECT_NO_THROW(look(kMostSearch));
  EXPECT_TRUE(test::throws_error([&] { look(std::chrono::seconds(0)); },
                                 {"clip.mp4", "FFmpeg did not reach its last frame within 0 s"}));
}

TEST(Image, SaysWhatIsNeededForFilesWithoutAPicture) {
  const models::TensorFile golden(SPARSEREEL_TEST_DATA "/images_golden.safetensors");
  EXPECT_TRUE(test::throws_error([&] { read_image(golden.path()); }, {"images_golden.safetensors", "has no picture"}));
  const test::TemporaryFolder folder;
  std::ofstream(folder / "a.ppm") << "P6 # a comment\n2 # another\n1 255\nabcdef";
  EXPECT_EQ(read_image(folder / "a.ppm").pixels, (std::vector<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  std::ofstream(folder / "b.ppm") << "P6 2 x";
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "b.ppm"); }, {"b.ppm", "is not a PPM"}));
  // A gray of 0x1ff = 511 of 1023.
  std::ofstream(folder / "c.pgm", std::ios::binary) << std::string("P5 1 1 1023\n\x01\xff", 14);
  EXPECT_EQ(read_image(folder / "c.pgm").pixels, (std::vector<uint8_t>{127, 127, 127}));
}

}  // namespace
}  // namespace sparsereel::app
