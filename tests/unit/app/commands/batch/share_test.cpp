// Shares by option and by launcher, names of videos, the nearest option, and the hash of a file.
#include "app/commands/batch/share.h"

#include <map>

#include "app/commands/batch/names.h"
#include "app/options/nearest.h"
#include "models/files/sha256.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::sets {
namespace {

Share share_of(const std::string& option, const std::map<std::string, std::string>& variables = {}) {
  return find_share(option, [&](const char* name) {
    const auto place = variables.find(name);
    return place == variables.end() ? nullptr : place->second.c_str();
  });
}

TEST(Share, OptionIsIOfN) {
  EXPECT_EQ(share_of("2/5").rank, 2);
  EXPECT_EQ(share_of("2/5").size, 5);
  for (const char* wrong : {"5/5", "-1/5", "1", "1/", "/5", "a/5", "1/5x", "0/0"})
    EXPECT_TRUE(test::throws_error([&] { share_of(wrong); }, {"--share", wrong})) << wrong;
}

TEST(Share, WithoutOptionAndLauncherItIsTheWholeSet) {
  EXPECT_EQ(share_of("").size, 1);
}

TEST(Share, LaunchersVariablesAreRead) {
  EXPECT_EQ(share_of("", {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}}).local_rank, 0);
  EXPECT_EQ(share_of("", {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}).rank, 3);
  EXPECT_EQ(share_of("", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
  EXPECT_EQ(share_of("", {{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}).rank, 5);
}

TEST(Share, OptionWinsOverTheLauncher) {
  EXPECT_EQ(share_of("0/2", {{"RANK", "1"}, {"WORLD_SIZE", "4"}}).size, 2);
}

TEST(Share, BatchScriptOfSlurmIsOneProcess) {
  EXPECT_EQ(share_of("", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).size, 1);
}

TEST(Share, ImpossibleVariablesAreNamed) {
  EXPECT_TRUE(test::throws_error([&] { share_of("", {{"RANK", "x"}, {"WORLD_SIZE", "4"}}); }, {"RANK=x"}));
  EXPECT_TRUE(test::throws_error([&] { share_of("", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}); }, {"torchrun", "4 of 4"}));
}

constexpr const char* kSecret = "sixteen letters.";

MeetingPlace place_of(const std::map<std::string, std::string>& variables) {
  const Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return find_meeting_place(*find_launched(environment), environment);
}

TEST(MeetingPlace, PortIsOne) {
  for (const char* wrong : {"65536", "70000", "0", "-1", "99999999999"})
    EXPECT_TRUE(test::throws_error(
        [&] {
          place_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", wrong}});
        },
        {"MASTER_PORT", wrong}));
}

TEST(MeetingPlace, OfSeveralHostsNeedsASecret) {
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

TEST(MeetingPlace, IsWhatTheLauncherSays) {
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

TEST(Launched, SlurmsOwnVariablesComeBeforeThoseThatItSetsForMpi) {
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
  variables["SLURM_STEP_NUM_TASKS"] = "2";  // of an mpirun's helpers, one a node
  EXPECT_EQ(find_launched(environment)->local_rank, std::nullopt);
  EXPECT_EQ(find_launched(environment)->size, 8);
}

TEST(MeetingPlace, IsTheFirstHostOfAList) {
  EXPECT_EQ(first_host("gpu[03-06,09],other"), "gpu03");
  EXPECT_EQ(first_host("gpu[7,9-12]-ib,x"), "gpu7-ib");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("alone"), "alone");
}

TEST(VideoName, IsIndexAndSlug) {
  EXPECT_EQ(video_name(7, "A red Circle, moving!", ".mp4"), "0007-a-red-circle-moving.mp4");
  EXPECT_EQ(video_name(12345, "x", ".gif"), "12345-x.gif");
  EXPECT_EQ(video_name(0, "../../etc/passwd", ".mp4"), "0000-etc-passwd.mp4");
  EXPECT_EQ(video_name(0, "\xE6\x97\xA5\xE6\x9C\xAC", ".mp4"), "0000.mp4");
  EXPECT_EQ(video_name(0, "", ".mp4"), "0000.mp4");
  EXPECT_LE(video_name(1, std::string(300, 'a'), ".safetensors").size(), 80U);
}

TEST(PlainName, RefusesWhatLeavesTheFolderOrIsNoFileSomewhere) {
  for (const char* name : {"", ".", "..", "a/b", "a\\b", ".hidden", "a:b", "a\nb", "a.", "a "})
    EXPECT_FALSE(is_plain_name(name)) << name;
  EXPECT_FALSE(is_plain_name(std::string(201, 'a')));
  EXPECT_TRUE(is_plain_name("0001-a b.mp4"));
  EXPECT_TRUE(is_plain_name("\xE6\x97\xA5.mp4"));
}

TEST(Nearest, FindsTheNameThatWasMeant) {
  const std::vector<std::string> names = {"steps", "seed", "scheduler", "frames", "negative_prompt"};
  EXPECT_EQ(nearest("stpes", names), "steps");
  EXPECT_EQ(nearest("sead", names), "seed");
  EXPECT_EQ(nearest("negativeprompt", names), "negative_prompt");
  EXPECT_EQ(nearest("colour", names), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), names), "");
}

TEST(FileHash, IsThatOfTheContent) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "abc", "abc");
  test::write_text(folder / "large", std::string(1000000, 'a') + std::string(100000, 'b'));
  test::write_text(folder / "million", std::string(1000000, 'a'));
  EXPECT_EQ(models::sha256_of_file(folder / "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(models::sha256_of_file(folder / "million"),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_NE(models::sha256_of_file(folder / "large"), models::sha256_of_file(folder / "million"));
  EXPECT_TRUE(test::throws_error([&] { models::sha256_of_file(folder / "missing"); }, {"missing"}));
}

}  // namespace
}  // namespace sparsereel::app::sets
