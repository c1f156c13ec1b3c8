// Runs the checks of tests/support/group_contract.h for groups of processes over sockets, with and without a meter.
// Also tests what the other ranks do when a process ends or does not answer.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <future>

#include "models/parallel/metered_group.h"
#include "models/parallel/socket_group.h"
#include "tests/support/group_contract.h"
#include "tests/support/wait_until.h"

namespace sparsereel::models {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

/// Exit code of a rank's process that has thrown an exception.
constexpr int kThrew = 3;

std::vector<pid_t> start_processes(int64_t size, const GroupLimits& limits, const std::function<void(Group&)>& part) {
  const auto links = local_links(size);
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      for (int64_t other = 0; other < size; ++other)
        if (other != rank) close_links(links[static_cast<size_t>(other)]);
      int code = 0;
      try {
        const auto group = SocketGroup::connect(rank, links[static_cast<size_t>(rank)], "process", limits);
        part(*group);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), error.what());
        code = kThrew;
      }
      std::fflush(nullptr);
      _exit(code);
    }
    ranks.push_back(process);
  }
  for (const auto& row : links) close_links(row);
  return ranks;
}

int exit_code(pid_t process) {
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void as_processes(int64_t size, const std::function<void(Group&)>& part) {
  for (const pid_t process : start_processes(size, {.start = 60s, .call = 60s}, part))
    if (exit_code(process) != 0) throw std::runtime_error("a rank failed: see above");
}

/// Runs `part` like as_processes(), but with groups that measure the time of their calls.
void as_timed_processes(int64_t size, const std::function<void(Group&)>& part) {
  as_processes(size, [&](Group& group) {
    ExchangeMeter meter(at::kCPU);
    MeteredGroup metered({&group, [](Group*) {}}, meter);
    part(metered);
  });
}

struct GroupMaker {
  const char* name;
  test::RunRanks run;
};
void PrintTo(const GroupMaker& maker, std::ostream* out) {
  *out << maker.name;
}

class GroupContract : public ::testing::TestWithParam<GroupMaker> {
 protected:
  static void expect(void (*check)(Group&, at::Device)) {
    for (const int64_t size : {1, 2, 3, 5})
      EXPECT_NO_THROW(GetParam().run(size, [&](Group& group) { check(group, at::kCPU); })) << size << " ranks";
  }
  static void expect_of_several(void (*check)(Group&, at::Device)) {
    for (const int64_t size : {2, 3})
      EXPECT_NO_THROW(GetParam().run(size, [&](Group& group) { check(group, at::kCPU); })) << size << " ranks";
  }
};

TEST_P(GroupContract, ExchangesUnevenPieces) {
  expect(test::exchanges_uneven_pieces);
}
TEST_P(GroupContract, ExchangesLargePieces) {
  expect(test::exchanges_large_pieces);
}
TEST_P(GroupContract, GathersDifferentShapes) {
  expect(test::gathers_shapes_that_differ);
}
TEST_P(GroupContract, ReducesToTheSameBits) {
  expect(test::reduces_to_the_same_bits);
}
TEST_P(GroupContract, BroadcastsFromEveryRoot) {
  expect(test::broadcasts_from_every_root);
}
TEST_P(GroupContract, SplitsByColor) {
  expect(test::splits_by_color);
}
TEST_P(GroupContract, AbortsAllRanks) {
  expect(test::aborts_for_all);
}
TEST_P(GroupContract, NamesTheRankThatLeft) {
  expect_of_several(test::names_who_left);
}

INSTANTIATE_TEST_SUITE_P(Processes, GroupContract, ::testing::Values(GroupMaker{"sockets", as_processes}));
INSTANTIATE_TEST_SUITE_P(TimedProcesses, GroupContract, ::testing::Values(GroupMaker{"metered", as_timed_processes}));

TEST(MeteredGroup, TimesCallsOfItsPartsIncludingWaiting) {
  as_processes(2, [](Group& group) {
    ExchangeMeter meter(at::kCPU);
    MeteredGroup metered({&group, [](Group*) {}}, meter);
    const auto part = metered.split(0);
    meter.take();
    if (group.rank() == 1) usleep(300'000);  // rank 0 waits for rank 1 meanwhile
    part->all_reduce_sum(at::ones({1}));
    const double taken = meter.take();
    test::require(group.rank() == 1 ? taken < 250 : taken > 250, std::to_string(taken) + " ms");
    test::require(meter.take() == 0, "it is taken once");
  });
}

TEST(SocketGroup, HasNoWindows) {
  as_processes(2, [](Group& group) { test::require(!test::puts_into_windows(group, at::kCPU), "no windows"); });
}

TEST(SocketGroup, EndsOtherRanksAtOnceIfOneIsKilled) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const test::ProcessEvent met;
    const auto ranks = start_processes(3, {}, [&](Group& group) {
      group.all_reduce_sum(at::ones({1}));
      if (group.rank() == 1) met.tell();
      const std::string said = test::end_of(group, at::kCPU);
      test::require(said.find("rank 1 (process) ended") != std::string::npos, said);
    });
    met.wait();
    const auto start = std::chrono::steady_clock::now();
    kill(ranks[1], SIGKILL);
    for (const size_t rank : {0, 2}) EXPECT_EQ(exit_code(ranks[rank]), 0);
    EXPECT_EQ(exit_code(ranks[1]), -SIGKILL);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  }
}

TEST(SocketGroup, NamesARankThatDoesNotAnswerInTime) {
  const test::ProcessEvent over;
  const auto ranks = start_processes(2, {.start = 60s, .call = 300ms}, [&](Group& group) {
    if (group.rank() == 1) over.wait();
    const std::string said = test::end_of(group, at::kCPU);
    if (group.rank() == 0) over.tell();
    test::require(said.find("rank 1 (process) did not answer within 300 ms") != std::string::npos, said);
  });
  for (const pid_t process : ranks) EXPECT_EQ(exit_code(process), 0);
}

/// Ctrl-Z stops all ranks, perhaps for a long time. Later a shell continues one rank after the other.
TEST(SocketGroup, ContinuesAfterRanksWereStoppedLongerThanTheLimit) {
  const test::ProcessEvent met;
  const auto ranks = start_processes(2, {.start = 60s, .call = 2s}, [&](Group& group) {
    for (int turn = 0; turn < 12; ++turn) {
      if (group.rank() == 1) usleep(300'000);  // so rank 0 usually waits for rank 1
      group.all_reduce_sum(at::ones({1}));
      if (group.rank() == 1 && turn == 0) met.tell();
    }
  });
  met.wait();
  for (const pid_t process : ranks) kill(process, SIGSTOP);
  sleep(3);  // longer than the limit of 2 s for a call
  for (const pid_t process : ranks) {
    kill(process, SIGCONT);
    usleep(200'000);  // a shell, too, continues them one after the other
  }
  for (const pid_t process : ranks) EXPECT_EQ(exit_code(process), 0);
}

TEST(SocketGroup, NamesARankThatNeverStarts) {
  auto links = local_links(2);
  try {
    SocketGroup::connect(0, links[0], "process", {.start = 300ms, .call = 60s});
    ADD_FAILURE() << "nobody was there";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 did not start within 300 ms");
  }
  close_links(links[1]);
}

TEST(SocketGroup, SendsErrorsWithKindAndRemedy) {
  const auto ranks = start_processes(2, {}, [](Group& group) {
    auto& sockets = dynamic_cast<SocketGroup&>(group);
    if (group.rank() == 1) {
      group.all_reduce_sum(at::ones({1}));  // returns once both ranks have started
      sockets.end(bad_input("no such card", "use another"), /*sound=*/true);
    }
    test::end_of(group, at::kCPU);
    test::require(sockets.ended_soundly(), "rank 1 is sound");
    try {
      sockets.check();
    } catch (const Error& error) {
      test::require(error.kind() == ErrorKind::bad_input && error.remedy() == "use another", error.remedy());
      return;
    }
    throw std::runtime_error("it goes on");
  });
  for (const pid_t process : ranks) EXPECT_EQ(exit_code(process), 0);
}

TEST(SocketGroup, DetectsWhenAllOthersAreGone) {
  const test::ProcessEvent both_seen, one_seen;
  const auto ranks = start_processes(3, {}, [&](Group& group) {
    auto& sockets = dynamic_cast<SocketGroup&>(group);
    group.all_reduce_sum(at::ones({1}));
    if (group.rank() > 0) {
      (group.rank() == 1 ? both_seen : one_seen).wait();
      _exit(7);
    }
    test::require(!sockets.are_others_gone(), "both are there");
    both_seen.tell();
    test::end_of(group, at::kCPU);
    test::require(!sockets.are_others_gone(), "rank 2 is there");
    one_seen.tell();
    test::require(test::wait_until([&] { return sockets.are_others_gone(); }), "both are gone");
  });
  EXPECT_EQ(exit_code(ranks[0]), 0);
  for (const size_t rank : {1, 2}) EXPECT_EQ(exit_code(ranks[rank]), 7);
}

TEST(SocketGroup, ReportsTheEndWithoutACollectiveCall) {
  const auto ranks = start_processes(2, {}, [](Group& group) {
    auto& sockets = dynamic_cast<SocketGroup&>(group);
    test::require(!sockets.ended_soundly(), "it goes on");
    if (group.rank() == 1) _exit(7);
    std::promise<void> told;
    sockets.when_ended([&] { told.set_value(); });
    test::require(told.get_future().wait_for(60s) == std::future_status::ready, "the call ran");
    test::require(sockets.ended(), "it has ended");
    test::require(!sockets.ended_soundly(), "rank 1 is dead");
  });
  EXPECT_EQ(exit_code(ranks[0]), 0);
  EXPECT_EQ(exit_code(ranks[1]), 7);
}

}  // namespace
}  // namespace sparsereel::models
