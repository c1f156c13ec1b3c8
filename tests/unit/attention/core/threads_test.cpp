// Tests the attention library's own threads, which it uses if the calling program provides none.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "attention/core/threads.h"
#include "tests/unit/attention/library/caller.h"

namespace sparsereel::attention {
namespace {

TEST(AttentionThreads, RunEveryPartOnce) {
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

#ifndef __SANITIZE_THREAD__  // with ThreadSanitizer, a forked child cannot start threads
/// Runs `works` in a child process. Returns the child's wait status, which is 0 if `works` returned true. A signal ends
/// the child after a minute.
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

TEST(AttentionThreads, AreRestartedInAForkedChild) {
  Threads threads(3);
  const auto sums_up = [&] {
    std::atomic<int64_t> sum{0};
    threads.run(9, [&](int64_t begin, int64_t end) { sum += end - begin; });
    return sum == 9;
  };
  EXPECT_EQ(status_of_child(sums_up), 0);  // forks before the threads have run a task
  EXPECT_TRUE(sums_up());
  EXPECT_EQ(status_of_child([&] { return sums_up() && status_of_child(sums_up) == 0; }), 0);
  // Forks while another thread of the parent runs a task and holds the mutex of `threads`.
  std::atomic<bool> begun{false}, forked{false};
  std::thread other([&] {
    threads.run(3, [&](int64_t, int64_t) {
      begun = true;
      begun.notify_all();
      forked.wait(false);
    });
  });
  begun.wait(false);
  EXPECT_EQ(status_of_child(sums_up), 0);
  forked = true;
  forked.notify_all();
  other.join();
  EXPECT_TRUE(sums_up());
}

TEST(AttentionThreads, ServeAHandleInAForkedChild) {
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

TEST(AttentionThreads, RethrowTheExceptionOfAPartAndContinue) {
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
