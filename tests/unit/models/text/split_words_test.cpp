// Tests how texts are split into words by the tokenizer's regular expression: each alternative in turn.
#include "models/text/split_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found;
  split_words(to_code_points(text), [&](std::u32string_view word) { found.push_back(to_utf8(word)); });
  return found;
}

TEST(SplitWords, KeepsOneCharacterBeforeLetters) {
  EXPECT_THAT(words(""), IsEmpty());
  EXPECT_THAT(words("a red fox"), ElementsAre("a", " red", " fox"));
  EXPECT_THAT(words("(caf\u00e9)"), ElementsAre("(caf\u00e9", ")"));
  EXPECT_THAT(words("a\tb"), ElementsAre("a", "\tb"));
  EXPECT_THAT(words("a\nb"), ElementsAre("a", "\n", "b")) << "the end of a line is no such character";
  EXPECT_THAT(words("e\u0323a"), ElementsAre("e", "\u0323a")) << "a mark is no letter";
}

TEST(SplitWords, CutsContractionsInAnyCase) {
  EXPECT_THAT(words("it's We'LL'Rex"), ElementsAre("it", "'s", " We", "'LL", "'Re", "x"));
  EXPECT_THAT(words("'\u017f'"), ElementsAre("'\u017f", "'")) << "a long s is an s";
  EXPECT_THAT(words("'x 'l"), ElementsAre("'x", " '", "l"));
}

TEST(SplitWords, TakesDigitsOneByOne) {
  EXPECT_THAT(words("x42 7"), ElementsAre("x", "4", "2", " ", "7"));
  EXPECT_THAT(words("\u0664\u2167\u00bd"), ElementsAre("\u0664", "\u2167", "\u00bd"));
}

TEST(SplitWords, KeepsASpaceBeforeAndLineEndsAfterOtherCharacters) {
  EXPECT_THAT(words("a !?\r\n\nb"), ElementsAre("a", " !?\r\n\n", "b"));
  EXPECT_THAT(words("\t!"), ElementsAre("\t", "!")) << "only a space belongs to them";
  EXPECT_THAT(words(" \U0001F642"), ElementsAre(" \U0001F642"));
}

TEST(SplitWords, LeavesTheLastWhiteSpaceToTheNextWord) {
  EXPECT_THAT(words("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(words("a   4"), ElementsAre("a", "  ", " ", "4"));
  EXPECT_THAT(words("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(words(" \n \r\n  b"), ElementsAre(" \n \r\n", " ", " b"));
  EXPECT_THAT(words("\u3000\u0085!"), ElementsAre("\u3000", "\u0085", "!"));
}

}  // namespace
}  // namespace sparsereel::models
