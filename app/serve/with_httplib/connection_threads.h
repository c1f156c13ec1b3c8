// The threads of connections.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <iostream>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace sparsereel::app::serve {

/// Runs each connection in a thread, with at most `most` threads. Threads are kept for later connections.
class ConnectionThreads {
 public:
  explicit ConnectionThreads(size_t most) : most_(most) {}

  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
      if (waiting_.size() > idle_ && threads_.size() < most_) add_thread();
    }
    changed_.notify_one();
  }
  void join() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
  }

 private:
  void add_thread() {
    try {
      threads_.emplace_back([this] { serve_connections(); });
    } catch (const std::system_error& error) {  // the connection waits until a running thread is free
      std::cerr << "warning: cannot start a thread for a connection: " << error.what() << "\n";
    }
  }
  void serve_connections() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool ends_ = false;
};

/// Passes the library's connections to the threads, which live on when the library stops listening.
class ConnectionQueue final : public httplib::TaskQueue {
 public:
  using Added = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::declval<std::function<void()>>()));

  explicit ConnectionQueue(ConnectionThreads& threads) : threads_(threads) {}
  Added enqueue(std::function<void()> work) override {
    threads_.add(std::move(work));
    return static_cast<Added>(true);  // in older versions of httplib the function returns void
  }
  void shutdown() override {}

 private:
  ConnectionThreads& threads_;
};

}  // namespace sparsereel::app::serve
