// Tests where the tokens of pictures are placed in a prompt.
#include "models/text/encoder/picture_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

/// A tokenizer for this test: the id of a word is its length.
std::vector<int64_t> lengths_of_words(const std::string& text) {
  std::vector<int64_t> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    ids.push_back(static_cast<int64_t>(end - begin));
    begin = end + 1;
  }
  return ids;
}

TEST(PicturePrompt, PutsLabelsAndPicturesBeforeThePrompt) {
  std::vector<TextPicture> pictures = {{.rows = 1, .columns = 2}, {.rows = 1, .columns = 1}};
  const PicturePrompt made =
      prompt_with_pictures(lengths_of_words, "a red car", pictures, {.begin = 90, .picture = 91, .end = 92});
  // The expected ids stand for "<Picture", "1>:", a picture, "<Picture", "2>:", a picture and the prompt.
  EXPECT_THAT(made.ids, ElementsAre(8, 3, 90, 91, 91, 92, 8, 3, 90, 91, 92, 1, 3, 3));
  ASSERT_EQ(made.pictures.size(), 2U);
  EXPECT_EQ(made.pictures[0].first, 2);
  EXPECT_EQ(made.pictures[0].count, 4) << "with the marks around them";
  EXPECT_EQ(made.pictures[1].first, 8);
  EXPECT_EQ(made.pictures[1].count, 3);
  EXPECT_EQ(pictures[0].first, 3) << "without the marks";
  EXPECT_EQ(pictures[1].first, 9);
}

TEST(PicturePrompt, IsThePromptAloneWithoutPictures) {
  std::vector<TextPicture> none;
  const PicturePrompt made = prompt_with_pictures(lengths_of_words, "a red car", none, {});
  EXPECT_THAT(made.ids, ElementsAre(1, 3, 3));
  EXPECT_TRUE(made.pictures.empty());
}

}  // namespace
}  // namespace sparsereel::models
