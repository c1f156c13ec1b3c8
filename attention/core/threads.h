// Threads for a program that brings none of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace sparsereel::attention {

class Threads {
 public:
  /// Starts threads. `count` is the number of threads including the calling one; 0 means one per core.
  explicit Threads(int count);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  /// Implements cpu::ParallelFor; runs one task at a time. Rethrows an exception of a part when all parts are done.
  /// Uses fewer threads if the system has no more. The child of a fork() starts its own threads.
  void run(int64_t count, const std::function<void(int64_t, int64_t)>& body);

 private:
  class Pool;
  Pool& own_pool();

  const int64_t wanted_;
  std::atomic<Pool*> pool_;  // belongs to the process that created it
};

}  // namespace sparsereel::attention
