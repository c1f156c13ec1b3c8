// Tests the Unicode normal form NFC as tokenizers apply it. They know Unicode 9, so accents and letters of later
// versions stay where they are. byte_pairs_test.cpp compares with transformers.
#include "models/text/normal_form.h"

#include <gtest/gtest.h>

#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

TEST(NormalFormOfTokenizers, JoinsAndSortsAccentsOfUnicode9) {
  EXPECT_EQ(normal_form_c_of_tokenizers(U"cafe\u0301 q\u0301\u0323 \u30ab\u3099"), U"caf\u00e9 q\u0323\u0301 \u30ac");
  EXPECT_EQ(normal_form_c_of_tokenizers(U""), U"");
}

TEST(NormalFormOfTokenizers, LeavesLaterAccentsWhereTheyAre) {
  for (const std::u32string text : {U"\u0e81\u0ec8\u0eba", U"\u0c4d\u0c3c", U"q\u0301\u1abf\u0323"}) {
    EXPECT_EQ(normal_form_c_of_tokenizers(text), text) << to_utf8(text);
    EXPECT_NE(normal_form_c(text), text) << to_utf8(text);
  }
  EXPECT_EQ(normal_form_c_of_tokenizers(U"e\u0301\u0ebae\u0301"), U"\u00e9\u0eba\u00e9");
}

TEST(NormalFormOfTokenizers, DoesNotJoinLaterLetters) {
  const std::u32string text = U"\U00011935\U00011930";
  EXPECT_EQ(normal_form_c_of_tokenizers(text), text);
}

}  // namespace
}  // namespace sparsereel::models
