// The program reads some options before CLI11 parses the command line. Tests that both readings agree.
#include "app/early_command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/early_device.h"
#include "tests/support/command_line.h"

namespace sparsereel::app {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Texts = std::vector<std::pair<std::string, std::string>>;

/// Returns the words as main() gets them, with a null pointer at the end.
std::vector<const char*> ended(std::vector<const char*> words) {
  words.push_back(nullptr);
  return words;
}

Texts options_in(const std::vector<const char*>& words) {
  const std::vector<const char*> all = ended(words);
  Texts texts;
  EarlyOption option;
  for (EarlyOptions options(all.data()); options.read(option);) texts.emplace_back(option.name, option.value);
  return texts;
}

/// Returns the number of the GPU that is read from these words and variables. `words` leaves out the program's name.
int device_for(std::vector<const char*> words, const std::vector<const char*>& environment = {}) {
  words.insert(words.begin(), "sparsereel");
  return likely_device(ended(words).data(), ended(environment).data());
}

TEST(EarlyCommandLine, KnowsEveryCommand) {
  std::set<std::string> known, real;
  for (const EarlyCommand& command : kEarlyCommands) known.insert(std::string(command.path));
  const CommandInfo program = test::describe_program();
  for (const CommandInfo* command : all_commands(program))
    if (command->commands.empty()) real.insert(command->path);
  EXPECT_EQ(known, real);
  EXPECT_EQ(known.size(), kEarlyCommands.size());
}

TEST(EarlyCommandLine, OffersADeviceOptionForEveryCommandThatComputes) {
  const CommandInfo program = test::describe_program();
  for (const CommandInfo* command : all_commands(program)) {
    std::set<std::string> names;
    for (const OptionInfo& option : command->options) names.insert(option.names.begin(), option.names.end());
    const auto* const early = std::ranges::find(kEarlyCommands, std::string_view(command->path), &EarlyCommand::path);
    if (early != kEarlyCommands.end() && early->computes) {
      EXPECT_THAT(names, Contains("--device")) << command->path;
    }
  }
}

TEST(EarlyCommandLine, KnowsWhichOptionsTakeTheNextWord) {
  std::set<std::string> flags;
  const CommandInfo program = test::describe_program();
  for (const CommandInfo* command : all_commands(program)) {
    for (const OptionInfo& option : command->options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) {
        const EarlyOption early{.name = name, .value = {}};
        EXPECT_EQ(early.is_flag(), !option.takes_next) << command->path << " " << name;
        if (!option.takes_next) flags.insert(name);
      }
    }
  }
  EXPECT_EQ(flags, std::set<std::string>(kEarlyFlags.begin(), kEarlyFlags.end()));
}

TEST(EarlyCommandLine, ListsOnlyOptionsThatExist) {
  std::set<std::string> names;
  const CommandInfo program = test::describe_program();
  for (const CommandInfo* command : all_commands(program))
    for (const OptionInfo& option : command->options) names.insert(option.names.begin(), option.names.end());
  for (const std::string_view name : kNoWork) EXPECT_THAT(names, Contains(std::string(name)));
  for (const std::string_view name : kElsewhere) EXPECT_THAT(names, Contains(std::string(name)));
}

TEST(EarlyOptions, AreParsedAsCli11ParsesThem) {
  EXPECT_THAT(options_in({"a.txt", "--gpus", "2", "--device=cuda:1"}),
              ElementsAre(Pair("--gpus", "2"), Pair("--device", "cuda:1")));
  EXPECT_THAT(options_in({"-p", "--help", "--seed", "-1", "-s7"}),
              ElementsAre(Pair("-p", "--help"), Pair("--seed", "-1"), Pair("-s", "7")));
  EXPECT_THAT(options_in({"--json", "--quiet=true", "x"}), ElementsAre(Pair("--json", ""), Pair("--quiet", "true")));
  EXPECT_THAT(options_in({"--gpus=", "1"}), ElementsAre(Pair("--gpus", "1")));
  EXPECT_THAT(options_in({"--dry_run", "x", "--gpus"}), ElementsAre(Pair("--dry_run", ""), Pair("--gpus", "")));
  EXPECT_THAT(options_in({"-", "-5", "--", "--gpus"}), IsEmpty());
}

TEST(EarlyDevice, TakesTheLastDeviceOption) {
  EXPECT_EQ(device_for({"generate", "-p", "x"}), 0);
  EXPECT_EQ(device_for({"generate", "--device", "cuda:1", "--device=cuda:2"}), 2);
  EXPECT_EQ(device_for({"bench", "attention", "--device", "cpu"}), kNoDevice);
  EXPECT_EQ(device_for({"batch", "a.txt", "--config", "a.yaml"}), kDriverAlone);
  EXPECT_EQ(device_for({"generate", "--gpus=2"}), kDriverAlone);
  EXPECT_EQ(device_for({"generate", "--gpus=2", "--device", "cuda"}), 0);
}

TEST(EarlyDevice, IsNoneForCommandsThatComputeNothing) {
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{},
                                             {"doctor"},
                                             {"bench"},
                                             {"bench", "plot", "a.json"},
                                             {"generate", "-h"},
                                             {"generate", "--dry_run"},
                                             {"bench", "pipeline", "--dry-run=5"},
                                             {"batch", "--status", "folder"},
                                             {"speed"}})
    EXPECT_EQ(device_for(words), kNoDevice);
  EXPECT_EQ(device_for({"generate", "-p", "plot"}), 0);
  EXPECT_EQ(device_for({"generate", "-p", "--help"}), 0);
}

TEST(EarlyDevice, LeavesTheDevicesOfLaunchedRanksToLaterCode) {
  EXPECT_EQ(device_for({"generate"}, {"A=1", "RANK=1"}), kDriverAlone);
  EXPECT_EQ(device_for({"generate"}, {"SLURM_PROCID=0"}), kDriverAlone);
  EXPECT_EQ(device_for({"generate"}, {"RANKS=1"}), 0);
  EXPECT_EQ(device_for({"rank 1 of 2"}, {"SPARSEREEL_RANK_DEVICE=cuda:3"}), 3);
  EXPECT_EQ(device_for({"generate"}, {"SPARSEREEL_RANK_DEVICE=cpu"}), kNoDevice);
  EXPECT_EQ(device_for({"generate"}, {"CUDA_INJECTION64_PATH="}), kNoDevice);
}

}  // namespace
}  // namespace sparsereel::app
