// Threads for a program that brings none of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sparsereel::attention {

class Threads {
 public:
  /// count: with the thread that runs; 0: the machine's.
  explicit Threads(int count);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  /// A cpu::ParallelFor; one at a time. What a part throws, it throws when all are done. Where the system has no more
  /// threads, there are fewer.
  void run(int64_t count, const std::function<void(int64_t, int64_t)>& body);

 private:
  struct Task {
    int64_t count, parts;
    const std::function<void(int64_t, int64_t)>* body;
  };

  void start();
  void work(int64_t thread);
  void run_part(const Task& task, int64_t part);

  const int64_t wanted_;
  std::vector<std::thread> others_;
  std::mutex running_;  // held by who runs something
  std::mutex mutex_;
  std::condition_variable begins_, ends_;
  Task task_{};
  int64_t number_ = 0;   // of the task
  int64_t working_ = 0;  // of the others
  bool stops_ = false;
  std::exception_ptr failure_;
};

}  // namespace sparsereel::attention
