// Tests which rows of a prompt set a process makes if an option or a launcher divides the set among processes.
#include "app/jobs/batch/share.h"

#include <map>

#include "tests/support/temporary_folder.h"

namespace sparsereel::app::sets {
namespace {

Share share_of(const std::string& option, const std::map<std::string, std::string>& variables = {}) {
  return find_share(option, [&](const char* name) {
    const auto place = variables.find(name);
    return place == variables.end() ? nullptr : place->second.c_str();
  });
}

TEST(Share, ParsesAnOptionOfTheFormRankSlashSize) {
  EXPECT_EQ(share_of("2/5").rank, 2);
  EXPECT_EQ(share_of("2/5").size, 5);
  for (const char* wrong : {"5/5", "-1/5", "1", "1/", "/5", "a/5", "1/5x", "0/0"})
    EXPECT_TRUE(test::throws_error([&] { share_of(wrong); }, {"--share", wrong})) << wrong;
}

TEST(Share, IsTheWholeSetWithoutAnOptionOrALauncher) {
  EXPECT_EQ(share_of("").size, 1);
}

TEST(Share, ReadsTheVariablesOfLaunchers) {
  EXPECT_EQ(share_of("", {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}}).local_rank, 0);
  EXPECT_EQ(share_of("", {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}).rank, 3);
  EXPECT_EQ(share_of("", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
  EXPECT_EQ(share_of("", {{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}).rank, 5);
}

TEST(Share, PrefersTheOptionToTheLauncher) {
  EXPECT_EQ(share_of("0/2", {{"RANK", "1"}, {"WORLD_SIZE", "4"}}).size, 2);
}

TEST(Share, TreatsABatchScriptOfSlurmAsOneProcess) {
  EXPECT_EQ(share_of("", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).size, 1);
}

TEST(Share, NamesVariablesWithImpossibleValues) {
  EXPECT_TRUE(test::throws_error([&] { share_of("", {{"RANK", "x"}, {"WORLD_SIZE", "4"}}); }, {"RANK=x"}));
  EXPECT_TRUE(test::throws_error([&] { share_of("", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}); }, {"torchrun", "4 of 4"}));
}

}  // namespace
}  // namespace sparsereel::app::sets
