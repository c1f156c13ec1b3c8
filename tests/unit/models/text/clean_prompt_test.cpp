// Compares cleaned prompts with those of diffusers, ftfy and Python. tests/parity/make_prompt_cleaning.py made the
// data.
#include "models/text/clean_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

namespace sparsereel::models {
namespace {

nlohmann::json cases(const char* name) {
  std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/prompt_cleaning.json");
  return nlohmann::json::parse(file)[name];
}

TEST(CleanPrompt, MatchesWanPipeline) {
  const nlohmann::json prompts = cases("prompts");
  ASSERT_GT(prompts.size(), 50U);
  for (const auto& each : prompts)
    EXPECT_EQ(clean_prompt(each[0].get<std::string>()), each[1].get<std::string>()) << each[0].dump(-1, ' ', true);
}

/// The expected text is that of lower().strip() in Python.
TEST(LowerPrompt, MatchesPythonsLowerAndStrip) {
  EXPECT_EQ(lower_prompt(" \n A Red FOX,  \u00C9COLE \u0130Z \u3000"), "a red fox,  \u00E9cole i\u0307z");
  EXPECT_EQ(lower_prompt("\u0410\u042F \u0100\u0101 \u1E9E \uA7D6 \U00010400"),
            "\u0430\u044F \u0101\u0101 \u00DF \uA7D7 \U00010428");
  EXPECT_EQ(lower_prompt("already small 123 \u4E2D"), "already small 123 \u4E2D");
  EXPECT_EQ(lower_prompt(" \t"), "");
}

std::string nested(const std::string& first, const std::string& layer, size_t layers, const std::string& last) {
  std::string text = first;
  for (size_t i = 0; i < layers; ++i) text += layer;
  return text + last;
}

TEST(CleanPrompt, DecodesNestedReferencesLayerByLayer) {
  EXPECT_EQ(clean_prompt(nested("&", "amp;", 50, "lt;")), "<");
  EXPECT_EQ(clean_prompt(nested("&", "#xFF06;", 50, "lt;")), "<");  // U+FF06 is a fullwidth "&"
  EXPECT_EQ(clean_prompt(nested("&lt", "&semi", 50, ";")), "<");
  EXPECT_EQ(clean_prompt(nested("&lt", "&#x37E", 50, ";")), "<");  // the normal form of U+037E is ";"
  EXPECT_EQ(clean_prompt("&am&#112;;#60; &am&zzz;p;"), "< &am&zzz;p;");
  EXPECT_EQ(clean_prompt("a\x1b[&amp;#49;mb"), "a[1mb");
}

TEST(CleanPrompt, TakesLinearTimeForNestedReferences) {
  const auto seconds = [](const std::string& text) {
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t start = std::clock();  // CPU time of this process, so a busy machine does not matter
      EXPECT_EQ(clean_prompt(text), "<");
      least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return least;
  };
  // If each layer of nested escapes needed a pass over the whole text, a text of 16 times the length would take 256
  // times as long.
  EXPECT_LT(seconds(nested("&", "amp;", 8000, "lt;")), 64 * seconds(nested("&", "amp;", 500, "lt;")));
}

TEST(CleanPrompt, DecomposesLigaturesAndWidthVariants) {
  EXPECT_EQ(clean_prompt("\u0132 \u0133 \u0149 \u01C4 \u01C8 \u01CC \u01F1 \u01F3"), "IJ ij 'n D\u017D Lj nj DZ dz");
  EXPECT_EQ(clean_prompt("\uFB00 \uFB04 \uFB05 \uFB06 \uFB13"), "ff ffl \u017Ft st \uFB13");
  EXPECT_EQ(clean_prompt("\uFF01\uFF21\u3000\uFFE6\uFFE3 \uFF76\uFF9E \u00B2 \u2460"),
            "!A \u20A9 \u0304 \u30AC \u00B2 \u2460");
}

TEST(CleanPrompt, KeepsTextThatWasDecodedInAWrongEncoding) {
  EXPECT_EQ(clean_prompt("caf\u00c3\u00a9"), "caf\u00c3\u00a9");
}

}  // namespace
}  // namespace sparsereel::models
