// Runs ranks as threads of one process, each with its pipeline and device, so that a caller of the library need not
// start processes. If one GPU fails, the video fails, but the process goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/engine/pipeline.h"
#include "models/request/outcome.h"
#include "models/request/run.h"

namespace sparsereel::models {

/// Returns the device of each rank of this process, as devices_of_ranks() does. A single rank gets `device`.
std::vector<std::string> devices_of_threads(int64_t ranks, const std::string& device);

class RankThreads {
 public:
  /// Rank i works with pipelines[i]. All pipelines must be of the same model. Calls of generate() must not overlap.
  explicit RankThreads(std::vector<std::shared_ptr<Pipeline>> pipelines);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int64_t size() const { return static_cast<int64_t>(pipelines_.size()); }
  /// Makes the video with all ranks, as Pipeline::generate() does with one. `request` must resolve to `plan`. `run` is
  /// for rank 0, which is the caller's thread; this function sets the run's group. Rank 0 encodes the text while the
  /// other ranks load. Transformers and decoders stay loaded. Throws rank 0's exception, or an Error that names the
  /// rank that failed. After an exception, the next call starts all ranks afresh.
  Outcome generate(const Request& request, const Plan& plan, const Inputs& inputs, const Run& run);

 private:
  class ThreadRank;
  void start();
  void stop() noexcept;

  std::vector<std::shared_ptr<Pipeline>> pipelines_;
  std::vector<std::unique_ptr<ThreadRank>> members_;  // by rank; empty until started
};

}  // namespace sparsereel::models
