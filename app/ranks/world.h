// The ranks that make a video together, seen from one of them. A rank is a process with a card of its own: what breaks
// one (a fault of the GPU, memory) is known by its process's end and ends no other's state, launchers start processes
// anyway, and each has one CUDA context, one allocator and one set of threads, as everywhere else in this program.
// Rank 0 alone reads options and writes files; the others hear from it what to make.
#pragma once

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "app/options/settings.h"
#include "app/ranks/children.h"
#include "hilbert/error.h"
#include "models/parallel/metered_group.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::app {

/// What SPARSEREEL_GROUP asks for, words with commas between: how ranks work together where that is to be tested.
struct GroupChoice {
  bool of_one = false;   // "of-one": one rank goes the way of several
  bool sockets = false;  // "sockets": no NCCL; ranks may then share a card
};
GroupChoice find_group_choice(const Environment& environment);

/// SPARSEREEL_GROUP_SECONDS and SPARSEREEL_START_SECONDS, in place of the limits' own. Throws Error naming the
/// variable.
models::GroupLimits find_group_limits(const Environment& environment);

/// The device of each of `count` ranks of this host: cuda:0, cuda:1 ...; all the CPU where that is asked for. Throws
/// Error (field gpus, or device) where there are fewer cards, or one is named.
std::vector<std::string> devices_of_ranks(int64_t count, const std::string& device, bool may_share);

/// How many ranks make each video of these settings together: those of a launcher, or else --gpus. Throws Error as
/// find_launched().
int64_t ranks_of_video(const Settings& settings, const Environment& environment);

/// Returns true if this process is another rank than 0 of a command whose ranks make a video together: it prints
/// nothing, not even CLI11's errors. `words`: those behind the program's name, which a null ends.
bool is_silent_rank(const char* const* words, const Environment& environment);

/// CPU threads of each of so many processes that have this host's cores together.
int threads_of_each(int64_t processes);

class World {
 public:
  /// Null where one process makes the videos, and no group is. Else this is rank 0 of --gpus, and starts the others;
  /// or any rank of a launcher's, but where one card is asked for. Throws Error where both are asked for, and as
  /// devices_of_ranks(). `given`: the command line's options.
  static std::unique_ptr<World> find(const Settings& settings, std::map<std::string, std::string> given);
  /// Rank 0 on the first of these devices of this host, which starts a process for each other one.
  static std::unique_ptr<World> start(std::vector<std::string> devices);
  /// Of a process that rank 0 started.
  explicit World(const StartedRank& started);
  /// Rank 0's ends the others, where they do not leave by themselves: after finish() they do.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  int64_t ranks_here() const { return ranks_here_; }     // of this host, as far as this process has started them
  const std::string& device() const { return device_; }  // of this rank: "cuda:1", "cpu"
  bool has_gpu() const;
  /// CPU threads of each rank, where nobody asks for a number of them: the host's cores are theirs together.
  int threads() const;

  /// Meets the others; once the device has started. Throws Error naming a rank that is not there.
  void connect();
  models::SocketGroup& control() { return *control_; }
  /// By rank 0, to be told to all, for begin_group(): what NCCL's ranks meet by, where the group is to be one of those
  /// and was not begun yet; else empty. Throws Error where there is no NCCL.
  std::string group_id() const;
  /// By all with the same id: the group is made while this rank does other things; empty: nothing is. `passes`: of
  /// guidance, as far as they are known.
  void begin_group(const std::string& id, int64_t passes);
  /// Over which videos are made: NCCL's on GPUs, once begun; else the control group. Waits for its making. Throws Error
  /// where that failed.
  models::Group& group();
  /// From the first group() on the meter times what is exchanged here; it must outlive this. Nothing where there is a
  /// group already.
  void observe(models::ExchangeMeter& meter) { meter_ = &meter; }
  /// What this rank was given, where a launcher started all with command lines of their own: to be the same.
  const std::optional<std::map<std::string, std::string>>& given() const { return given_; }
  /// By rank 0: whether what it does next takes the others; if not, their end is no matter.
  void need_others(bool need);
  /// Throws Error where another rank has failed or is gone, and is needed. After a wait for a GPU that comes before its
  /// results count.
  void check() const;
  /// By rank 0: this process goes on after the world's end. Once end() was called, what it has begun to write has all
  /// the time that it takes.
  void outlive() { outlives_ = true; }
  /// Tells the others why this rank stops.
  void end(const Error& error) noexcept;
  /// Whether any rank has stopped before the end, and whether this one has by what befell it alone.
  bool ended() const { return control_ && control_->ended(); }
  bool failed_here() const { return failed_here_; }
  /// By rank 0: there is nothing more to make; by the others, once they have heard so.
  void finish();

 private:
  World() = default;
  static std::unique_ptr<World> launched(const Launched& place, const std::string& device);
  void watch_over_the_end();
  void end_others();
  void child_died(int64_t rank, const std::string& how);

  int64_t rank_ = 0, size_ = 1, ranks_here_ = 1;
  std::string device_, name_;
  std::vector<std::string> devices_;  // of the ranks that this one has started
  models::GroupLimits limits_;
  bool sockets_ = false, finished_ = false, failed_here_ = false, outlives_ = false;
  std::optional<Launched> launched_;
  std::vector<models::Link> links_;  // until they are connected
  std::unique_ptr<Children> children_;
  std::optional<std::map<std::string, std::string>> given_;
  std::atomic<bool> needs_others_ = true;  // changes with the mutex
  std::mutex mutex_;                       // of the next three, which other threads use
  std::condition_variable leaving_changed_;
  bool leaving_ = false;
  std::string early_death_;  // of a child, before there was a group
  std::shared_ptr<models::SocketGroup> control_;
  int64_t end_call_ = -1;
  std::shared_future<std::shared_ptr<models::Group>> begun_group_;
  std::shared_ptr<models::Group> group_;
  models::ExchangeMeter* meter_ = nullptr;
};

}  // namespace sparsereel::app
