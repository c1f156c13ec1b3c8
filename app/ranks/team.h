// The ranks that make a set's videos together on some GPUs of a host, seen from the first rank. If a video fails, the
// other ranks are interrupted in the middle of it, so new processes replace them.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "app/options/options.h"
#include "app/ranks/world.h"

namespace sparsereel::app {

class Team {
 public:
  /// `devices` begins with this process's device. Starts a process for each other device; these processes wait for a
  /// model without a time limit. `threads`: CPU threads of each rank on a CPU. `together` is true if the devices form a
  /// group of ranks; a single device needs none. Throws Error if a process does not connect.
  Team(std::vector<std::string> devices, int threads, bool together);

  int64_t size() const { return static_cast<int64_t>(devices_.size()); }
  /// Sets the model of the next videos; the other ranks begin to load it. `model` must live until the next call.
  void use(const GenerateOptions& model);
  /// Makes the ranks ready for a video. Returns null if this process is alone.
  World* ready();
  /// Decides whether the team can continue after a failure. Throws Error if another rank is gone or its GPU is broken;
  /// this process must then end too. If this rank failed, or if the video made another rank fail, new processes are
  /// started for the next video.
  void after_failure();
  /// Tells the other ranks that there are no more videos. Call it after the last video.
  void finish();

 private:
  void meet();

  std::vector<std::string> devices_;
  int threads_;
  bool together_;
  const GenerateOptions* model_ = nullptr;
  std::unique_ptr<World> world_;  // null if this process is alone, and after a failure
  std::exception_ptr not_met_;    // why the other ranks could not be started again
};

}  // namespace sparsereel::app
