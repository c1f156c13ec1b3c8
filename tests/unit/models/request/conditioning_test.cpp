// Tests how conditioning is split into guidance passes and joined again.
#include "models/request/conditioning.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

const Conditioning kBoth = {.text = at::arange(12, at::kFloat).view({2, 3, 2}),
                            .text_lengths = {2, 3},
                            .pooled = at::arange(4, at::kFloat).view({2, 2}),
                            .context = at::ones({1, 4, 3}),
                            .latents = at::ones({1, 1, 2, 2, 2}),
                            .mask = at::zeros({1, 1, 2, 1, 1}),
                            .deviation = at::ones({1, 1, 1, 2, 2}),
                            .first_keyframe = at::ones({1, 1, 1, 2, 2}),
                            .last_keyframe = at::zeros({1, 1, 1, 2, 2}),
                            .seen = at::ones({2, 1, 1, 2, 3})};

TEST(Conditioning, SelectsTheRowsOfOnePassAndKeepsSharedTensors) {
  const Conditioning prompt = kBoth.pass(1);
  EXPECT_EQ(prompt.passes(), 1);
  EXPECT_TRUE(prompt.text.equal(kBoth.text.narrow(0, 1, 1)));
  EXPECT_THAT(prompt.text_lengths, ElementsAre(3));
  EXPECT_TRUE(prompt.pooled.equal(at::tensor({2.0F, 3.0F}).view({1, 2})));
  EXPECT_TRUE(prompt.context.equal(kBoth.context));
  EXPECT_TRUE(prompt.latents.equal(kBoth.latents));
  EXPECT_TRUE(prompt.mask.equal(kBoth.mask));
}

TEST(Conditioning, FindsItsShortestAndLongestText) {
  EXPECT_EQ(kBoth.shortest_and_longest_text(), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(kBoth.pass(0).shortest_and_longest_text(), std::pair(int64_t{2}, int64_t{2}));
  const Conditioning unpadded = {.text = at::zeros({2, 5, 1})};
  EXPECT_EQ(unpadded.shortest_and_longest_text(), std::pair(int64_t{5}, int64_t{5}));
}

TEST(Conditioning, JoinsPassesToTheOriginal) {
  const Conditioning joined = join({kBoth.pass(0), kBoth.pass(1)});
  EXPECT_TRUE(joined.text.equal(kBoth.text));
  EXPECT_THAT(joined.text_lengths, ElementsAre(2, 3));
  EXPECT_TRUE(joined.pooled.equal(kBoth.pooled));
  EXPECT_TRUE(joined.context.equal(kBoth.context));
  EXPECT_TRUE(joined.latents.equal(kBoth.latents));
  EXPECT_EQ(joined.nbytes(), kBoth.nbytes());
}

TEST(Conditioning, ConvertsAllTensorsToAnotherDtype) {
  const Conditioning half = kBoth.to(at::kBFloat16);
  for (const auto member : Conditioning::tensors()) {
    const at::Tensor& tensor = half.*member;
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(half.nbytes() * 2, kBoth.nbytes());
}

TEST(Conditioning, TakesFromImagesOnlyWhatTheVideoNeeds) {
  Conditioning text = {.text = at::ones({1, 2, 2}), .pictures = {{.first = 1, .count = 1}}};
  text.take_video(kBoth);
  EXPECT_TRUE(text.first_keyframe.equal(kBoth.first_keyframe));
  EXPECT_TRUE(text.last_keyframe.equal(kBoth.last_keyframe));
  EXPECT_FALSE(text.seen.defined()) << "the text is already encoded";
  EXPECT_EQ(text.pictures.size(), 1U);
  EXPECT_TRUE(text.has_images());
  EXPECT_TRUE(Conditioning{.last_keyframe = kBoth.last_keyframe}.has_images());
  EXPECT_FALSE(Conditioning{.text = kBoth.text}.has_images());
}

}  // namespace
}  // namespace sparsereel::models
