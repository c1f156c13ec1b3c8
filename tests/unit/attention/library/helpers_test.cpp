// Token orders, and the threads of a program that brings none.
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>

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
