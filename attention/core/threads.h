// Threads for a program that brings none of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace sparsereel::attention {

class Threads {
 public:
  /// count: with the thread that runs; 0: the machine's.
  explicit Threads(int count);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  /// A cpu::ParallelFor; one at a time. What a part throws, it throws when all are done. Where the system has no more
  /// threads, there are fewer. The child of a fork() has threads of its own.
  void run(int64_t count, const std::function<void(int64_t, int64_t)>& body);

 private:
  class Pool;
  Pool& own_pool();

  const int64_t wanted_;
  std::atomic<Pool*> pool_;  // of the process that made it
};

}  // namespace sparsereel::attention
