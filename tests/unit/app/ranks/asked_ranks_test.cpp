// Tests how many ranks the environment and the command line ask for.
#include "app/ranks/asked_ranks.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/support/environment.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using test::environment_of;

TEST(GroupLimits, AreReadFromTheEnvironment) {
  using std::chrono::milliseconds;
  EXPECT_EQ(find_group_limits(environment_of({})).call, milliseconds(600'000));
  const auto limits =
      find_group_limits(environment_of({{"SPARSEREEL_START_SECONDS", "2.5"}, {"SPARSEREEL_GROUP_SECONDS", "7"}}));
  EXPECT_EQ(limits.start, milliseconds(2500));
  EXPECT_EQ(limits.call, milliseconds(7000));
  for (const char* wrong : {"0", "-1", "soon", "1e9", "nan"})
    EXPECT_TRUE(test::throws_error(
        [&] {
          find_group_limits(environment_of({{"SPARSEREEL_GROUP_SECONDS", wrong}}));
        },
        {"SPARSEREEL_GROUP_SECONDS", wrong}));
}

/// Returns true if this process should print nothing. `words` is the command line without the program's name.
bool is_silent(std::vector<const char*> words, const Environment& environment) {
  words.push_back(nullptr);
  return is_silent_rank(words.data(), environment);
}

TEST(IsSilent, HoldsForOtherRanksOfALauncherThatMakeOneVideo) {
  const auto second = environment_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_TRUE(is_silent({"generate"}, second));
  EXPECT_FALSE(is_silent({"batch"}, second));
  EXPECT_FALSE(is_silent({"batch", "generate"}, second));
  EXPECT_FALSE(is_silent({}, second));
  EXPECT_FALSE(is_silent({"generate", "--gpus", "1"}, second));
  EXPECT_FALSE(is_silent({"generate", "--gpus", "2", "--gpus=1"}, second));
  EXPECT_TRUE(is_silent({"generate", "--gpus=1", "--gpus", "2"}, second));
  EXPECT_FALSE(is_silent({"generate"}, environment_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}})));
  EXPECT_FALSE(is_silent({"generate"}, environment_of({})));
  EXPECT_TRUE(is_silent({"generate", "-p", "--gpus=1"}, second)) << "this is the prompt";
}

}  // namespace
}  // namespace sparsereel::app
