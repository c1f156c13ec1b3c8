// What becomes of a rank's process when another rank ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "models/parallel/socket_group.h"

namespace sparsereel::app {

/// Ends this process where the end of another rank leaves it nothing to do. Any thread may call it.
class EndWatch {
 public:
  /// How far this rank is.
  enum class Stage {
    starting,  // The ranks have not met. A child's death is kept for whoever waits for the meeting.
    working,   // The work needs the other ranks. Their end becomes this rank's, which has some seconds to notice it.
    resting,   // The work needs nobody else. The end of another rank changes nothing until work() comes.
    leaving,   // This rank leaves by itself. Nothing else ends it.
  };

  explicit EndWatch(int64_t rank) : rank_(rank) {}
  ~EndWatch() { leave(); }
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// starting -> working: the ranks have met. Where a child died before that, its death ends the group.
  void connected(std::shared_ptr<models::SocketGroup> control);
  /// resting -> working.
  void work();
  /// working -> resting.
  void rest();
  /// From whatever stage. After it returns no thread of the group looks at this object.
  void leave() noexcept;
  bool is_working() const;

  /// Tells the group that a child process has ended. `name`: "rank 1 (cuda:1)"; `how`: as Children::watch() says.
  void child_died(int64_t rank, const std::string& name, const std::string& how);
  /// Returns which child died before the ranks had met, and how; empty: none did. How a child ended is known a little
  /// after its sockets are closed, so this waits a moment.
  std::string early_death();

 private:
  void go(Stage from, Stage to);
  void group_ended();

  const int64_t rank_;
  mutable std::mutex mutex_;  // guards stage_ and early_death_, and control_ while it is set
  std::condition_variable changed_;
  Stage stage_ = Stage::starting;
  std::string early_death_;
  std::shared_ptr<models::SocketGroup> control_;
  int64_t call_ = -1;  // number of the call that the group makes when it ends; the owner's thread alone uses it
};

}  // namespace sparsereel::app
