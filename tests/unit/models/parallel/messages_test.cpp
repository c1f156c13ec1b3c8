// Tests the messages that ranks send each other.
#include "models/parallel/messages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

TEST(Messages, ArriveUnchanged) {
  const auto links = local_links(2);
  const nlohmann::json message = {{"bytes", "\xFF\x01"}, {"list", {1, 2}}, {"nothing", nullptr}};
  const at::Tensor half = at::arange(6, at::kHalf).view({2, 3}).t();
  std::thread other([&] {
    const auto group = SocketGroup::connect(1, links[1], "second");
    EXPECT_EQ(receive_message(*group), message);
    EXPECT_TRUE(at::equal(receive_tensor(*group), half));
    EXPECT_FALSE(receive_tensor(*group).defined());
    EXPECT_EQ(receive_tensor(*group).sizes(), at::IntArrayRef({0, 4}));
  });
  {
    const auto group = SocketGroup::connect(0, links[0], "first");
    send_message(*group, message);
    send_tensor(*group, half);
    send_tensor(*group, {});
    send_tensor(*group, at::empty({0, 4}));
    other.join();
  }
}

TEST(Messages, AreParsedOneByOneFromReceivedBytes) {
  const nlohmann::json first = {{"rows", {1, 2}}}, second = {{"text", "\xFF"}};
  const std::string all = packed_message(first) + packed_message(second);
  std::string come;
  std::vector<nlohmann::json> taken;
  for (const char byte : all) {
    come += byte;
    if (auto message = take_message(come)) taken.push_back(*std::move(message));
  }
  EXPECT_EQ(taken, (std::vector<nlohmann::json>{first, second}));
  EXPECT_TRUE(come.empty());
  std::string wrong(16, '\xFF');
  EXPECT_TRUE(test::throws_error([&] { take_message(wrong); }, {"a message from rank 0"}));
}

/// Malformed messages must give an error, not a crash, although only ranks of the same run send messages.
TEST(Messages, AreRefusedIfMalformed) {
  const auto refused = [](const std::function<void(SocketGroup&)>& send, bool is_tensor) {
    const auto links = local_links(2);
    const GroupLimits limits = {.start = std::chrono::seconds(60), .call = std::chrono::seconds(20)};
    std::promise<void> heard;
    std::thread other([&] {
      const auto group = SocketGroup::connect(0, links[0], "first", limits);
      send(*group);
      heard.get_future().wait();
    });
    const auto group = SocketGroup::connect(1, links[1], "second", limits);
    const bool throws = test::throws_error(
        [&] {
          if (is_tensor)
            receive_tensor(*group);
          else
            receive_message(*group);
        },
        {"a message from rank 0"});
    heard.set_value();
    other.join();
    return throws;
  };
  const auto tensor_of = [&](const nlohmann::json& form) {
    return refused([&](SocketGroup& group) { send_message(group, form); }, true);
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
        [&](SocketGroup& group) {
          group.broadcast(at::full({1}, size, at::kLong), 0);
          if (!bytes.empty())
            group.broadcast(at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte), 0);
        },
        false);
  };
  EXPECT_TRUE(bytes_of(-1, {}));
  EXPECT_TRUE(bytes_of(int64_t{1} << 40, {}));
  EXPECT_TRUE(bytes_of(100'000, std::vector<uint8_t>(100'000, 0x81)));  // deeply nested arrays
  EXPECT_TRUE(bytes_of(2, {0xff, 0xff}));
}

}  // namespace
}  // namespace sparsereel::models
