// The workers of a server: one for each GPU, or for each group of GPUs. They share one queue, first in, first out.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "app/serve/worker.h"

namespace sparsereel::app::serve {

class Workers {
 public:
  /// Makes a worker for each of `start_makers`.
  Workers(const WorkerParts& parts, const std::vector<Worker::StartMaker>& start_makers);

  void start();
  /// True once all workers have opened the model. Ignores workers that have failed since then.
  bool is_ready() const;
  /// Returns the reason why the server cannot go on: a worker could not open the model, or all workers have failed.
  /// Null if it can.
  std::exception_ptr failure() const;
  /// Warns of workers that have failed since the last call, if others go on.
  void warn_of_failures();
  /// Returns the newest preview of a video, as a PNG; empty if no worker has one.
  std::string preview(const std::string& id) const;
  /// Lets idle workers look at the queue again.
  void wake();
  /// Cancels the video if it runs, as Worker::cancel() does. Returns false if it does not run.
  bool cancel(const std::string& id);
  /// Saves the finished steps of the running videos, and waits for all workers. The next server continues the videos.
  void stop();

 private:
  std::vector<std::unique_ptr<Worker>> all_;
  std::vector<bool> told_;  // by worker: true if a warning of its failure was printed
};

}  // namespace sparsereel::app::serve
