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

  /// Implements cpu::ParallelFor; runs one task at a time. If body() throws an exception, rethrows it when all other
  /// parts are done. Uses fewer threads if the system cannot start more. The child of a fork() starts its own threads.
  void run(int64_t count, const std::function<void(int64_t, int64_t)>& body);

 private:
  class Pool;
  Pool& own_pool();

  const int64_t wanted_;
  std::atomic<Pool*> pool_;  // belongs to the process that created it
};

}  // namespace sparsereel::attention
