// Waits for events of other threads and processes. Tests use this instead of sleeping for a fixed time; tests/layering
// lists the exceptions.
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

/// Waits until `event()` returns true. Returns false if that takes longer than a minute. This function polls, so use it
/// only for events without a notification.
inline bool wait_until(const std::function<bool()>& event) {
  const auto end = std::chrono::steady_clock::now() + kLongestWait;
  while (!event()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// An event that one process signals with tell() and another process waits for. Make this object before the fork. Only
/// one process may wait.
class ProcessEvent {
 public:
  ProcessEvent() {
    if (pipe(ends_.data()) != 0) throw std::runtime_error("pipe() failed, so no event can be made");
  }
  ~ProcessEvent() {
    for (const int end : ends_) close(end);
  }
  ProcessEvent(const ProcessEvent&) = delete;
  ProcessEvent& operator=(const ProcessEvent&) = delete;

  void tell() const {
    if (write(ends_[1], "!", 1) != 1) throw std::runtime_error("the event could not be written to its pipe");
  }
  /// Returns once the other process has called tell(). Throws std::runtime_error after a minute.
  void wait() const {
    pollfd told{.fd = ends_[0], .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kLongestWait);
    char byte = 0;
    if (poll(&told, 1, static_cast<int>(limit.count())) != 1 || read(ends_[0], &byte, 1) != 1)
      throw std::runtime_error("the event did not come within a minute");
  }

 private:
  std::array<int, 2> ends_{};
};

}  // namespace sparsereel::test
