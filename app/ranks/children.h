// The other ranks of this host: processes of this program, one a card, which live no longer than this one.
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

/// What a rank that Children started finds in its environment.
struct StartedRank {
  int64_t rank = 0;
  std::string device;  // "cuda:1"
  std::vector<models::Link> links;
  pid_t parent = 0;
};

/// Nothing in a process that nobody started as a rank.
std::optional<StartedRank> find_started_rank(const Environment& environment);
/// Whether such a process is one to follow rank 0, by its command line; else it runs that.
bool is_follower(int argc, char** argv);
/// To be called first in such a process: it ends when its parent does, and leaves the terminal's signals to that one.
void live_no_longer_than(pid_t parent);

/// What NCCL has said on this process and its children by now, where NCCL_DEBUG asks for it: to be called before this
/// process ends, which takes the thread along that passes it on.
void pass_on_last_words();

/// Of what a process wrote to its standard error before it ended: the last error's line, without its remedy; else the
/// last line.
std::string telling_line(std::string_view words);

class Children {
 public:
  /// links[rank]: each child takes its row; this process keeps row 0. devices[rank] likewise. `arguments`: their
  /// command line; empty: that of a rank that follows. `input`: what they read as standard input, each from its
  /// beginning; -1: nothing. Throws Error where a process cannot be started.
  Children(const std::vector<std::vector<models::Link>>& links, const std::vector<std::string>& devices,
           const std::vector<std::string>& arguments = {}, int input = -1);
  /// Those that have not ended by themselves within a short time are killed.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// `died` is called in a thread of its own for each child that ends, with how it did: "was killed by signal 9",
  /// "ended with exit code 1: what it last wrote"; empty where it ended well. To be called once.
  void watch(std::function<void(int64_t rank, const std::string& how)> died);
  /// Kills a child, which may be stopped. `died` is called as ever.
  void kill(int64_t rank) const;

 private:
  struct Child {
    int64_t rank = 0;
    pid_t process = 0;
    int handle = -1;  // readable once it has ended
    int words = -1;   // what it writes to stderr
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
