// Tests UTF-8, white space, normal forms and lower case. The data come from tests/parity/make_prompt_cleaning.py.
#include "models/files/unicode.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace sparsereel::models {
namespace {

TEST(Utf8, AcceptsWellFormedText) {
  for (const std::string_view text :
       {"", "a", "\u00e9", "\u20ac", "\U0001F600", "\u07ff\u0800\uffff\U00010000\U0010ffff"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesMalformedText) {
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

TEST(Utf8, IsTruncatedBetweenCharacters) {
  EXPECT_EQ(whole_characters("abc", 2), "ab");
  EXPECT_EQ(whole_characters("abc", 3), "abc");
  EXPECT_EQ(whole_characters("abc", 60), "abc");
  EXPECT_EQ(whole_characters("", 60), "");
  const std::string_view text = "a\u00e9\u20ac\U0001F600";  // characters of 1, 2, 3 and 4 bytes
  const size_t lengths[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t most = 0; most < std::size(lengths); ++most)
    EXPECT_EQ(whole_characters(text, most), text.substr(0, lengths[most])) << most;
}

TEST(CharacterKind, FollowsCategoriesAndWhiteSpace) {
  const std::pair<CharacterKind, std::u32string> kinds[] = {
      {CharacterKind::letter, U"aZ\u01c5\u02b0\u00aa\u4e2d\u1100"},
      {CharacterKind::number, U"7\u0664\u2167\u00bd"},
      {CharacterKind::white_space, U" \n\u0085\u00a0\u3000\u2028"},
      {CharacterKind::other, U"!_\u0301\u200b\u20ac\ue000\x01"}};
  for (const auto& [kind, codes] : kinds)
    for (const char32_t code : codes) EXPECT_EQ(kind_of(code), kind) << static_cast<uint32_t>(code);
}

TEST(WhiteSpace, IsMeasuredInBytesOfTheFirstCharacter) {
  EXPECT_EQ(white_space_length(" a"), 1u);
  EXPECT_EQ(white_space_length("\t"), 1u);
  EXPECT_EQ(white_space_length("\u00a0"), 2u);
  EXPECT_EQ(white_space_length("\u3000x"), 3u);
  EXPECT_EQ(white_space_length("a "), 0u);
  EXPECT_EQ(white_space_length("\u200b"), 0u);  // a zero width space does not have Unicode's property White_Space
  EXPECT_EQ(white_space_length(""), 0u);
}

TEST(WhiteSpace, MatchesTheUnicodeProperty) {
  std::u32string found;
  for (char32_t code = 0; code < 0x110000; ++code) {
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (!surrogate && white_space_length(to_utf8({&code, 1})) > 0) found += code;
  }
  EXPECT_EQ(found,
            U"\t\n\v\f\r \x85\xA0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200A"
            U"\u2028\u2029\u202F\u205F\u3000");
}

TEST(Utf8, ConvertsToCodePointsAndBack) {
  const std::u32string all = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF};
  EXPECT_EQ(to_code_points(to_utf8(all)), all);
  EXPECT_TRUE(is_utf8(to_utf8(all)));
}

TEST(NormalFormC, MatchesPython) {
  std::ifstream file(SPARSEREEL_TEST_DATA "/prompt_cleaning.json");
  const nlohmann::json texts = nlohmann::json::parse(file)["normal_forms"];
  ASSERT_GT(texts.size(), 300U);
  for (const auto& each : texts)
    EXPECT_EQ(to_utf8(normal_form_c(to_code_points(each[0].get<std::string>()))), each[1].get<std::string>())
        << each[0].dump(-1, ' ', true);
}

TEST(NormalFormC, KeepsAVowelAfterASyllable) {
  EXPECT_EQ(normal_form_c(U"\uAC00\u11A7"), U"\uAC00\u11A7");
  EXPECT_EQ(normal_form_c(U"\u1100\u1161\u11A7e\u0301\u11A7\u11A8\uAC00\u11A8"),
            U"\uAC00\u11A7\u00E9\u11A7\u11A8\uAC01");
  EXPECT_EQ(normal_form_c(U"\u11A7"), U"\u11A7");
  EXPECT_EQ(normal_form_c(U""), U"");
}

TEST(SmallLetter, UsesTheSimpleCaseMapping) {
  EXPECT_EQ(small_letter(U'A'), U'a');
  EXPECT_EQ(small_letter(U'\u0178'), U'\u00FF');
  EXPECT_EQ(small_letter(U'\u03A3'), U'\u03C3');
  EXPECT_EQ(small_letter(U'\u1E9E'), U'\u00DF');
  EXPECT_EQ(small_letter(U'a'), U'a');
  EXPECT_EQ(small_letter(U'\u4E2D'), U'\u4E2D');
}

}  // namespace
}  // namespace sparsereel::models
