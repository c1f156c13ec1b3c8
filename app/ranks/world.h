// The ranks that make a video together, seen from one of them. A rank is a process with its own GPU, not a thread, for
// three reasons. If a GPU fails or runs out of memory, only its process ends, and the state of the other ranks stays
// intact. Launchers such as torchrun start processes. Each process has one CUDA context, one allocator and one set of
// threads, as everywhere else in this program. Only rank 0 reads options and writes files; it tells the other ranks
// what to make (models/engine/worker.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/options/option_table.h"
#include "app/ranks/children.h"
#include "app/ranks/end_watch.h"
#include "app/ranks/rank_group.h"
#include "hilbert/error.h"
#include "models/engine/worker.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::app {

class World final : public models::Rank {
 public:
  /// Returns null if one process makes the videos alone. With --gpus, returns rank 0, which starts the other ranks.
  /// Under a launcher, returns this process's rank, unless --gpus is 1. Throws Error if --gpus has another value under
  /// a launcher, and like devices_of_ranks_here(). `given` holds the options of the command line.
  static std::unique_ptr<World> find(const Settings& settings, std::map<std::string, std::string> given);
  /// Makes rank 0 on the first of these devices of this host, and starts a process for each other device.
  static std::unique_ptr<World> start(std::vector<std::string> devices);
  /// Makes the World of a process that rank 0 started.
  explicit World(const StartedRank& started);
  /// On rank 0, kills started ranks that do not end soon; after finish(), ranks end without that.
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  int64_t ranks_here() const { return place_.ranks_here; }     // ranks of this host; 1 if a launcher started them
  const std::string& device() const { return place_.device; }  // device of this rank: "cuda:1", "cpu"
  bool has_gpu() const;
  /// Returns the default number of CPU threads of each rank. On a CPU, the ranks share the cores of this host.
  int threads() const;

  /// Connects to the other ranks. Call it after the device has started. Throws Error naming a rank that did not
  /// connect.
  void connect();
  models::SocketGroup& control() override { return *control_; }
  models::Group& group() override { return group_->get(); }
  /// Returns the object that makes group(). Call it after connect().
  RankGroup& group_maker() { return *group_; }
  /// Throws Error if another rank that is needed has failed or is gone. Results of a GPU are valid only if this
  /// function, called after waiting for them, throws nothing.
  void check() const override;
  void need_others(bool need) override;
  void end(const Error& error) noexcept override;
  /// Returns this rank's options if a launcher started every rank with its own command line, else nothing. The options
  /// of all ranks must be equal.
  const std::optional<std::map<std::string, std::string>>& given() const { return given_; }
  /// Declares that this process continues after the ranks have stopped working together. After end(), this process may
  /// then take any time to finish what it is writing.
  void outlive() { outlives_ = true; }
  /// Returns true if the ranks can no longer work together, because one has failed or left.
  bool ended() const { return control_ && control_->ended(); }
  /// Returns true if this rank stopped because of its own failure.
  bool failed_here() const { return failed_here_; }
  /// On rank 0, tells the other ranks that there is nothing more to make. On another rank, records that rank 0 said so.
  void finish();

 private:
  /// This rank's number, device and connections to the other ranks.
  struct RankPlace {
    int64_t rank = 0, size = 1, ranks_here = 1;
    std::string device = {}, name = {};
    std::vector<models::Link> links = {};   // to the other ranks; empty under a launcher, where connect() makes them
    std::optional<Launched> launched = {};  // set if a launcher started this rank
    std::vector<std::string> devices = {};  // devices of this rank and of the ranks that it starts
  };
  explicit World(RankPlace place);
  static RankPlace launched(const Launched& launched, const std::string& device);
  void start_children();
  std::vector<models::Link> meet();
  void end_others();

  RankPlace place_;
  models::GroupLimits limits_;
  bool finished_ = false, failed_here_ = false, outlives_ = false;
  std::optional<std::map<std::string, std::string>> given_;
  EndWatch watch_;
  std::unique_ptr<Children> children_;
  std::shared_ptr<models::SocketGroup> control_;  // null until the ranks have met
  std::unique_ptr<RankGroup> group_;              // null until the ranks have met
};

}  // namespace sparsereel::app
