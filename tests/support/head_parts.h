// Runs attention calls that each compute a part of the heads, concurrently, and adds up their counts.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "attention/head_part.h"

namespace sparsereel::test {

/// Splits the heads into parts of `sizes` heads, and calls `call` for all parts at once, each in its own thread.
/// `alike` says whether the block selection settings of all heads are equal.
inline void run_parts(const std::vector<int64_t>& sizes, bool alike,
                      const std::function<void(const attention::HeadPart& part, int64_t heads)>& call) {
  std::barrier meeting(static_cast<std::ptrdiff_t>(sizes.size()));
  std::mutex mutex;
  std::vector<int64_t> sums;
  const auto sum = [&](int64_t* counts, int64_t count) {
    {
      const std::lock_guard lock(mutex);
      sums.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += counts[i];
    }
    meeting.arrive_and_wait();
    std::copy(sums.begin(), sums.end(), counts);
    meeting.arrive_and_wait();
    const std::lock_guard lock(mutex);
    sums.clear();
    // `exchange` now waits at the barrier a third time, so no part adds to the next sum before all parts have cleared
    // this one.
  };
  const auto exchange = [&](int64_t* counts, int64_t count) {
    sum(counts, count);
    meeting.arrive_and_wait();
  };
  int64_t all = 0;
  for (const int64_t size : sizes) all += size;
  std::vector<std::thread> threads;
  for (int64_t first = 0; const int64_t size : sizes) {
    threads.emplace_back(
        [&, first, size] { call({.first = first, .all = all, .alike = alike, .sum = exchange}, size); });
    first += size;
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sparsereel::test
