// Cleaned prompts and normal forms against diffusers, ftfy and Python; data from tests/parity/make_prompt_cleaning.py.
#include "models/text/clean_prompt.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/normal_form.h"
#include "models/text/unicode.h"

namespace sparsereel::models {
namespace {

nlohmann::json cases(const char* name) {
  std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/prompt_cleaning.json");
  return nlohmann::json::parse(file)[name];
}

TEST(CleanPrompt, GivesWhatWanPipelineMakesOfIt) {
  const nlohmann::json prompts = cases("prompts");
  ASSERT_GT(prompts.size(), 50U);
  for (const auto& each : prompts)
    EXPECT_EQ(clean_prompt(each[0].get<std::string>()), each[1].get<std::string>()) << each[0].dump(-1, ' ', true);
}

TEST(CleanPrompt, LeavesTextThatWasDecodedInAWrongEncoding) {
  EXPECT_EQ(clean_prompt("caf\u00c3\u00a9"), "caf\u00c3\u00a9");
}

TEST(NormalFormC, GivesWhatPythonGives) {
  const nlohmann::json texts = cases("normal_forms");
  ASSERT_GT(texts.size(), 300U);
  for (const auto& each : texts)
    EXPECT_EQ(to_utf8(normal_form_c(to_code_points(each[0].get<std::string>()))), each[1].get<std::string>())
        << each[0].dump(-1, ' ', true);
}

}  // namespace
}  // namespace sparsereel::models
