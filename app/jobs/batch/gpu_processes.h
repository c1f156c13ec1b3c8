// Renders a set on several GPUs; each GPU, or group of GPUs, makes one video at a time. This process holds the queue of
// rows. It starts a process for each GPU or group, and gives rows to each process that is ready. Each process records
// its finished rows in a manifest, so that they are not lost if a GPU fails. In a group, only the process of the first
// GPU communicates with this process.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/jobs/batch/plan.h"
#include "app/jobs/batch/render.h"
#include "app/ranks/asked_ranks.h"
#include "app/ranks/children.h"

namespace sparsereel::app::sets {

/// Resolved rows that are left to render, one group per pipeline.
using RowGroups = std::vector<std::vector<VideoTask*>>;

/// The processes of the GPUs, which wait for rows.
class GpuProcesses {
 public:
  /// Starts a process for each concurrent video, with this process's command line and set.
  GpuProcesses(const std::vector<GpusOfAVideo>& gpus, const BatchOptions& options);
  ~GpuProcesses();
  GpuProcesses(const GpuProcesses&) = delete;
  GpuProcesses& operator=(const GpuProcesses&) = delete;

  /// Renders the rows and adds their outcome to the tally. Throws Error if no process is left, or if the disk is full
  /// or broken. Throws models::Cancelled if the user interrupts the run.
  void render(const RowGroups& groups, ManifestWriter& manifest, Progress& progress, Tally& tally);

 private:
  class Run;

  BatchOptions options_;
  std::vector<std::string> names_;   // names_[i]: devices of process i + 1, joined by "+"
  std::vector<models::Link> links_;  // links_[i]: to process i + 1
  std::vector<std::string> ends_;    // ends_[i]: how process i + 1 ended
  std::mutex mutex_;                 // guards ends_
  std::unique_ptr<Children> children_;
};

/// Copies standard input to memory, so that each GPU's process can read it from its beginning. Call this before
/// anything reads standard input.
void keep_standard_input();

}  // namespace sparsereel::app::sets
