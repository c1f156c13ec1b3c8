// Starts the other ranks of this host: processes of this program, one per GPU, which end with this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/ranks/launched.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::app {

/// The settings that a rank reads from its environment variables if Children started it.
struct StartedRank {
  int64_t rank = 0;
  std::string device;  // "cuda:1"
  std::vector<models::Link> links;
  pid_t parent = 0;
};

/// Returns the variables of a started rank; nothing in any other process.
std::optional<StartedRank> find_started_rank(const Environment& environment);
/// Returns true if a started rank must follow rank 0's messages (follow() in shared_model.h). Otherwise the rank runs
/// the command that its command line names.
bool is_follower(int argc, char** argv);
/// Makes this process end when its parent ends, and ignore the terminal's signals. A started rank calls it first.
void live_no_longer_than(pid_t parent);

/// Prints what NCCL has written so far in this process and its children, if NCCL_DEBUG asks for it. Call it before this
/// process ends, because its end also ends the thread that prints.
void pass_on_last_words();

/// Returns the most useful line of what a process wrote to stderr before it ended: the last error's line without its
/// remedy, else the last line.
std::string telling_line(std::string_view words);

/// Returns the command line of this process, with which Children can start it again.
std::vector<std::string> own_command_line();

class Children {
 public:
  /// Starts a child for each rank but 0, with its row of `links` and its entry of `devices`. `arguments` is their
  /// command line; if empty, they follow rank 0. `input` is the descriptor of a file that each child reads from its
  /// beginning as standard input; -1 for none. Throws Error if a process cannot be started.
  Children(const std::vector<std::vector<models::Link>>& links, const std::vector<std::string>& devices,
           const std::vector<std::string>& arguments = {}, int input = -1);
  /// Waits up to 5 s for the children to end, and kills those that still run.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Starts a thread that calls `died` for each child that ends. `how` is "was killed by signal 9" or "ended with exit
  /// code 1: what it last wrote"; empty if it ended well. Call it once.
  void watch(std::function<void(int64_t rank, const std::string& how)> died);
  /// Kills a child, even a stopped one. `died` is called for it, too.
  void kill(int64_t rank) const;

 private:
  struct Child {
    int64_t rank = 0;
    pid_t process = 0;
    int handle = -1;  // a pidfd, readable once the child has ended
    int words = -1;   // a file in memory that is the child's stderr
    bool ended = false;
  };

  void start(int64_t rank, const std::vector<models::Link>& links, const std::string& device,
             std::vector<std::string> arguments, int input);
  void watch_all(const std::function<void(int64_t rank, const std::string& how)>& died);
  static std::string how_it_ended(Child& child);
  void end_all() noexcept;

  std::vector<Child> children_;
  int quit_event_ = -1;
  std::thread watcher_;
};

}  // namespace sparsereel::app
