// What a rank finds in its environment, and what ranks tell each other.
#include "app/ranks/world.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <map>
#include <thread>

#include "app/ranks/children.h"
#include "app/ranks/messages.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(World, LimitsAreThoseOfTheEnvironment) {
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

TEST(Children, AreQuotedByTheirError) {
  EXPECT_EQ(telling_line("warning: a\nerror: b: c\n  remedy: d\n"), "error: b: c");
  EXPECT_EQ(telling_line("error: b\n  remedy: d\nerror: e\n  remedy: f\n \n"), "error: e");
  EXPECT_EQ(telling_line("error: b\n  remedy: d"), "error: b");
  EXPECT_EQ(telling_line("terminate called\n  what():  bad\n"), "  what():  bad");
  EXPECT_EQ(telling_line(" \n"), "");
}

TEST(World, CpuRanksShareTheCpuAndOneCardIsNoneForSeveral) {
  EXPECT_EQ(devices_of_ranks(3, "cpu", false), (std::vector<std::string>{"cpu", "cpu", "cpu"}));
  EXPECT_TRUE(test::throws_error([] { devices_of_ranks(2, "cuda:1", false); }, {"device cuda:1", "gpus 2"}));
  EXPECT_TRUE(test::throws_error([] { devices_of_ranks(65, "cpu", false); }, {"gpus 65"}));
  EXPECT_TRUE(test::throws_error([] { devices_of_ranks(60, "auto", false); }, {"gpus 60"}));
}

/// `words`: behind the program's name.
bool is_silent(std::vector<const char*> words, const Environment& environment) {
  words.push_back(nullptr);
  return is_silent_rank(words.data(), environment);
}

TEST(World, OtherRanksOfALauncherAreSilentWhereTheyMakeOneVideo) {
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

TEST(StartedRank, IsReadFromItsEnvironment) {
  EXPECT_FALSE(find_started_rank(environment_of({})));
  const auto rank = find_started_rank(environment_of({{"SPARSEREEL_RANK", "1"},
                                                      {"SPARSEREEL_RANK_DEVICE", "cuda:1"},
                                                      {"SPARSEREEL_RANK_LINKS", "7:8,-1:-1,9:10"},
                                                      {"SPARSEREEL_RANK_PARENT", "123"}}));
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rank, 1);
  EXPECT_EQ(rank->device, "cuda:1");
  EXPECT_EQ(rank->parent, 123);
  ASSERT_EQ(rank->links.size(), 3U);
  EXPECT_EQ(rank->links[1].data, -1);
  EXPECT_EQ(rank->links[2].control, 10);
}

TEST(Messages, ArriveAsTheyWereTold) {
  const auto links = models::local_links(2);
  const nlohmann::json message = {{"bytes", "\xFF\x01"}, {"list", {1, 2}}, {"nothing", nullptr}};
  const at::Tensor half = at::arange(6, at::kHalf).view({2, 3}).t();
  std::thread other([&] {
    const auto group = models::SocketGroup::connect(1, links[1], "second");
    EXPECT_EQ(hear(*group), message);
    EXPECT_TRUE(at::equal(hear_tensor(*group), half));
    EXPECT_FALSE(hear_tensor(*group).defined());
    EXPECT_EQ(hear_tensor(*group).sizes(), at::IntArrayRef({0, 4}));
  });
  {
    const auto group = models::SocketGroup::connect(0, links[0], "first");
    tell(*group, message);
    tell_tensor(*group, half);
    tell_tensor(*group, {});
    tell_tensor(*group, at::empty({0, 4}));
    other.join();
  }
}

/// A message is checked whoever sends it.
TEST(Messages, ThatAreNoneOfOursAreRefused) {
  const auto refused = [](const std::function<void(models::SocketGroup&)>& send, bool is_tensor) {
    const auto links = models::local_links(2);
    const models::GroupLimits limits = {.start = std::chrono::seconds(60), .call = std::chrono::seconds(20)};
    std::promise<void> heard;
    std::thread other([&] {
      const auto group = models::SocketGroup::connect(0, links[0], "first", limits);
      send(*group);
      heard.get_future().wait();
    });
    const auto group = models::SocketGroup::connect(1, links[1], "second", limits);
    const bool throws = test::throws_error(
        [&] {
          if (is_tensor)
            hear_tensor(*group);
          else
            hear(*group);
        },
        {"a message of rank 0"});
    heard.set_value();
    other.join();
    return throws;
  };
  const auto tensor_of = [&](const nlohmann::json& form) {
    return refused([&](models::SocketGroup& group) { tell(group, form); }, true);
  };
  EXPECT_TRUE(tensor_of({{"dtype", 99}, {"shape", {1}}}));
  EXPECT_TRUE(tensor_of({{"dtype", "float"}, {"shape", {1}}}));
  EXPECT_TRUE(tensor_of({{"dtype", 6}, {"shape", {-1}}}));
  EXPECT_TRUE(tensor_of({{"dtype", 6}, {"shape", {int64_t{1} << 40, int64_t{1} << 40}}}));
  EXPECT_TRUE(tensor_of({{"dtype", 6}, {"shape", std::vector<int64_t>(9, 1)}}));
  EXPECT_TRUE(tensor_of({{"dtype", 6}}));
  EXPECT_TRUE(tensor_of("text"));
  const auto bytes_of = [&](int64_t size, std::vector<uint8_t> bytes) {
    return refused(
        [&](models::SocketGroup& group) {
          group.broadcast(at::full({1}, size, at::kLong), 0);
          if (!bytes.empty())
            group.broadcast(at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte), 0);
        },
        false);
  };
  EXPECT_TRUE(bytes_of(-1, {}));
  EXPECT_TRUE(bytes_of(int64_t{1} << 40, {}));
  EXPECT_TRUE(bytes_of(100'000, std::vector<uint8_t>(100'000, 0x81)));  // arrays inside arrays
  EXPECT_TRUE(bytes_of(2, {0xff, 0xff}));
}

}  // namespace
}  // namespace sparsereel::app
