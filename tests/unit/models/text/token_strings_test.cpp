// Tests finding special tokens in texts. tokenizer_test.cpp and byte_pairs_test.cpp test them as parts of tokenizers.
#include "models/text/token_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

TEST(TokenStrings, SplitATextAtTheLongestOfThem) {
  TokenStrings tokens;
  tokens.add({.content = "<a>"}, 1);
  tokens.add({.content = "<a><b>"}, 2);
  tokens.add({.content = "<a>", .lstrip = true}, 3);  // ignored, because "<a>" was added before
  std::vector<int64_t> ids;
  std::vector<std::string> between;
  tokens.split("x <a><b><a> <b>", ids, [&](std::string_view rest) { between.emplace_back(rest); });
  EXPECT_THAT(ids, ElementsAre(2, 1));
  EXPECT_THAT(between, ElementsAre("x ", " <b>"));
  EXPECT_EQ(tokens.find("<a>"), 1);
  EXPECT_EQ(tokens.find("<b>"), -1);
}

TEST(TokenStrings, TakeTheWhiteSpaceAroundThem) {
  TokenStrings tokens;
  tokens.add({.content = "<a>", .lstrip = true, .rstrip = true}, 1);
  std::vector<int64_t> ids;
  std::vector<std::string> between;
  tokens.split("x \u3000<a>\n <a>", ids, [&](std::string_view rest) { between.emplace_back(rest); });
  EXPECT_THAT(ids, ElementsAre(1, 1));
  EXPECT_THAT(between, ElementsAre("x"));
}

}  // namespace
}  // namespace sparsereel::models
