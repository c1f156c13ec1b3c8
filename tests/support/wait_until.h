// Waiting for what other threads and processes do: nothing in a test sleeps in the hope that they are through.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

namespace sparsereel::test {

constexpr std::chrono::seconds kLongestWait{60};

/// Waits until `event()` holds; false: it did not within a minute. This is the one poll of these tests, for events that
/// tell nobody.
inline bool wait_until(const std::function<bool()>& event) {
  const auto end = std::chrono::steady_clock::now() + kLongestWait;
  while (!event()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // see above
  }
  return true;
}

/// An event in one process that another one waits for. It is made before they are forked; one process waits for it.
class ProcessEvent {
 public:
  ProcessEvent() {
    if (pipe(ends_.data()) != 0) throw std::runtime_error("there is no pipe");
  }
  ~ProcessEvent() {
    for (const int end : ends_) close(end);
  }
  ProcessEvent(const ProcessEvent&) = delete;
  ProcessEvent& operator=(const ProcessEvent&) = delete;

  void tell() const {
    if (write(ends_[1], "!", 1) != 1) throw std::runtime_error("the event cannot be told");
  }
  /// Returns once it was told; throws std::runtime_error after a minute.
  void wait() const {
    pollfd told{.fd = ends_[0], .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kLongestWait);
    char byte = 0;
    if (poll(&told, 1, static_cast<int>(limit.count())) != 1 || read(ends_[0], &byte, 1) != 1)
      throw std::runtime_error("the event did not come");
  }

 private:
  std::array<int, 2> ends_{};
};

}  // namespace sparsereel::test
