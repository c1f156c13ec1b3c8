// The ranks that make a video together, seen from one of them. A rank is a process with a GPU of its own: what breaks
// one (a fault of the GPU, memory) is known by its process's end and ends no other's state, launchers start processes
// anyway, and each has one CUDA context, one allocator and one set of threads, as everywhere else in this program.
// Rank 0 alone reads options and writes files; the others hear from it what to make (models/engine/worker.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/options/settings.h"
#include "app/ranks/children.h"
#include "app/ranks/end_watch.h"
#include "app/ranks/rank_group.h"
#include "hilbert/error.h"
#include "models/engine/worker.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::app {

class World final : public models::Rank {
 public:
  /// Returns null where one process makes the videos alone. Else this is rank 0 of --gpus, and starts the others; or
  /// any rank of a launcher's, unless one GPU is asked for. Throws Error where both are asked for, and as
  /// devices_of_ranks_here(). `given`: the command line's options.
  static std::unique_ptr<World> find(const Settings& settings, std::map<std::string, std::string> given);
  /// Makes rank 0, on the first of these devices of this host, and starts a process for each other device.
  static std::unique_ptr<World> start(std::vector<std::string> devices);
  /// The rank of a process that rank 0 started.
  explicit World(const StartedRank& started);
  /// Rank 0 ends the others where they do not leave by themselves, as they do after finish().
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  int64_t ranks_here() const { return place_.ranks_here; }     // of this host, as far as this process has started them
  const std::string& device() const { return place_.device; }  // of this rank: "cuda:1", "cpu"
  bool has_gpu() const;
  /// CPU threads of each rank, unless a number is asked for: the ranks share this host's cores.
  int threads() const;

  /// Meets the others, once the device has started. Throws Error naming a rank that is not there.
  void connect();
  models::SocketGroup& control() override { return *control_; }
  models::Group& group() override { return group_->get(); }
  /// The making of group(), once the ranks have met.
  RankGroup& group_maker() { return *group_; }
  /// Throws Error where another rank has failed or is gone, and is needed. A GPU's results count only after this was
  /// called behind the wait for them.
  void check() const override;
  void need_others(bool need) override;
  void end(const Error& error) noexcept override;
  /// The options that this rank was given, where a launcher started every rank with a command line of its own: they are
  /// to be the same.
  const std::optional<std::map<std::string, std::string>>& given() const { return given_; }
  /// Says that this process goes on after the world's end: once end() was called, what it has begun to write may take
  /// as long as it takes.
  void outlive() { outlives_ = true; }
  /// Returns true if a rank has stopped before the end.
  bool ended() const { return control_ && control_->ended(); }
  /// Returns true if this rank has stopped by its own failure.
  bool failed_here() const { return failed_here_; }
  /// Rank 0 says that there is nothing more to make; another rank, that it has heard so.
  void finish();

 private:
  /// Where this rank stands, and what it meets the others by.
  struct Place {
    int64_t rank = 0, size = 1, ranks_here = 1;
    std::string device = {}, name = {};
    std::vector<models::Link> links = {};   // to the others; empty: a launcher's ranks make them
    std::optional<Launched> launched = {};  // by a launcher
    std::vector<std::string> devices = {};  // of the ranks that this one starts, its own first
  };
  explicit World(Place place);
  static Place launched(const Launched& launched, const std::string& device);
  void start_children();
  std::vector<models::Link> meet();
  void end_others();

  Place place_;
  models::GroupLimits limits_;
  bool finished_ = false, failed_here_ = false, outlives_ = false;
  std::optional<std::map<std::string, std::string>> given_;
  EndWatch watch_;
  std::unique_ptr<Children> children_;
  std::shared_ptr<models::SocketGroup> control_;  // null: the ranks have not met
  std::unique_ptr<RankGroup> group_;              // null likewise
};

}  // namespace sparsereel::app
