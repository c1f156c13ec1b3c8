// Renders planned rows and keeps the manifest.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/jobs/batch/finished.h"
#include "app/jobs/batch/manifest.h"
#include "app/jobs/batch/plan.h"
#include "app/jobs/job.h"
#include "app/jobs/preset_lines.h"
#include "app/jobs/progress.h"
#include "models/request/run.h"

namespace sparsereel::app::sets {

/// What came of a share so far.
struct Tally {
  int64_t rows = 0;      // of the whole set
  int64_t share = 0;     // of this share
  int64_t skipped = 0;   // finished by earlier runs
  int64_t moved = 0;     // of these, under another name
  int64_t rendered = 0;  // by this one
  std::vector<const Video*> failed;
  std::vector<std::string> told;          // warnings that were printed before the work
  std::vector<std::string> warnings;      // and those that came of it
  std::map<std::string, double> seconds;  // by stage, summed over the videos of this run
  PresetLines presets;                    // of these
};

class Renderer : private JobUser {
 public:
  /// `cancelled`, `world`: as of Job. `check_machine` is called before a failure is recorded: where it throws, none is.
  Renderer(ManifestWriter& manifest, Progress& progress, Tally& tally, std::function<bool()> cancelled,
           std::function<void()> check_machine = {}, std::function<World*()> world = {});

  /// Renders rows of one pipeline_key(); a row that fails leaves the others alone. Throws as Job::run(), and Error
  /// where the manifest cannot be written.
  void render(std::span<Video* const> rows, models::Pipeline& pipeline);
  /// Opens or loads what rows of one pipeline_key() share. Where it fails and they name a model or device of their own,
  /// they have failed, and it is false; an error of what the command names is thrown on.
  bool prepare(std::span<Video* const> rows, const std::function<void()>& part);
  /// Records a row that failed, or that was bad from the start.
  void failed(const Video& row) override;
  /// Passes over a row that `finished` says is done. Where the row has another last line, or the set was another, the
  /// line is written anew: the last word on each row counts.
  void skip(const Video& row, const ManifestEntry& finished, const std::vector<ManifestEntry>& entries);
  /// The same of one whose video stands under another name: it gets the row's. The row fails where a video that is
  /// rendered could not be written there.
  void move(const MovedVideo& moved);

 private:
  void make(std::span<Video* const> rows, models::Pipeline& pipeline);
  models::RunObserver& observer() override { return shown_; }
  void begin(const Video& row) override;
  void warn(const Video& row, const std::string& warning) override;
  void written(const Video& row, const Made& made) override;
  void done(const Video& row) override;
  nlohmann::json line(const Video& row, const char* state) const;
  nlohmann::json line(const Video& row, const ManifestEntry& finished) const;

  ManifestWriter& manifest_;
  Progress& progress_;
  ShownRun shown_{progress_};
  Tally& tally_;
  std::function<void()> check_machine_;
  std::optional<std::chrono::steady_clock::time_point> start_;  // of the first video
  std::map<std::string, double> seconds_;                       // of the video that was written last
  Job job_;                                                     // last: it is waited for before the rest goes
};

}  // namespace sparsereel::app::sets
