// Ranks that are threads of one process, each with a pipeline on a device of its own, for a library's caller who starts
// no processes. What breaks one GPU ends the video; the process stays.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/engine/pipeline.h"
#include "models/request/outcome.h"
#include "models/request/run.h"

namespace sparsereel::models {

/// The device of each of so many ranks of this process: see devices_of_ranks(). One rank has the device that is asked
/// for.
std::vector<std::string> devices_of_threads(int64_t ranks, const std::string& device);

class RankThreads {
 public:
  /// The pipelines are of one model, rank 0's first. Calls must not overlap.
  explicit RankThreads(std::vector<std::shared_ptr<Pipeline>> pipelines);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int64_t size() const { return static_cast<int64_t>(pipelines_.size()); }
  /// Makes the video with all of them, as Pipeline::generate() does alone. `request` resolves to `plan`. `run` is that
  /// of rank 0, the caller's thread, which encodes the text while the others load; its group is set here. Transformers
  /// and decoders stay loaded. Throws what rank 0 throws, or an Error that names the rank that failed; the next video
  /// is made as if nothing had been.
  Outcome generate(const Request& request, const Plan& plan, const Inputs& inputs, const Run& run);

 private:
  class Member;
  void start();
  void stop() noexcept;

  std::vector<std::shared_ptr<Pipeline>> pipelines_;
  std::vector<std::unique_ptr<Member>> members_;  // by rank; empty: not started
};

}  // namespace sparsereel::models
