// Tests prompt sets in every format, and that errors name the file and the line.
#include "app/jobs/batch/prompt_set.h"

#include "tests/support/temporary_folder.h"

namespace sparsereel::app::sets {
namespace {

using Values = std::map<std::string, std::string>;

std::vector<PromptRow> parse(const std::string& text, SetFormat format) {
  return parse_prompt_set(text, format, "set");
}

::testing::AssertionResult refused(const std::string& text, SetFormat format, const std::vector<std::string>& words) {
  return test::throws_error([&] { parse(text, format); }, words);
}

TEST(PromptSet, ReadsOnePromptPerLineOfTextAndSkipsComments) {
  const auto rows = parse("\xEF\xBB\xBF# a set\n\n  a red circle \r\na # in a prompt\n   # another\n", SetFormat::txt);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].values, (Values{{"prompt", "a red circle"}}));
  EXPECT_EQ(rows[0].line, 3);
  EXPECT_EQ(rows[1].values, (Values{{"prompt", "a # in a prompt"}}));
  EXPECT_EQ(rows[1].line, 4);
}

TEST(PromptSet, AcceptsNumbersFlagsAndAliasesInJsonLines) {
  const auto rows = parse(
      "{\"prompt\": \"a\", \"seed\": 7, \"num-frames\": 9, \"dynamic_cfg\": true, \"topk\": 0.25, \"steps\": null}\n",
      SetFormat::jsonl);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].values,
            (Values{{"prompt", "a"}, {"seed", "7"}, {"frames", "9"}, {"dynamic_cfg", "true"}, {"topk", "0.25"}}));
}

TEST(PromptSet, AcceptsQuotesCommasAndLineEndsInCsvFields) {
  const auto rows = parse("prompt,seed\r\n\"a \"\"big\"\",\nred ball\",7\r\n\r\nb,\r\n", SetFormat::csv);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].values, (Values{{"prompt", "a \"big\",\nred ball"}, {"seed", "7"}}));
  EXPECT_EQ(rows[0].line, 2);
  EXPECT_EQ(rows[1].values, (Values{{"prompt", "b"}}));
  EXPECT_EQ(rows[1].line, 5);
}

TEST(PromptSet, AcceptsPromptsAndMapsInYaml) {
  const auto rows = parse("# a set\n- a\n- prompt: b\n  seed: 7\n- {prompt: c, steps: ~}\n", SetFormat::yaml);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].values, (Values{{"prompt", "a"}}));
  EXPECT_EQ(rows[1].values, (Values{{"prompt", "b"}, {"seed", "7"}}));
  EXPECT_EQ(rows[1].line, 3);
  EXPECT_EQ(rows[2].values, (Values{{"prompt", "c"}}));
}

TEST(PromptSet, NamesTheLineOfAnUnknownFieldAndSuggestsTheNearest) {
  EXPECT_TRUE(refused("{\"prompt\": \"a\"}\n{\"stpes\": 3}\n", SetFormat::jsonl, {"set:2", "stpes"}));
  EXPECT_TRUE(refused("prompt,guidance\na,1\n", SetFormat::csv, {"set:1", "guidance"}));
  EXPECT_TRUE(refused("prompt,\na,b\n", SetFormat::csv, {"set:1", "the field \"\" is unknown"}));
  EXPECT_TRUE(refused("- a\n- prompt: b\n  tokp: 1\n", SetFormat::yaml, {"set:3:3", "tokp"}));
  try {
    parse("{\"stpes\": 3}\n", SetFormat::jsonl);
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy().find("did you mean steps?"), 0U) << error.remedy();
  }
}

TEST(PromptSet, NamesTheLineOfAWrongValue) {
  EXPECT_TRUE(refused("prompt,steps\na,3\nb,x\n", SetFormat::csv, {"set:3", "steps", "whole number"}));
  EXPECT_TRUE(refused("{\"prompt\": [1]}\n", SetFormat::jsonl, {"set:1", "prompt"}));
  EXPECT_TRUE(refused("- prompt: a\n  attention: fast\n", SetFormat::yaml, {"set:2:14", "attention", "sparse"}));
  EXPECT_TRUE(refused("{\"frames\": 5, \"num_frames\": 9}\n", SetFormat::jsonl, {"set:1", "frames", "twice"}));
  EXPECT_TRUE(refused("{\"size\": \"64x64\", \"width\": 9}\n", SetFormat::jsonl, {"set:1", "size", "width"}));
}

TEST(PromptSet, NamesTheLineWhereAFileIsMalformed) {
  EXPECT_TRUE(refused("{}\n{\"a\n", SetFormat::jsonl, {"set:2", "JSON"}));
  EXPECT_TRUE(refused("[1]\n", SetFormat::jsonl, {"set:1", "object"}));
  EXPECT_TRUE(refused("prompt,seed\na,1,2\n", SetFormat::csv, {"set:2", "3 fields"}));
  EXPECT_TRUE(refused("prompt\n\"a\n\n", SetFormat::csv, {"set:2", "quote"}));
  EXPECT_TRUE(refused("prompt\n\"a\"b\n", SetFormat::csv, {"set:2", "quote"}));
  EXPECT_TRUE(refused("prompt\na\"b\n", SetFormat::csv, {"set:2", "quote"}));
  EXPECT_TRUE(refused("- a\n- {b\n", SetFormat::yaml, {"set:", "YAML"}));
  EXPECT_TRUE(refused("prompt: a\n", SetFormat::yaml, {"set:1:1", "list"}));
  EXPECT_TRUE(refused("- a\n---\n- b\n", SetFormat::yaml, {"set:2:1", "second document"}));
  EXPECT_TRUE(refused("- [a]\n", SetFormat::yaml, {"set:1:3"}));
}

TEST(PromptSet, NamesTheLineOfTextThatIsNotUtf8) {
  using enum SetFormat;
  const std::string utf16(
      "\xFF\xFE"
      "a\0\n\0",
      6),
      nul("prompt\nred\0ball\n", 16);
  for (const SetFormat format : {txt, jsonl, csv, yaml}) {
    EXPECT_TRUE(refused(utf16, format, {"set:1", "UTF-8"}));
    EXPECT_TRUE(refused(nul, format, {"set:2", "UTF-8"}));
    EXPECT_TRUE(refused("prompt\ncaf\xE9\n", format, {"set:2", "UTF-8"}));
  }
}

TEST(PromptSet, RefusesCarriageReturnsAsLineEnds) {
  EXPECT_TRUE(refused("a\rb\r", SetFormat::txt, {"set:1", "carriage return"}));
}

TEST(PromptSet, RequiresPlainNamesForFilesThatRowsWriteOrMention) {
  for (const OptionSpec& option : option_table()) {
    const RowFile where = row_file(option);
    if (where == RowFile::anywhere || where == RowFile::from_the_set || option.scope == Scope::whole_set) continue;
    for (const char* name : {"../a.mp4", "/a.mp4", "a/b.mp4", "..", ".a.mp4", "a\\\\b.mp4", "c:a.mp4"})
      EXPECT_TRUE(
          refused("{\"" + option.key() + "\": \"" + name + "\"}\n", SetFormat::jsonl, {"set:1", option.key(), "plain"}))
          << name;
  }
  EXPECT_EQ(parse("{\"output\": \"a b.mp4\"}\n", SetFormat::jsonl)[0].values.at("output"), "a b.mp4");
}

TEST(PromptSet, GuessesTheFormatFromTheFirstLine) {
  using enum SetFormat;
  for (const auto& [text, format] : {std::pair<const char*, SetFormat>{"", txt},
                                     {"\n# a comment", txt},
                                     {"a red ball, rolling\n", txt},
                                     {"seed, size\n", txt},  // no column for prompts, so this is no header
                                     {"prompt of a shell\n", txt},
                                     {"[close-up] a red ball\n", txt},
                                     {"[", txt},
                                     {"-2 degrees\n", txt},
                                     {"\n {\"prompt\": \"a\"}\n", jsonl},
                                     {"prompt\na\n", csv},
                                     {"girl, model, smile\n", txt},
                                     {"prompt, of a shell\n", txt},
                                     {"trumpet\n", txt},
                                     {"prompts\n", csv},
                                     {"promt,seed\n", csv},
                                     {"prompt,sead\n", csv},
                                     {"prompt\tseed\n", csv},
                                     {"seed;Prompt\n", csv},
                                     {"seed , \"negative-prompt\",prompt\r\n", csv},
                                     {"# a list\n- a\n", yaml},
                                     {"---\n- a\n", yaml},
                                     {"-\n  prompt: a\n", yaml},
                                     {"[\n{\"prompt\": \"a\"}]\n", yaml}})
    EXPECT_EQ(guess_format(text), format) << text;
  EXPECT_EQ(parse_set_format("csv"), csv);
  EXPECT_EQ(parse_set_format(""), std::nullopt);
  EXPECT_TRUE(test::throws_error([] { parse_set_format("xls"); }, {"--input-format xls"}));
}

TEST(PromptSet, RefusesFilesWithoutRowsAndFilesOfUnknownKinds) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "empty.txt", "# nothing\n");
  EXPECT_TRUE(test::throws_error([&] { read_prompt_set(folder / "empty.txt"); }, {"empty.txt", "no row"}));
  EXPECT_TRUE(test::throws_error([&] { read_prompt_set(folder / "missing.txt"); }, {"missing.txt"}));
  EXPECT_TRUE(test::throws_error([&] { read_prompt_set(folder / "set.xls"); }, {"set.xls"}));
}

}  // namespace
}  // namespace sparsereel::app::sets
