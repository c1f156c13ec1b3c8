// Tests what a process learns from its launcher: its rank on its host, the number of ranks, and the address where they
// meet.
#include "app/ranks/launched.h"

#include <map>

#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

constexpr const char* kSecret = "sixteen letters.";

MeetingPlace place_of(const std::map<std::string, std::string>& variables) {
  const Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return find_meeting_place(*find_launched(environment), environment);
}

TEST(MeetingPlace, RefusesImpossiblePorts) {
  for (const char* wrong : {"65536", "70000", "0", "-1", "99999999999"})
    EXPECT_TRUE(test::throws_error(
        [&] {
          place_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", wrong}});
        },
        {"MASTER_PORT", wrong}));
}

TEST(MeetingPlace, NeedsASecretForSeveralHosts) {
  std::map<std::string, std::string> variables = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"}};
  EXPECT_TRUE(test::throws_error([&] { place_of(variables); }, {"SPARSEREEL_JOB_SECRET is not set"}));
  variables["SPARSEREEL_JOB_SECRET"] = "short";
  EXPECT_TRUE(test::throws_error([&] { place_of(variables); }, {"SPARSEREEL_JOB_SECRET has fewer than 16"}));
  variables["SPARSEREEL_JOB_SECRET"] = kSecret;
  EXPECT_EQ(place_of(variables).secret, kSecret);
  EXPECT_FALSE(place_of(variables).is_one_host);
  variables.erase("SPARSEREEL_JOB_SECRET");
  variables["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_TRUE(place_of(variables).is_one_host);
  variables.erase("LOCAL_WORLD_SIZE");
  variables["MASTER_ADDR"] = "localhost";
  EXPECT_TRUE(place_of(variables).is_one_host);
}

TEST(MeetingPlace, FollowsTheVariablesOfTheLauncher) {
  const MeetingPlace torchrun = place_of({{"RANK", "1"},
                                          {"WORLD_SIZE", "4"},
                                          {"MASTER_ADDR", "node7"},
                                          {"MASTER_PORT", "29400"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"SPARSEREEL_JOB_SECRET", kSecret}});
  EXPECT_EQ(torchrun.host, "node7");
  EXPECT_EQ(torchrun.port, 29400);
  EXPECT_TRUE(torchrun.is_kept);
  std::map<std::string, std::string> slurm = {{"SLURM_PROCID", "1"},
                                              {"SLURM_STEP_NUM_TASKS", "8"},
                                              {"SLURM_STEP_NODELIST", "gpu[03-04]"},
                                              {"SLURM_JOB_ID", "17"},
                                              {"SPARSEREEL_JOB_SECRET", kSecret}};
  EXPECT_EQ(place_of(slurm).host, "gpu03");
  EXPECT_FALSE(place_of(slurm).is_kept);
  const uint16_t port = place_of(slurm).port;
  EXPECT_GE(port, 20000);
  slurm["SLURM_JOB_ID"] = "18";
  EXPECT_NE(place_of(slurm).port, port);
  EXPECT_TRUE(test::throws_error([&] { place_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}); }, {"MPI", "host of rank 0"}));
  const auto mpi = [&](const char* rank, const char* job) {
    return place_of(
        {{"PMI_RANK", rank}, {"PMI_SIZE", "2"}, {"PMI_ID", rank}, {"MPI_LOCALNRANKS", "2"}, {"PMI_JOBID", job}});
  };
  EXPECT_EQ(mpi("0", "7").port, mpi("1", "7").port);
  EXPECT_EQ(mpi("0", "7").run, mpi("1", "7").run);
  EXPECT_NE(mpi("0", "8").port, mpi("1", "7").port);
}

TEST(Launched, PrefersTheVariablesOfSlurmToThoseThatItSetsForMpi) {
  std::map<std::string, std::string> variables = {{"PMI_RANK", "5"},
                                                  {"PMI_SIZE", "8"},
                                                  {"SLURM_PROCID", "5"},
                                                  {"SLURM_STEP_NUM_TASKS", "8"},
                                                  {"SLURM_LOCALID", "1"}};
  const Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(find_launched(environment)->local_rank, 1);
  variables["SLURM_STEP_NUM_TASKS"] = "2";  // here Slurm counts mpirun's helper processes, one per node
  EXPECT_EQ(find_launched(environment)->local_rank, std::nullopt);
  EXPECT_EQ(find_launched(environment)->size, 8);
}

TEST(MeetingPlace, IsTheFirstHostOfAList) {
  EXPECT_EQ(first_host("gpu[03-06,09],other"), "gpu03");
  EXPECT_EQ(first_host("gpu[7,9-12]-ib,x"), "gpu7-ib");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("alone"), "alone");
}

}  // namespace
}  // namespace sparsereel::app
