// Sockets between every two processes: moves bytes, and notices which processes are gone. No tensors.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "hilbert/error.h"
#include "models/parallel/links.h"

namespace sparsereel::models {

/// The bytes that one call sends to a rank and receives from it. An unset direction is not used; a set one may have 0
/// bytes.
struct Transfer {
  int64_t rank = 0;
  std::optional<std::span<const std::byte>> send = {};
  std::optional<std::span<std::byte>> receive = {};
};

class SocketMesh {
 public:
  SocketMesh(int64_t rank, std::vector<Link> links, const GroupLimits& limits);
  ~SocketMesh();
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  /// Exchanges the ranks' names, and then listens for reports of failures.
  void meet(const std::string& name);
  /// Sends and receives all bytes, then returns. Only one thread may call this at a time. Throws Error as Group does.
  void exchange(const std::vector<Transfer>& transfers, std::chrono::milliseconds limit);
  /// Ends the mesh for all ranks with this error. Does nothing if the mesh has already ended. `sound` says that this
  /// rank's work failed, but the rank could go on.
  void fail(const Error& error, bool sound = false) noexcept;

  int64_t rank() const { return rank_; }
  int64_t size() const { return static_cast<int64_t>(links_.size()); }
  const GroupLimits& limits() const { return limits_; }
  std::string describe(int64_t rank) const;
  void check() const;
  bool ended() const noexcept;
  bool ended_soundly() const noexcept;
  bool has_left(int64_t rank) const;
  bool are_others_gone() const;
  int64_t when_ended(std::function<void()> call);
  void forget(int64_t number) noexcept;

 private:
  struct Moving;  // a transfer in progress
  using Clock = std::chrono::steady_clock;
  struct Listened {
    std::string bytes;                      // received bytes of an incomplete message
    bool left = false;                      // the rank said that it leaves
    std::optional<Clock::time_point> gone;  // when its socket was closed
  };

  void tell(const std::string& message) noexcept;
  bool send_some(Moving& moving);
  bool receive_some(Moving& moving);
  bool move_what_is_ready(std::vector<Moving>& moving, std::chrono::milliseconds wait);
  [[noreturn]] void lose(int64_t rank);
  [[noreturn]] void give_up(int64_t rank, std::chrono::milliseconds limit);
  void listen() noexcept;
  void hear(int64_t rank);
  void take_messages(Listened& from);
  void bury_the_lost();
  void run_calls() noexcept;

  const int64_t rank_;
  const std::vector<Link> links_;
  const GroupLimits limits_;
  std::vector<std::string> names_;  // empty until the ranks have met
  // Event descriptors. The first is readable once the mesh has ended, the second once the listener should quit, and the
  // third while run_calls() has work.
  int ended_event_ = -1, quit_event_ = -1, calls_event_ = -1;
  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable calls_ran_;
  std::optional<Error> failure_;
  bool sound_ = false;  // true if the rank that failed could go on with other work
  std::vector<Listened> listened_;
  std::map<int64_t, std::function<void()>> calls_;
  int64_t next_call_ = 0, running_call_ = -1;
  std::mutex send_mutex_;  // guards sending on the control sockets
  std::thread listener_;   // the last member, so that all other members exist while it runs
};

}  // namespace sparsereel::models
