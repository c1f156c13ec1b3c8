// Token orders, and the threads of a program that brings none.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "attention/core/threads.h"
#include "hilbert/token_order.h"
#include "tests/unit/attention/library/caller.h"

namespace sparsereel::attention {
namespace {

TEST(AttentionTokenOrder, IsThatOfTheProgram) {
  const hilbert::Permutation& expected = hilbert::permutation(hilbert::TokenOrder::hilbert, {5, 6, 7});
  std::vector<int64_t> places(210), inverse(210);
  EXPECT_EQ(sparsereel_token_order(SPARSEREEL_HILBERT, 5, 6, 7, places.data(), inverse.data()), SPARSEREEL_OK);
  EXPECT_EQ(places, expected.order);
  EXPECT_EQ(inverse, expected.inverse);
  EXPECT_EQ(token_order(SPARSEREEL_HILBERT, 5, 6, 7), expected.order);
  EXPECT_EQ(token_order(SPARSEREEL_MORTON, 5, 6, 7),
            hilbert::permutation(hilbert::TokenOrder::morton, {5, 6, 7}).order);
  EXPECT_EQ(token_order(SPARSEREEL_TIME_MAJOR, 2, 2, 2), (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(AttentionTokenOrder, RefusesWhatIsNoGrid) {
  EXPECT_EQ(sparsereel_token_order(SPARSEREEL_NATIVE, 0, 6, 7, nullptr, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_NE(std::string(sparsereel_message()).find("empty side"), std::string::npos);
  EXPECT_EQ(sparsereel_token_order(static_cast<sparsereel_order>(9), 5, 6, 7, nullptr, nullptr),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_THROW(token_order(SPARSEREEL_HILBERT, 1 << 20, 1 << 20, 1 << 20), AttentionError);
}

TEST(AttentionThreads, TakeEveryPartOnce) {
  for (const int count : {1, 2, 7}) {
    Threads threads(count);
    for (const int64_t parts : {1, 5, 7, 1000}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(parts));
      std::mutex mutex;
      std::set<std::thread::id> ids;
      threads.run(parts, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++taken[static_cast<size_t>(i)];
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      });
      for (const std::atomic<int>& times : taken) EXPECT_EQ(times, 1);
      EXPECT_LE(std::ssize(ids), std::min<int64_t>(count, parts));
    }
    threads.run(0, [](int64_t, int64_t) { FAIL() << "there is nothing to do"; });
  }
}

#ifndef __SANITIZE_THREAD__  // its runtime starts no threads in a child
/// The status with which a child ends that runs `works`: 0 where it returns true. A child that hangs ends by a signal.
int status_of_child(const std::function<bool()>& works) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(works() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(AttentionThreads, AreStartedAnewInAChild) {
  Threads threads(3);
  const auto sums_up = [&] {
    std::atomic<int64_t> sum{0};
    threads.run(9, [&](int64_t begin, int64_t end) { sum += end - begin; });
    return sum == 9;
  };
  EXPECT_EQ(status_of_child(sums_up), 0);  // before the first task
  EXPECT_TRUE(sums_up());
  EXPECT_EQ(status_of_child([&] { return sums_up() && status_of_child(sums_up) == 0; }), 0);
  // A thread of the parent runs a task, and holds its mutex, while another one forks.
  std::atomic<bool> begun{false}, forked{false};
  std::thread other([&] {
    threads.run(3, [&](int64_t, int64_t) {
      begun = true;
      while (!forked) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  EXPECT_EQ(status_of_child(sums_up), 0);
  forked = true;
  other.join();
  EXPECT_TRUE(sums_up());
}

TEST(AttentionThreads, AHandleServesAChild) {
  const cpu::Case c({.queries = 200, .keys = 200});
  Caller caller(c);
  const std::vector<float> expected = caller.run();
  const auto same = [&] {
    std::fill(caller.out.begin(), caller.out.end(), NAN);
    return caller.run() == expected;
  };
  EXPECT_EQ(status_of_child(same), 0);
  const auto ends = [] {
    Attention own(SPARSEREEL_CPU);
    return true;
  };
  EXPECT_EQ(status_of_child(ends), 0);
}
#endif

TEST(AttentionThreads, ThrowWhatAPartThrowsAndGoOn) {
  Threads threads(3);
  const auto fails_in_the_last = [](int64_t, int64_t end) {
    if (end == 9) throw std::runtime_error("the last part");
  };
  EXPECT_THROW(threads.run(9, fails_in_the_last), std::runtime_error);
  std::atomic<int64_t> sum{0};
  threads.run(9, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 9);
}

}  // namespace
}  // namespace sparsereel::attention
