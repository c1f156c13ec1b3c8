// Ranks that are threads of one process, each with a pipeline on a device of its own: for who has no processes to
// start. What breaks one card ends the video; the process stays.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/engine/pipeline.h"
#include "models/request/outcome.h"
#include "models/request/run.h"

namespace sparsereel::models {

class SocketGroup;

/// cuda:0 and on for so many ranks; as many times the CPU beside device cpu. Throws Error (field gpus, or device) where
/// there are fewer cards, or one is named.
std::vector<std::string> devices_of_threads(int64_t ranks, const std::string& device);

class RankThreads {
 public:
  /// Of one model, rank 0's first. Calls must not overlap.
  explicit RankThreads(std::vector<std::shared_ptr<Pipeline>> pipelines);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int64_t size() const { return static_cast<int64_t>(pipelines_.size()); }
  /// Pipeline::generate() by all of them. `run` is rank 0's, which is the caller's thread and encodes the text while
  /// the others load; its group is set here. Denoisers and decoders stay loaded. What one throws ends the video for all
  /// and is thrown here, or what names that rank; the next video is made as if nothing had been.
  Outcome generate(const Plan& plan, const Inputs& inputs, const Run& run);

 private:
  class Video;
  void connect();

  std::vector<std::shared_ptr<Pipeline>> pipelines_;
  std::vector<std::shared_ptr<SocketGroup>> controls_;  // by rank, where groups are or are made
  std::vector<std::shared_ptr<Group>> groups_;          // by rank; empty: to be made
};

}  // namespace sparsereel::models
