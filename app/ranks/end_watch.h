// Decides what happens to a rank's process when another rank ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "models/parallel/socket_group.h"

namespace sparsereel::app {

/// Ends this process if the end of another rank leaves it nothing to do. Any thread may call it.
class EndWatch {
 public:
  /// The stage of this rank's work. Ranks other than 0 end as soon as the group ends, unless they are leaving.
  enum class Stage {
    starting,  // The ranks have not met. A child's death is stored for early_death().
    working,   // The work needs the other ranks. If one ends, rank 0 ends unless it stops working within some seconds.
    resting,   // The work needs no other rank. If one ends, rank 0 ends only after a later work().
    leaving,   // This rank's own code ends its work. Nothing else ends the process.
  };

  explicit EndWatch(int64_t rank) : rank_(rank) {}
  ~EndWatch() { leave(); }
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// Call it when the ranks have met. Goes from starting to working. If a child died before that, ends the group.
  void connected(std::shared_ptr<models::SocketGroup> control);
  /// Goes from resting to working.
  void work();
  /// Goes from working to resting.
  void rest();
  /// Goes to leaving from any stage. After it returns, no thread of the group uses this object.
  void leave() noexcept;
  bool is_working() const;

  /// Tells the group that a child process has ended. `name` is "rank 1 (cuda:1)"; `how` is as in Children::watch().
  void child_died(int64_t rank, const std::string& name, const std::string& how);
  /// Returns which child died before the ranks had met, and how; empty if none did. Waits a moment, because the system
  /// reports a child's end a little after its sockets are closed.
  std::string early_death();

 private:
  void go(Stage from, Stage to);
  void group_ended();

  const int64_t rank_;
  mutable std::mutex mutex_;  // guards stage_ and early_death_, and the assignment of control_
  std::condition_variable changed_;
  Stage stage_ = Stage::starting;
  std::string early_death_;
  std::shared_ptr<models::SocketGroup> control_;
  int64_t call_ = -1;  // number from SocketGroup::when_ended(); only the owner's thread uses it
};

}  // namespace sparsereel::app
