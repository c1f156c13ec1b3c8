// Tests how ranks connect to each other over TCP: which connections they accept, and that no other program can delay
// them. In these tests, ranks are threads.
#include "models/parallel/rendezvous.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "hilbert/error.h"
#include "models/parallel/rank_call.h"
#include "models/parallel/tcp.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until.h"

namespace sparsereel::models {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

constexpr GroupLimits kPatient = {.start = 60s, .call = 60s}, kHurried = {.start = 1s, .call = 60s};

/// Returns an address on this host where ranks can meet. Its port was free just before.
Rendezvous some_place() {
  const uint16_t port = listen_towards("127.0.0.1", 0, 1).port;
  return {.host = "127.0.0.1", .port = port, .secret = "a secret of sixteen"};
}

/// Lets a rank meet the other ranks in a new thread. The future gives the error's message; empty if the ranks met.
std::future<std::string> begin_to_meet(const Rendezvous& place, int64_t rank, int64_t size,
                                       const GroupLimits& limits = kPatient) {
  return std::async(std::launch::async, [=] {
    try {
      close_links(meet(place, rank, size, limits));
      return std::string();
    } catch (const Error& error) {
      EXPECT_NE(error.remedy(), "");
      return std::string(error.what());
    }
  });
}

std::string problem_of(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits = kHurried) {
  return begin_to_meet(place, rank, size, limits).get();
}

void expect_that_all_meet(const Rendezvous& place, int64_t size) {
  std::vector<std::future<std::string>> all;
  for (int64_t rank = size - 1; rank >= 0; --rank) all.push_back(begin_to_meet(place, rank, size));
  for (auto& each : all) EXPECT_EQ(each.get(), "");
}

/// Connects as soon as somebody listens at the address, and sends nothing. Imitates a program that is no rank.
Socket stranger_at(const Rendezvous& place) {
  Socket socket;
  test::wait_until([&] {
    Patience patience(60s);
    socket = connect_within(addresses_of_host(place.host, place.port).front(), patience);
    return socket.get() >= 0;
  });
  return socket;
}

TEST(Rendezvous, ConnectsRanksThatWorkTogether) {
  const Rendezvous place = some_place();
  std::vector<std::future<int64_t>> all;
  for (int64_t rank = 0; rank < 4; ++rank)
    all.push_back(std::async(std::launch::async, [=] {
      const auto group = SocketGroup::connect(rank, meet(place, rank, 4, kPatient), "thread", kPatient);
      const at::Tensor sum = at::full({1}, rank, at::kLong);
      group->all_reduce_sum(sum);
      return sum.item<int64_t>();
    }));
  for (auto& each : all) EXPECT_EQ(each.get(), 6);
}

TEST(Rendezvous, WaitsForASlowRankLongerThanForAVanishedHost) {
  const Rendezvous place = some_place();
  const GroupLimits limits = {.start = 60s, .call = 60s, .vanished = 1s};
  auto reader = std::async(std::launch::async, [&] {
    const auto group = SocketGroup::connect(1, meet(place, 1, 2, limits), "slow", limits);
    std::this_thread::sleep_for(3s);  // rank 1 is silent for longer than the limit `vanished`
    const at::Tensor received = at::empty({16 << 20}, at::kByte);
    group->broadcast(received, 0);
    return received.eq(7).all().item<bool>();
  });
  const auto group = SocketGroup::connect(0, meet(place, 0, 2, limits), "quick", limits);
  EXPECT_NO_THROW(group->broadcast(at::full({16 << 20}, 7, at::kByte), 0));
  EXPECT_TRUE(reader.get());
}

TEST(Rendezvous, RefusesACallerWithoutTheSecret) {
  Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 2, {.start = 3s});
  place.secret = "another one, of a stranger";
  EXPECT_THAT(problem_of(place, 1, 2), HasSubstr("does not know this job's secret"));
  EXPECT_THAT(rank_0.get(),
              ::testing::MatchesRegex("rank 1 did not start within 3 s; connections with another secret: [0-9]+.*"));
}

TEST(Rendezvous, ReportsAWrongSecretEvenAfterRank0GaveUp) {
  Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 2, {.start = 2s});
  stranger_at(place);
  place.secret = "another one, of a stranger";
  EXPECT_THAT(problem_of(place, 1, 2, {.start = 5s}), HasSubstr("does not know this job's secret"));
  EXPECT_THAT(rank_0.get(), HasSubstr("rank 1 did not start within 2 s"));
}

TEST(Rendezvous, RefusesARankOfAnotherRun) {
  Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 2, {.start = 3s});
  place.run = "1";
  EXPECT_THAT(problem_of(place, 1, 2), HasSubstr("another run"));
  EXPECT_THAT(rank_0.get(), HasSubstr("rank 1 did not start"));
}

TEST(Rendezvous, IsNotBlockedBySilentCallers) {
  const Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 2, {.start = 20s});
  std::vector<Socket> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(stranger_at(place));  // more than rank 0 keeps at once
  EXPECT_EQ(problem_of(place, 1, 2, {.start = 20s}), "");
  EXPECT_EQ(rank_0.get(), "");
}

TEST(Rendezvous, IsNotBlockedByASlowCaller) {
  const Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 2, {.start = 20s});
  std::atomic<bool> ends{false};
  const Socket slow = stranger_at(place);
  std::thread dripping([&] {
    for (const char* next = "sparsereel-rank1"; !ends && *next != 0; ++next) {
      send(slow.get(), next, 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(200ms);  // sends one byte at a time
    }
  });
  EXPECT_EQ(problem_of(place, 1, 2, {.start = 20s}), "");
  EXPECT_EQ(rank_0.get(), "");
  ends = true;
  dripping.join();
}

TEST(Rendezvous, DoesNotWaitForeverForASilentServer) {
  const Listeners silent = listen_towards("127.0.0.1", 0, 16);
  const Rendezvous place = {.host = "127.0.0.1", .port = silent.port};
  EXPECT_THAT(problem_of(place, 1, 2), HasSubstr("does not answer like a rank"));
  Rendezvous store = place;
  store.is_kept = true;
  EXPECT_THAT(problem_of(store, 1, 2), HasSubstr("the ranks' meeting place cannot be reached at 127.0.0.1:"));
}

/// In this test a connection neither fails nor succeeds, as if a packet filter blocked it.
TEST(Rendezvous, TimesOutIfNoConnectionIsMade) {
  const Listeners full = listen_towards("127.0.0.1", 0, 0);
  const Rendezvous place = {.host = "127.0.0.1", .port = full.port};
  std::vector<Socket> queued;
  for (int i = 0; i < 4; ++i) {  // the kernel ignores connections once the queue is full
    Patience patience(200ms);
    queued.push_back(connect_within(addresses_of_host(place.host, place.port).front(), patience));
  }
  ASSERT_LT(queued.back().get(), 0) << "the queue takes more";
  EXPECT_THAT(problem_of(place, 1, 2), HasSubstr("timed out"));
}

TEST(Rendezvous, NamesRanksThatExpectAnotherNumberOfRanks) {
  const Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 2);
  EXPECT_EQ(problem_of(place, 1, 3, kPatient),
            "rank 0 refuses this rank: rank 1 was started as one of 3 ranks, but rank 0 as one of 2");
  EXPECT_EQ(rank_0.get(), "rank 1 was started as one of 3 ranks, but rank 0 as one of 2");
}

TEST(Rendezvous, RefusesADuplicateRankAndKeepsTheFirst) {
  const Rendezvous place = some_place();
  auto rank_0 = begin_to_meet(place, 0, 3), first = begin_to_meet(place, 1, 3);
  auto second = begin_to_meet(place, 1, 3);
  const auto is_through = [](const std::future<std::string>& rank) {
    return rank.wait_for(0s) == std::future_status::ready;
  };
  EXPECT_TRUE(test::wait_until([&] { return is_through(first) || is_through(second); }));
  EXPECT_EQ(problem_of(place, 2, 3, kPatient), "");
  EXPECT_EQ(rank_0.get(), "");
  const std::vector<std::string> both = {first.get(), second.get()};
  EXPECT_THAT(both, ::testing::UnorderedElementsAre("", HasSubstr("rank 1 has already connected")));
}

TEST(Rendezvous, NamesAMissingRank) {
  EXPECT_EQ(problem_of(some_place(), 0, 2), "rank 1 did not start within 1 s");
  EXPECT_THAT(problem_of(some_place(), 1, 2), HasSubstr("Connection refused"));
}

TEST(Rendezvous, ReportsAnUnknownHostInOneLine) {
  for (const bool is_kept : {false, true}) {
    const Rendezvous place = {.host = "no-such-host.invalid", .port = 29400, .is_kept = is_kept};
    ::testing::internal::CaptureStderr();
    EXPECT_THAT(problem_of(place, 1, 2), HasSubstr("host no-such-host.invalid was not found"));
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  }
}

/// A launcher's store, such as torchrun's, continues to exist after a run. Addresses of earlier runs must do no harm.
TEST(Rendezvous, SupportsSuccessiveRunsInAPersistentStore) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  Rendezvous place = {.host = "127.0.0.1", .port = store->getPort(), .is_kept = true, .secret = "a secret of sixteen"};
  expect_that_all_meet(place, 3);
  auto rank_1 = begin_to_meet(place, 1, 2);  // reads the address of the earlier rank 0
  std::this_thread::sleep_for(500ms);        // gives rank 1 time to read it; the store does not tell
  EXPECT_EQ(problem_of(place, 0, 2, kPatient), "");
  EXPECT_EQ(rank_1.get(), "");
  const std::string nonsense = "? no-such-host.invalid 70000";
  store->set("sparsereel/0/rank 0", std::vector<uint8_t>(nonsense.begin(), nonsense.end()));
  rank_1 = begin_to_meet(place, 1, 2);
  std::this_thread::sleep_for(500ms);  // gives rank 1 time to read it; the store does not tell
  EXPECT_EQ(problem_of(place, 0, 2, kPatient), "");
  EXPECT_EQ(rank_1.get(), "");
}

TEST(Listeners, ListenOnTheGivenAddress) {
  const auto bound_to = [](const Listeners& listeners) {
    TcpAddress own{.storage = {}, .size = sizeof(sockaddr_storage)};
    getsockname(listeners.sockets.front().get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size);
    return numeric_host(own);
  };
  EXPECT_EQ(bound_to(listen_towards("127.0.0.1", 0, 1)), "127.0.0.1");
  EXPECT_EQ(bound_to(listen_towards("127.0.0.2", 0, 1)), "127.0.0.2");
  EXPECT_TRUE(test::throws_error([] { listen_towards("no-such-host.invalid", 0, 1); }, {"no-such-host.invalid"}));
}

}  // namespace
}  // namespace sparsereel::models
