// Tests the JSON parser: what it refuses, its errors and its speed.
#include "models/files/json_text.h"

#include <gmock/gmock.h>

#include <ctime>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

std::string nested(size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

std::string cause_of(const std::string& text) {
  try {
    parse_json(text, "file.json", "mend it");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(JsonText, ReadsEveryKindOfValue) {
  const std::string text =
      R"({"a": [1, -2, 3.5, true, null, "x", {}, []], "b": {"c": {"d": 18446744073709551615}}, "e": ""})";
  EXPECT_EQ(parse_json(text, "", ""), json::parse(text));
  for (const std::string scalar : {"1", "null", "\"x\"", "false", "[[1], {\"a\": [2]}, 3]"})
    EXPECT_EQ(parse_json(scalar, "", ""), json::parse(scalar));
}

TEST(JsonText, NamesTheFileAndTheProblem) {
  EXPECT_THAT(cause_of(R"({"a": 1, "b": {"a": 2, "a": 3}})"),
              testing::HasSubstr("file.json: the key \"a\" appears twice"));
  EXPECT_THAT(cause_of(R"({"a": )"), testing::HasSubstr("file.json: not valid JSON: parse error at line 1"));
  EXPECT_THAT(cause_of(""), testing::HasSubstr("not valid JSON"));
  EXPECT_THAT(cause_of("{} {}"), testing::HasSubstr("not valid JSON"));
  EXPECT_THAT(cause_of("\"\xff\""), testing::HasSubstr("not valid JSON"));
  EXPECT_THAT(cause_of("1e999"), testing::HasSubstr("not valid JSON"));
}

TEST(JsonText, RefusesDeepNesting) {
  EXPECT_EQ(cause_of(nested(kMaxJsonDepth)), "");
  EXPECT_THAT(cause_of(nested(kMaxJsonDepth + 1)), testing::HasSubstr("nested deeper than"));
  EXPECT_THAT(cause_of(std::string(1 << 20, '[')), testing::HasSubstr("nested deeper than"));
}

TEST(JsonText, DiscardsInvalidTextIfJsonIsOptional) {
  EXPECT_TRUE(parse_json_if_valid(nested(100000)).is_discarded());
  EXPECT_TRUE(parse_json_if_valid("no JSON").is_discarded());
  EXPECT_EQ(parse_json_if_valid("[1]"), json({1}));
}

// The header of a weight file has a member for each tensor. With so many members, a parser of quadratic time would take
// minutes.
TEST(JsonText, ParsesInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i)
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]})";
  const std::clock_t start = std::clock();  // CPU time of this process, so a busy machine does not matter
  EXPECT_EQ(parse_json(text + "}", "", "").size(), 200000);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20);
}

}  // namespace
}  // namespace sparsereel::models
