// Tests --help, --help-all and the reference of each command, and that the program accepts its own examples.
#include "app/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "app/options/option_table.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "tests/support/command_line.h"

namespace sparsereel::app {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

const CommandInfo& program() {
  static const CommandInfo described = test::describe_program();
  return described;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Splits an example at spaces outside double quotes, up to a pipe or a redirection. Returns the words.
std::vector<std::string> words_of_example(const std::string& example) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : example.substr(0, example.find_first_of("|>"))) {
    if (c == '"')
      quoted = !quoted;
    else if (c != ' ' || quoted)
      words.back().push_back(c);
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// Returns the part of --help-all under a heading; empty if there is no such heading.
std::string section(const std::string& help, const std::string& heading) {
  const size_t begin = help.find("\n\n" + heading + "\n");
  return begin == std::string::npos ? "" : help.substr(begin + 2, help.find("\n\n", begin + 2) - begin - 2);
}

bool names(const std::string& text, const std::string& option) {
  for (size_t at = text.find(option); at != std::string::npos; at = text.find(option, at + 1)) {
    const char next = at + option.size() < text.size() ? text[at + option.size()] : ' ';
    if (next != '-' && std::isalnum(static_cast<unsigned char>(next)) == 0) return true;
  }
  return false;
}

/// Returns true if the help has a line about the option `name`, perhaps with other names of the option before it.
bool lists(const std::string& help, const std::string& name) {
  return std::ranges::any_of(lines_of(help), [&](const std::string& line) {
    const size_t at = line.find(name), end = at + name.size();
    if (at == std::string::npos || (end < line.size() && line[end] != ' ' && line[end] != ',')) return false;
    return line.find_first_not_of(' ') == at || line.substr(0, at).ends_with(", ");
  });
}

TEST(Help, OfEachCommandFitsOnAScreen) {
  for (const CommandInfo* command : all_commands(program())) {
    const std::string help = help_text(*command, HelpLevel::usual);
    EXPECT_THAT(lines_of(help), AllOf(SizeIs(Le(45)), Each(SizeIs(Le(100))))) << help;
    EXPECT_THAT(lines_of(help).back(), AllOf(HasSubstr("--help-all'"), HasSubstr("reference'"))) << command->path;
  }
}

TEST(Help, AllListsEveryOptionWithEveryName) {
  for (const CommandInfo* command : all_commands(program())) {
    const std::string all = help_text(*command, HelpLevel::all);
    EXPECT_THAT(lines_of(all), Each(SizeIs(Le(100))));
    for (const OptionInfo& option : command->options)
      for (const std::string& name : option.names) EXPECT_TRUE(lists(all, name)) << command->path << " " << name;
  }
}

TEST(Help, KeepsResearchInASectionOfItsOwn) {
  const std::set<std::string> research = {"--cdf",        "--error",          "--block-error",
                                          "--cell",       "--similarity",     "--pv-threshold",
                                          "--arithmetic", "--selection-rows", "--token-order"};
  for (const CommandInfo* command : all_commands(program())) {
    const std::string usual = help_text(*command, HelpLevel::usual),
                      own = section(help_text(*command, HelpLevel::all), kResearch);
    for (const OptionInfo& option : command->options) {
      const std::string& name = option.names.back();
      EXPECT_EQ(lists(own, name), research.contains(name)) << command->path << " " << name;
      EXPECT_FALSE(research.contains(name) && lists(usual, name)) << command->path << " " << name;
    }
  }
  EXPECT_EQ(section(help_text(program(), HelpLevel::all), kResearch), "");
}

TEST(Help, OfGenerateShowsWhatPeopleUse) {
  const CommandInfo& generate = program().commands.front();
  ASSERT_EQ(generate.path, "generate");
  const std::string help = help_text(generate, HelpLevel::usual);
  for (const char* name :
       {"--model", "--prompt", "--image", "--size", "--steps", "--seed", "--preset", "--attention", "--offload",
        "--weights", "--vae-tiling", "--lora", "--transformer", "--output", "--dry-run"})
    EXPECT_TRUE(lists(help, name)) << name;
}

TEST(Reference, ExplainsEveryOptionInAParagraph) {
  for (const CommandInfo* command : all_commands(program())) {
    for (const OptionInfo& option : command->options) {
      const std::string name = command->path + " " + option.names.back();
      EXPECT_THAT(option.help, Not(IsEmpty())) << name;
      EXPECT_GE(option.manual.size(), option.help.size() + 10) << name << ": more than the line of --help is needed";
      EXPECT_THAT(option.manual, AllOf(HasSubstr(". "), EndsWith("."), Not(HasSubstr(option.help)))) << name;
      EXPECT_THAT(option.example, Not(IsEmpty())) << name;
    }
  }
}

TEST(Reference, ShowsExamplesThatTheProgramTakes) {
  const std::string start = "sparsereel ";
  std::set<std::string> seen;  // examples already checked, because commands share options
  for (const CommandInfo* command : all_commands(program())) {
    std::vector<std::string> examples;
    if (command->example.starts_with(start)) examples.push_back(command->example);
    for (const OptionInfo& option : command->options) {
      examples.push_back(option.example);
      const bool shows = option.positional || std::ranges::any_of(option.names, [&](const std::string& name) {
                           return names(option.example, name);
                         });
      EXPECT_TRUE(shows) << command->path << " " << option.names.back() << ": " << option.example;
    }
    for (const std::string& example : examples) {
      if (!seen.insert(example).second) continue;
      EXPECT_TRUE(example.starts_with(start)) << example;
      EXPECT_LE(example.size(), 92) << example;  // the reference does not wrap longer lines
      EXPECT_NO_THROW(test::check_command_line(words_of_example(example))) << example;
    }
  }
}

TEST(CommandLine, IsCheckedWithoutRunning) {
  EXPECT_NO_THROW(test::check_command_line({"sparsereel", "generate", "-p", "x", "-m", "nowhere"}));
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"generate", "--stepz", "3"},
                                             {"generate", "-p", "x", "--steps", "many"},
                                             {"generate", "-p", "x", "--cfg-scale", "1e9"},
                                             {"generate", "--topk", "0.3", "--cdf", "0.9"},
                                             {"decode"},
                                             {"speed"}}) {
    std::vector<std::string> words = wrong;
    words.insert(words.begin(), "sparsereel");
    EXPECT_THROW(test::check_command_line(words), Error) << wrong.back();
  }
}

}  // namespace
}  // namespace sparsereel::app
