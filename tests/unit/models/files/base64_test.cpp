#include "models/files/base64.h"

#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TEST(Base64, DecodesTheExamplesOfTheStandard) {  // RFC 4648, section 10
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("//+A"), "\xFF\xFF\x80");
}

TEST(Base64, NeedsNoPaddingButNoOtherCharacters) {
  EXPECT_EQ(decode_base64("Zm8"), "fo");
  for (const char* text : {"Zm 8", "Zm8\n", "Z=m8", "Zm-_", "Zm8*"})
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace sparsereel::models
