// A task is cut into as many parts as there are threads; the one that runs it takes the first.
#include "attention/core/threads.h"

#include <algorithm>
#include <system_error>

namespace sparsereel::attention {

Threads::Threads(int count) : wanted_(count > 0 ? count : std::max<int64_t>(1, std::thread::hardware_concurrency())) {}

Threads::~Threads() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  begins_.notify_all();
  for (std::thread& thread : others_) thread.join();
}

void Threads::start() {
  try {
    while (std::ssize(others_) + 1 < wanted_) {
      const int64_t thread = std::ssize(others_) + 1;
      others_.emplace_back([this, thread] { work(thread); });
    }
  } catch (const std::system_error&) {
    // with those there are
  }
}

void Threads::run(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const std::lock_guard one_at_a_time(running_);
  if (others_.empty()) start();
  {
    const std::lock_guard lock(mutex_);
    task_ = {.count = count, .parts = std::min<int64_t>(count, std::ssize(others_) + 1), .body = &body};
    working_ = std::ssize(others_);
    failure_ = nullptr;
    ++number_;
  }
  begins_.notify_all();
  run_part(task_, 0);
  std::unique_lock lock(mutex_);
  ends_.wait(lock, [this] { return working_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void Threads::work(int64_t thread) {
  for (int64_t done = 0;;) {
    Task task{};
    {
      std::unique_lock lock(mutex_);
      begins_.wait(lock, [&] { return stops_ || number_ != done; });
      if (stops_) return;
      done = number_;
      task = task_;
    }
    if (thread < task.parts) run_part(task, thread);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) ends_.notify_one();
  }
}

void Threads::run_part(const Task& task, int64_t part) {
  try {
    (*task.body)(task.count * part / task.parts, task.count * (part + 1) / task.parts);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
}

}  // namespace sparsereel::attention
