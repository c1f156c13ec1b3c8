// Tests that tables of replacements which SentencePiece would misread are refused, each with its own message.
#include "models/text/charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/unit/models/text/spiece_bytes.h"

namespace sparsereel::models {
namespace {

using test::charsmap_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kLeaf = 1U << 8;  // flag of a trie's unit: a string ends here
constexpr uint32_t kRootOffset = 256 << 10, kNoLabel = 1U << 31;

/// Returns the trie's unit for the string `label` of one byte. The unit's children and its leaf are in the block of 256
/// units that begins at unit `base`.
uint32_t node(char label, uint32_t base, uint32_t flags = 0) {
  const uint32_t own_place = 256 ^ static_cast<uint8_t>(label);
  return (own_place ^ base) << 10 | flags | static_cast<uint8_t>(label);
}

std::string complaint(const std::string& charsmap) {
  try {
    check_charsmap(charsmap, "spiece.model");
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

const std::string kReplacement("\u00E9\0", 3);

TEST(Charsmap, AcceptsAValidTable) {
  EXPECT_EQ(complaint(""), "none") << "no table";
  const std::vector<uint32_t> units = test::units_that_replace_a();
  EXPECT_EQ(complaint(charsmap_of(units, kReplacement)), "none");
}

TEST(Charsmap, RefusesInconsistentSizes) {
  for (const std::string charsmap : {"x", "\x08", "\xFF\xFF\xFF\x7F----"})
    EXPECT_THAT(complaint(charsmap), AllOf(HasSubstr("spiece.model"), HasSubstr("sizes that do not fit")));
  EXPECT_THAT(complaint(std::string("\0\0\0\0a\0", 6)), HasSubstr("sizes that do not fit"));
}

TEST(Charsmap, RequiresTerminatedUtf8Replacements) {
  const std::vector<uint32_t> units = test::units_that_replace_a();
  for (const std::string_view bad : {std::string_view("\xF0\0", 2), std::string_view("\x80\0", 2),
                                     std::string_view("a", 1), std::string_view("", 0)})
    EXPECT_THAT(complaint(charsmap_of(units, std::string(bad))), HasSubstr("not UTF-8 or has no end"));
}

TEST(Charsmap, RequiresLeavesToPointAtReplacements) {
  EXPECT_THAT(complaint(charsmap_of(test::units_that_replace_a(1), kReplacement)), HasSubstr("no replacement"))
      << "the middle of a character";
  EXPECT_THAT(complaint(charsmap_of(test::units_that_replace_a(3), kReplacement)), HasSubstr("no replacement"))
      << "just beyond the end";
  EXPECT_EQ(complaint(charsmap_of(test::units_that_replace_a(2), kReplacement)), "none") << "an empty one";
}

TEST(Charsmap, RefusesPathsThatLeaveTheTrie) {
  const std::string leads_out = "leads out of its trie";
  std::vector<uint32_t> units = test::units_that_replace_a();
  units[0] = 512 << 10;
  EXPECT_THAT(complaint(charsmap_of(units, kReplacement)), HasSubstr(leads_out)) << "from the root";
  units = test::units_that_replace_a();
  units[256 ^ 'a'] = node('a', 512, kLeaf);
  EXPECT_THAT(complaint(charsmap_of(units, kReplacement)), HasSubstr(leads_out)) << "from a node";
  units = test::units_that_replace_a();
  units.pop_back();
  EXPECT_THAT(complaint(charsmap_of(units, kReplacement)), HasSubstr(leads_out)) << "some byte would";
}

TEST(Charsmap, RefusesCycles) {
  std::vector<uint32_t> units = test::units_that_replace_a();
  units[256 ^ 'b'] = node('b', 256);
  EXPECT_THAT(complaint(charsmap_of(units, kReplacement)), HasSubstr("circle"));
}

/// Returns a charsmap whose trie has the given number of strings: "a", "aa", "aaa" and so on.
std::string nested(uint32_t strings) {
  std::vector<uint32_t> units(256 * (strings + 2), kNoLabel);
  units[0] = kRootOffset;
  for (uint32_t i = 1; i <= strings; ++i) {
    const uint32_t place = (256 * i) ^ 'a', base = 256 * (i + 1);
    units[place] = (place ^ base) << 10 | kLeaf | 'a';
  }
  return charsmap_of(units, kReplacement);
}

TEST(Charsmap, LimitsStringsWithACommonPrefix) {
  EXPECT_EQ(complaint(nested(32)), "none");
  EXPECT_THAT(complaint(nested(33)), HasSubstr("more strings that start alike"));
}

}  // namespace
}  // namespace sparsereel::models
