// The connection between the process that holds a queue of videos and the process of one GPU. It carries JSON messages
// (models/parallel/messages.h). If the queue is a set of `batch`, the GPU's process receives {"rows": [..]} and
// {"stop": true}, and sends {"ready": true}, {"failed": ..} and, at intervals, {"alive": true}. If it is a server's
// queue, the messages are those in app/serve/process_maker.h.
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

/// Sends and receives messages over a socket. Any thread may send. Does not close the socket.
class LineSocket {
 public:
  explicit LineSocket(int socket) : socket_(socket) {}

  /// Returns false if the other end is gone.
  bool send(const nlohmann::json& message);
  /// Waits for the next message; null if the other end is gone.
  nlohmann::json receive();
  /// Returns the next message if receive() has already read all of it, else nothing. Does not wait.
  std::optional<nlohmann::json> take();
  /// Returns true if data has arrived or the other end is gone.
  bool is_ready() const;
  int number() const { return socket_; }

 private:
  int socket_;
  std::string received_;
  std::unique_ptr<std::mutex> sending_ = std::make_unique<std::mutex>();
};

/// Returns the time between heartbeats: a 20th of `limit`, so that some heartbeats may come late, but at least 10 ms
/// and at most 5 s.
std::chrono::milliseconds heartbeat_for(std::chrono::milliseconds limit);

/// While this object lives, tells the other end that this process runs, once in each interval `every`.
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
  std::thread thread_;  // last member: the thread uses the other members while it runs
};

}  // namespace sparsereel::app::sets
