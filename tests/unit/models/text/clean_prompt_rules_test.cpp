// Tests how models change a prompt before they encode it, such as by words that they add.
#include "models/text/clean_prompt.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/families/open_sora_plan/family.h"

namespace sparsereel::models {
namespace {

/// tests/parity/make_open_sora_plan_captions.py made the data, which has prompts with many kinds of endings.
TEST(PreparedPrompt, MatchesOpenSoraPlan) {
  std::ifstream file(SPARSEREEL_TEST_DATA "/open_sora_plan/captions.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 40U);
  for (const auto& each : cases)
    EXPECT_EQ(prepared_prompt(each[0], open_sora_plan_family().prompt), each[1].get<std::string>()) << each[0];
}

TEST(PreparedPrompt, IsUnchangedWithoutRules) {
  EXPECT_EQ(prepared_prompt(" A dog.. . ", {}), " A dog.. . ");
  EXPECT_EQ(prepared_prompt(" A  dog ", {.cleaned = true}), "A dog");
  EXPECT_EQ(prepared_prompt("b", {.before = "a ", .after = " c"}), "a b c");
}

TEST(StrayFullStops, AreReplacedByOneSpace) {
  EXPECT_EQ(without_stray_full_stops("a . b .. c... d. e .f"), "a b c d. e .f");
  EXPECT_EQ(without_stray_full_stops(" a . . . b\u3000. \n c"), "a b c");
  EXPECT_EQ(without_stray_full_stops("."), ".") << "nothing stands around it";
  EXPECT_EQ(without_stray_full_stops("..."), "");
}

}  // namespace
}  // namespace sparsereel::models
