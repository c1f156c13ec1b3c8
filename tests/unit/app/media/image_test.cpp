// A picture that was written is read again.
#include "app/media/image.h"

#include <gtest/gtest.h>

#include <fstream>

#include "app/media/with_libraries/png.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

TEST(Image, APngIsReadAsItWasWritten) {
  const test::TemporaryFolder folder;
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 5 * 7 * 3; ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
  write_png(folder / "a b.png", 7, 5, pixels);
  const Image image = read_image(folder / "a b.png");
  EXPECT_EQ(image.height, 5);
  EXPECT_EQ(image.width, 7);
  EXPECT_EQ(image.pixels, pixels);
}

TEST(Image, WhatIsNoneIsNamed) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "none.png"); }, {"none.png", "No such file"}));
  std::ofstream(folder / "text.png") << "no picture";
  EXPECT_TRUE(test::throws_error([&] { read_image(folder / "text.png"); }, {"text.png", "cannot be read as an image"}));
}

}  // namespace
}  // namespace sparsereel::app
