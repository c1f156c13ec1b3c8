// Makes a video on several ranks. Rank 0 leads. Each other rank is a worker: it receives a request, checks that its
// recipe equals rank 0's, takes part in the computation and reports errors. A rank is a process, or a thread of the
// library's caller.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/engine/pipeline.h"
#include "models/request/outcome.h"
#include "models/request/request.h"
#include "models/request/run.h"

namespace sparsereel {
class Error;
}

namespace sparsereel::models {

class Group;
class SocketGroup;

/// The interface to one of several ranks, for the thread that computes this rank's share of the videos.
class Rank {
 public:
  virtual ~Rank() = default;
  /// Returns the group that carries messages between the ranks.
  virtual SocketGroup& control() = 0;
  /// Returns the group that carries the tensors that ranks exchange while they make a video.
  virtual Group& group() = 0;
  /// Throws Error if another rank, which this rank needs, has failed or is gone.
  virtual void check() const = 0;
  /// Rank 0 calls this to say whether its next work needs the other ranks. While rank 0 needs no other rank, check()
  /// may ignore failures of the others.
  virtual void need_others(bool /*need*/) {}
  /// Tells the other ranks why this rank stops.
  virtual void end(const Error& error) noexcept = 0;
};

/// Rank 0 calls this. Tells the workers which model makes the next videos, so that they load it. `model` is an object
/// that WorkerTasks::open understands.
void send_model(Rank& rank, nlohmann::json model);

/// Rank 0 calls this. Makes the video with all workers; the arguments are those of Pipeline::generate(). `request` must
/// resolve to `plan` on every rank. Any exception ends the group, except Cancelled after all ranks have agreed to stop.
Outcome lead_video(Rank& rank, Pipeline& pipeline, const Request& request, const Plan& plan, const Inputs& inputs,
                   const Run& run, Outcome begun = {});

/// Rank 0 calls this. Tells the workers that there are no more videos.
void send_end(Rank& rank);

struct WorkerTasks {
  std::string device;  // this rank's device, which replaces the device in rank 0's requests
  /// Opens and loads the model that rank 0 names.
  std::function<std::shared_ptr<Pipeline>(const nlohmann::json& model)> open;
  std::function<bool()> cancelled = {};  // as in Run
};

/// Every other rank calls this. Makes the videos that rank 0 asks for, until rank 0 says that there are no more. Throws
/// the exception that ends this rank; the caller passes it to Rank::end().
void work(Rank& rank, const WorkerTasks& tasks);

/// Returns the number called `name` in rank 0's message. Throws Error if the number is below `least` or above `most`.
int64_t told_number(const nlohmann::json& message, const char* name, int64_t least, int64_t most);

/// Converts a request to a message: an object with the text of each field.
nlohmann::json json_of(const Request& request);

/// Converts a message of json_of() back to a request, for this device.
Request request_of(const nlohmann::json& json, const std::string& device);

}  // namespace sparsereel::models
