// Splits a task into as many parts as there are threads. The calling thread takes the first part.
#include "attention/core/threads.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sparsereel::attention {

/// A pool of threads. It belongs to the process that created it.
class Threads::Pool {
 public:
  explicit Pool(int64_t wanted) : wanted_(wanted) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  bool is_of_this_process() const { return process_ == getpid(); }
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
  const pid_t process_ = getpid();
  std::vector<std::thread> others_;
  std::mutex running_;  // held by the thread that runs a task
  std::mutex mutex_;
  std::condition_variable begins_, ends_;
  Task task_{};
  int64_t number_ = 0;   // counts the tasks; when it changes, waiting threads start the new task
  int64_t working_ = 0;  // number of other threads that have not finished the task
  bool stops_ = false;
  std::exception_ptr failure_;
};

Threads::Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  begins_.notify_all();
  for (std::thread& thread : others_) thread.join();
}

void Threads::Pool::start() {
  try {
    while (std::ssize(others_) + 1 < wanted_) {
      const int64_t thread = std::ssize(others_) + 1;
      others_.emplace_back([this, thread] { work(thread); });
    }
  } catch (const std::system_error&) {
    // run with the threads that have started
  }
}

void Threads::Pool::run(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
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

void Threads::Pool::work(int64_t thread) {
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

void Threads::Pool::run_part(const Task& task, int64_t part) {
  try {
    (*task.body)(task.count * part / task.parts, task.count * (part + 1) / task.parts);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
}

Threads::Threads(int count)
    : wanted_(count > 0 ? count : std::max<int64_t>(1, std::thread::hardware_concurrency())),
      pool_(new Pool(wanted_)) {}

Threads::~Threads() {
  // A child process does not have its parent's threads, so it can neither join them nor rely on their mutexes.
  if (Pool* pool = pool_; pool->is_of_this_process()) delete pool;
}

Threads::Pool& Threads::own_pool() {
  Pool* pool = pool_;
  if (pool->is_of_this_process()) return *pool;
  auto fresh = std::make_unique<Pool>(wanted_);
  if (!pool_.compare_exchange_strong(pool, fresh.get())) return *pool;  // another thread was first
  return *fresh.release();
}

void Threads::run(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  own_pool().run(count, body);
}

}  // namespace sparsereel::attention
