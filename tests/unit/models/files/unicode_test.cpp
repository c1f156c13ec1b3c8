// UTF-8 and white space.
#include "models/files/unicode.h"

#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

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

}  // namespace
}  // namespace sparsereel::models
