// The CPU threads that calls of the C library use if the program does not provide its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace sparsereel::attention {

class Threads {
 public:
  /// `count` is the number of threads, including the one that calls run(); 0 means one per core. The first run() starts
  /// the threads.
  explicit Threads(int count);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  /// Implements cpu::ParallelFor. Runs one task at a time. If body() throws an exception, waits until all other parts
  /// are done and then rethrows it. Uses fewer threads if the system cannot start more. After a fork(), the child
  /// starts its own threads.
  void run(int64_t count, const std::function<void(int64_t, int64_t)>& body);

 private:
  class Pool;
  Pool& own_pool();

  const int64_t wanted_;
  std::atomic<Pool*> pool_;  // only the process that created the pool may use it
};

}  // namespace sparsereel::attention
