// Tests that the option table is consistent and that the documentation agrees with it.
#include "app/options/option_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "models/request/effects.h"
#include "models/store/configs/config_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::set<std::string> taken_by(Command command) {
  std::set<std::string> keys;
  for (const OptionSpec& option : option_table())
    if (takes(command, option)) keys.insert(option.key());
  return keys;
}

TEST(OptionTable, HasUniqueKeysThatEveryLongNameFinds) {
  std::set<std::string> keys;
  for (const OptionSpec& option : option_table()) {
    EXPECT_TRUE(keys.insert(option.key()).second) << option.key();
    EXPECT_EQ(find_option(option.key()), &option);
    EXPECT_THAT(option.help, Not(IsEmpty())) << option.key();
    EXPECT_THAT(option.manual, Not(IsEmpty())) << option.key();
    EXPECT_THAT(option.group, Not(IsEmpty())) << option.key();
    EXPECT_EQ(option.choices.empty(), option.kind() != ValueKind::choice) << option.key();
  }
  EXPECT_EQ(find_option("num_inference_steps")->key(), "steps");
  EXPECT_EQ(find_option("no_dynamic_cfg"), nullptr);
  EXPECT_EQ(find_option("s"), nullptr);
  EXPECT_EQ(find_option(""), nullptr);
  EXPECT_EQ(option_name("max_sequence_length"), "--max-sequence-length");
}

TEST(OptionTable, GivesEachCommandTheOptionsThatApplyToIt) {
  const std::set<std::string> decode = taken_by(Command::decode), batch = taken_by(Command::batch);
  EXPECT_EQ(taken_by(Command::generate).size(), option_table().size());
  EXPECT_THAT(decode, Contains("crf"));
  EXPECT_THAT(decode, Not(Contains("steps")));
  EXPECT_THAT(batch, Contains("steps"));
  EXPECT_THAT(batch, Not(Contains("output")));
  EXPECT_THAT(taken_by(Command::serve),
              IsSupersetOf({"model", "steps", "lora", "profile", "checkpoint_every", "quiet"}));
  for (const char* key : {"output", "prompt", "image", "from", "batch_count", "report", "dry_run", "json"})
    EXPECT_THAT(taken_by(Command::serve), Not(Contains(key)));
  EXPECT_THAT(taken_by(Command::bench_quality), Not(Contains("topk")));  // it takes a list of topk values instead
  EXPECT_THAT(taken_by(Command::tune), Not(Contains("profile")));        // it writes a profile
  for (const Command command : {Command::decode, Command::bench_pipeline, Command::bench_quality, Command::tune})
    for (const char* key : {"model", "random_weights", "device", "dtype", "threads", "report", "quiet", "json"})
      EXPECT_THAT(taken_by(command), Contains(key));
}

TEST(OptionTable, KeepsFilesThatAreReadOrWrittenOutOfRecipes) {
  for (const OptionSpec& option : option_table()) {
    const bool is_file = option.kind() == ValueKind::file;
    EXPECT_FALSE(option.recipe == InRecipe::value &&
                 (is_file || option.kind() == ValueKind::folder || option.kind() == ValueKind::loras))
        << option.key();
    EXPECT_TRUE(is_file || option.kind() == ValueKind::loras || option.recipe != InRecipe::file) << option.key();
    EXPECT_TRUE(is_file || !option.written) << option.key();
  }
  EXPECT_EQ(find_option("report")->recipe, InRecipe::nothing);
}

/// Returns a key and its value as pages write them: "`dropped: none`". An empty value stands for any value: "`topk`".
std::string in_yaml(const std::string& key, const std::string& value) {
  return "`" + key + (value.empty() ? "" : ": " + value) + "`";
}

bool is_value_of(const OptionSpec& option, const std::string& value) {
  return value.empty() || std::find(option.choices.begin(), option.choices.end(), value) != option.choices.end();
}

/// Returns the lines about options that exclude each other, which configs/README.md must contain.
std::vector<std::string> lines_of_contradictions() {
  std::vector<std::string> lines;
  for (const OptionSpec& spec : option_table()) {
    for (const Exclusion& each : spec.option.excludes) {
      const OptionSpec* other = find_option(each.other);
      EXPECT_TRUE(other != nullptr && is_value_of(spec, each.value) && is_value_of(*other, each.other_value))
          << spec.key() << " and " << each.other;
      lines.push_back("| " + in_yaml(spec.key(), each.value) + " | " + in_yaml(each.other, each.other_value) + " |\n");
    }
  }
  return lines;
}

std::vector<std::string> lines_of_options_without_effect() {
  std::vector<std::string> lines;
  for (const auto& [cause, when] : models::causes_in_the_manual()) {
    std::string keys;
    for (const OptionSpec& spec : option_table())
      if (has_no_effect(spec.option, cause)) keys += (keys.empty() ? "" : ", ") + in_yaml(spec.key(), "");
    EXPECT_THAT(keys, Not(IsEmpty())) << when;
    lines.push_back("| " + when + " | " + keys + " |\n");
  }
  return lines;
}

std::string read_manual() {
  return test::read_text(SPARSEREEL_SOURCE_DIR "/configs/README.md");
}

TEST(OptionTable, AcceptsTheExamplesOfTheManual) {
  const std::string manual = read_manual(), fence = "```yaml\n";
  int examples = 0;
  for (size_t at = manual.find(fence); at != std::string::npos; at = manual.find(fence, at + 1), ++examples) {
    const size_t begin = at + fence.size();
    const models::YamlOptions example =
        models::parse_config(manual.substr(begin, manual.find("```", begin) - begin), "example");
    EXPECT_NO_THROW(Settings().add(Source::config_file, example.values, "example", example.places));
  }
  EXPECT_EQ(examples, 1);
}

TEST(OptionTable, ListsContradictionsAndOptionsWithoutEffectInTheManual) {
  const std::string manual = read_manual();
  size_t rows = 0;
  for (const auto& lines : {lines_of_contradictions(), lines_of_options_without_effect()}) {
    for (const std::string& line : lines) EXPECT_THAT(manual, HasSubstr(line));
    rows += lines.size();
  }
  const size_t begin = manual.find("**Options without effect**"), end = manual.find("**The files of this folder**");
  ASSERT_LT(begin, end);
  size_t bars = 0;
  for (size_t at = manual.find("\n| ", begin); at < end; at = manual.find("\n| ", at + 1)) ++bars;
  EXPECT_EQ(bars, rows + 2);  // one more line for each of the two table headings
}

}  // namespace
}  // namespace sparsereel::app
