// Tests that keyframes are resized, cropped and mixed with noise as in diffusers. tests/parity/make_keyframes.py writes
// the golden pictures.
#include "models/image/keyframes.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "models/image/resize.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

constexpr std::array<std::array<int64_t, 2>, 3> kCanvases = {{{16, 16}, {12, 30}, {31, 14}}},
                                                kPictures = {{{21, 15}, {13, 29}, {16, 16}}};

Picture picture_of_bytes(const at::Tensor& bytes) {
  const auto* data = bytes.const_data_ptr<uint8_t>();
  return {.height = bytes.size(0), .width = bytes.size(1), .pixels = {data, data + bytes.numel()}};
}

std::string text_of_size(const std::array<int64_t, 2>& size) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]);
}

TEST(Keyframes, MatchEveryByteOfTheReference) {
  const test::Golden golden("keyframes_golden");
  for (const auto& canvas : kCanvases) {
    for (const auto& size : kPictures) {
      SCOPED_TRACE(text_of_size(size) + " to " + text_of_size(canvas));
      const Picture picture = picture_of_bytes(golden["picture." + text_of_size(size)]);
      const std::vector<Picture> fitted = keyframe_pictures({picture, picture}, canvas[0], canvas[1]);
      const std::string name = text_of_size(size) + "." + text_of_size(canvas);
      EXPECT_EQ(fitted.at(0).pixels, picture_of_bytes(golden["first." + name]).pixels);
      EXPECT_EQ(fitted.at(1).pixels, picture_of_bytes(golden["last." + name]).pixels);
      EXPECT_EQ(fitted.at(1).height, canvas[0]);
      EXPECT_EQ(fitted.at(1).width, canvas[1]);
    }
  }
}

TEST(Keyframes, AreNoisedFromOneGeneratorInTheirOrder) {
  const test::Golden golden("keyframes_golden");
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor expected = golden["noised"];
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_TRUE(noised_keyframe(golden["latents"], 0.999, generator).equal(expected.narrow(0, i, 1)));
}

TEST(Keyframes, AreRefusedBySizeIfTheyAreTooNarrowToCoverTheVideo) {
  constexpr int64_t kLong = 1'000'000;
  for (const auto& [height, width] : {std::pair{int64_t{1}, kLong}, std::pair{kLong, int64_t{1}}}) {
    const std::string size = std::to_string(width) + "x" + std::to_string(height);
    EXPECT_TRUE(test::throws_error([&, high = height, wide = width] { check_covers(high, wide, 768, 1344); },
                                   {"last_image of " + size, "1344x768"}));
  }
  EXPECT_NO_THROW(check_covers(768, 60 * 768, 768, 1344));
  const Picture thin = {.height = 1, .width = kLong, .pixels = std::vector<uint8_t>(3 * kLong)};
  EXPECT_TRUE(test::throws_error([&] { keyframe_pictures({thin, thin}, 768, 1344); }, {"is too narrow"}));
  EXPECT_EQ(keyframe_pictures({thin}, 64, 64).front().pixels.size(), size_t{64 * 64 * 3}) << "it is stretched";
}

TEST(Keyframes, BecomeFramesFromMinusOneToOne) {
  const at::Tensor frame = frame_of({.height = 1, .width = 2, .pixels = {0, 255, 51, 255, 0, 0}});
  EXPECT_TRUE(at::allclose(frame.view({3, 2}), at::tensor({-1.0F, 1.0F, 1.0F, -1.0F, -0.6F, -1.0F}).view({3, 2})));
}

}  // namespace
}  // namespace sparsereel::models
