// The ranks that make a set's videos together on some of a host's cards, seen from the first of them. A video that
// fails leaves the others in the middle of it: others take their places then.
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
  /// devices: this process's first. The others' processes are started, which wait for a model for as long as it takes.
  /// `threads`: of each on a CPU. `together`: over a group, which one device alone has no need of. Throws Error where a
  /// process does not come.
  Team(std::vector<std::string> devices, int threads, bool together);

  /// How many they are.
  int64_t size() const { return static_cast<int64_t>(devices_.size()); }
  /// What the next videos are made of: it must stay until the next call. The others begin to load it.
  void use(const GenerateOptions& model);
  /// Ready for a video; null where this process is alone.
  World* ready();
  /// Throws Error where another rank is gone, or its card is broken: this process is to end with it. What failed here,
  /// or there by what the video asked for, costs new processes.
  void after_failure();
  /// There is nothing more to make.
  void finish();

 private:
  void meet();

  std::vector<std::string> devices_;
  int threads_;
  bool together_;
  const GenerateOptions* model_ = nullptr;
  std::unique_ptr<World> world_;  // null where this process is alone, and after a failure
  std::exception_ptr not_met_;    // why the others could not be started anew
};

}  // namespace sparsereel::app
