// The line between the process that has a set's queue and the process of one GPU. It carries the messages of
// models/parallel/messages.h: {"rows": [..]} and {"stop": true} to the GPU's process; {"ready": true}, {"failed": ..}
// and, again and again, {"alive": true} from it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

namespace sparsereel::app::sets {

/// Sends and receives messages over a socket, which it does not close. Any thread may send.
class LineSocket {
 public:
  explicit LineSocket(int socket) : socket_(socket) {}

  /// Returns false if the other end is gone.
  bool send(const nlohmann::json& message);
  /// Waits for the next message; null if the other end is gone.
  nlohmann::json receive();
  /// Returns the next message if the whole of it has come already.
  std::optional<nlohmann::json> take();
  /// True if something has come or the other end is gone.
  bool is_ready() const;
  int number() const { return socket_; }

 private:
  int socket_;
  std::string come_;
  std::unique_ptr<std::mutex> sending_ = std::make_unique<std::mutex>();
};

/// Tells the other end, while this lives, that this process runs.
class Heartbeat {
 public:
  Heartbeat(LineSocket& line, std::chrono::milliseconds every);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool quit_ = false;
  std::thread thread_;  // last: the rest is there while it runs
};

}  // namespace sparsereel::app::sets
