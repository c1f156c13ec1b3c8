// UTF-8, white space, grapheme clusters and the search for pieces.
#include "models/text/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/unigram.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

TEST(Utf8, AcceptsWellFormedText) {
  for (const std::string_view text :
       {"", "a", "\u00e9", "\u20ac", "\U0001F600", "\u07ff\u0800\uffff\U00010000\U0010ffff"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesWhatIsNotWellFormed) {
  const std::string_view bad[] = {"\x80",
                                  "\xC3",
                                  "\xE2\x82",
                                  "\xF0\x9F\x98",
                                  "a\xFF",
                                  "\xC0\x80",
                                  "\xC1\xBF",
                                  "\xE0\x9F\xBF",
                                  "\xF0\x8F\xBF\xBF",
                                  "\xED\xA0\x80",
                                  "\xF4\x90\x80\x80",
                                  "\xF8\x88\x80\x80\x80",
                                  "\xC3\x28"};
  for (const std::string_view text : bad) EXPECT_FALSE(is_utf8(text)) << ::testing::PrintToString(text);
}

TEST(Utf8, IsCutBetweenCharacters) {
  EXPECT_EQ(whole_characters("abc", 2), "ab");
  EXPECT_EQ(whole_characters("abc", 3), "abc");
  EXPECT_EQ(whole_characters("abc", 60), "abc");
  EXPECT_EQ(whole_characters("", 60), "");
  const std::string_view text = "a\u00e9\u20ac\U0001F600";  // of 1, 2, 3 and 4 bytes
  const size_t lengths[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t most = 0; most < std::size(lengths); ++most)
    EXPECT_EQ(whole_characters(text, most), text.substr(0, lengths[most])) << most;
}

TEST(WhiteSpace, LengthsOfTheFirstCharacter) {
  EXPECT_EQ(white_space_length(" a"), 1u);
  EXPECT_EQ(white_space_length("\t"), 1u);
  EXPECT_EQ(white_space_length("\u00a0"), 2u);
  EXPECT_EQ(white_space_length("\u3000x"), 3u);
  EXPECT_EQ(white_space_length("a "), 0u);
  EXPECT_EQ(white_space_length("\u200b"), 0u);  // zero width, but no White_Space
  EXPECT_EQ(white_space_length(""), 0u);
}

TEST(Grapheme, MarksJoinTheirBase) {
  EXPECT_EQ(grapheme_length("ab"), 1u);
  EXPECT_EQ(grapheme_length("e\u0301x"), 3u);
  EXPECT_EQ(grapheme_length("e\u0301\u0302x"), 5u);
  EXPECT_EQ(grapheme_length("a\u200db"), 4u);        // a zero width joiner
  EXPECT_EQ(grapheme_length("\u0915\u093e"), 6u);    // a spacing mark
  EXPECT_EQ(grapheme_length("\u0301\u0302a"), 4u);   // marks without a base
  EXPECT_EQ(grapheme_length("\u0600a\u0301b"), 5u);  // a prepended mark
}

TEST(Grapheme, ControlsStandAlone) {
  EXPECT_EQ(grapheme_length("\r\nx"), 2u);
  EXPECT_EQ(grapheme_length("\n\u0301"), 1u);
  EXPECT_EQ(grapheme_length("\u200b\u0301"), 3u);
  EXPECT_EQ(grapheme_length("a\n"), 1u);
  EXPECT_EQ(grapheme_length("\u0600\n"), 2u);
}

std::vector<int64_t> encode(const Unigram& unigram, std::string_view word) {
  std::vector<int64_t> ids;
  unigram.encode(word, ids);
  return ids;
}

TEST(Unigram, TakesTheMostProbableSplit) {
  const Unigram unigram({{"?", 0}, {"a", -1}, {"b", -1}, {"ab", -1.5}, {"abc", -9}, {"c", -1}}, 0);
  EXPECT_THAT(encode(unigram, "abc"), ElementsAre(3, 5));
  EXPECT_THAT(encode(unigram, ""), ElementsAre());
}

TEST(Unigram, OfEqualSplitsTheOneWhoseLastPieceStartsEarliestWins) {
  const Unigram unigram({{"?", 0}, {"-", -3}, {"---", -4}}, 0);
  EXPECT_THAT(encode(unigram, "-------"), ElementsAre(1, 2, 2));
}

TEST(Unigram, NeighbouringUnknownCharactersBecomeOne) {
  const Unigram unigram({{"?", 0}, {"a", -1}}, 0);
  EXPECT_THAT(encode(unigram, "\u65e5\u672ca\u8a9e"), ElementsAre(0, 1, 0));
}

TEST(Unigram, CharacterCutAtTheEndIsUnknown) {
  const Unigram unigram({{"?", 0}, {"a", -1}}, 0);
  for (const char* cut : {"a\xC3", "a\xE6\x97", "a\xF0"}) EXPECT_THAT(encode(unigram, cut), ElementsAre(1, 0));
}

TEST(Unigram, OfPiecesWithOneTextTheLastCounts) {
  const Unigram unigram({{"?", 0}, {"a", -1}, {"a", -2}}, 0);
  EXPECT_THAT(encode(unigram, "a"), ElementsAre(2));
}

}  // namespace
}  // namespace sparsereel::models
