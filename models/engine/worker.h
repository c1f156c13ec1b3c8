// How ranks make a video together. Rank 0 leads. Each other rank is a worker: it hears what to make, agrees on the
// recipe, makes its part and tells what went wrong. A rank is a process, or a thread of a library's caller.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/engine/pipeline.h"
#include "models/request/outcome.h"
#include "models/request/plan.h"
#include "models/request/request.h"
#include "models/request/run.h"

namespace sparsereel {
class Error;
}

namespace sparsereel::models {

class Group;
class SocketGroup;

/// One rank of several, as the thread that makes its part of the videos sees it.
class Rank {
 public:
  virtual ~Rank() = default;
  /// Carries what the ranks tell each other.
  virtual SocketGroup& control() = 0;
  /// Carries the tensors that they exchange while they make a video.
  virtual Group& group() = 0;
  /// Throws Error where another rank that this one needs has failed or is gone.
  virtual void check() const = 0;
  /// Rank 0 says whether its next work needs the others.
  virtual void need_others(bool /*need*/) {}
  /// Tells the others why this rank stops.
  virtual void end(const Error& error) noexcept = 0;
};

/// Called by rank 0: tells the workers which model the next videos are made of, so that they load it. `model`: an
/// object that WorkerTasks::open understands.
void tell_model(Rank& rank, nlohmann::json model);

/// Called by rank 0: makes the video with all workers, as Pipeline::generate() does alone. `request` resolves to `plan`
/// on every rank. Whatever this throws ends the group, except Cancelled where all ranks have agreed to stop.
Outcome lead_video(Rank& rank, Pipeline& pipeline, const Request& request, const Plan& plan, const Inputs& inputs,
                   const Run& run, Outcome begun = {});

/// Called by rank 0: there are no more videos.
void tell_end(Rank& rank);

/// What differs between workers.
struct WorkerTasks {
  std::string device;  // of this rank, in place of the one that rank 0's requests name
  /// Opens and loads the model that rank 0 tells of.
  std::function<std::shared_ptr<Pipeline>(const nlohmann::json& model)> open;
  std::function<bool()> cancelled = {};  // as in Run
};

/// Called by every other rank: does what rank 0 tells until that says that it was all. Throws whatever ends this rank,
/// which the caller hands to Rank::end().
void work(Rank& rank, const WorkerTasks& tasks);

/// Returns a number of a message of rank 0. Throws Error where it is not from `least` to `most`.
int64_t told_number(const nlohmann::json& message, const char* name, int64_t least, int64_t most);

/// A request as the texts of its fields, as a message holds it.
nlohmann::json json_of(const Request& request);

/// The request that json_of() made, for this device.
Request request_of(const nlohmann::json& json, const std::string& device);

}  // namespace sparsereel::models
