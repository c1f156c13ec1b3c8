// Renders planned rows and writes the manifest.
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

/// The results so far, for the share of the set that this process renders.
struct Tally {
  int64_t rows = 0;      // rows of the whole set
  int64_t share = 0;     // rows of this share
  int64_t skipped = 0;   // finished by earlier runs
  int64_t moved = 0;     // skipped videos that were found under another name
  int64_t rendered = 0;  // by this run
  std::vector<const VideoTask*> failed;
  std::vector<std::string> told;          // warnings printed before the work
  std::vector<std::string> warnings;      // warnings from the work
  std::map<std::string, double> seconds;  // by stage, summed over the videos of this run
  PresetLines presets;                    // presets of the videos of this run
};

class Renderer : private JobUser {
 public:
  /// `cancelled` and `world` are passed to Job. The renderer calls `check_machine` before it records a failure; if
  /// `check_machine` throws, no failure is recorded.
  Renderer(ManifestWriter& manifest, Progress& progress, Tally& tally, std::function<bool()> cancelled,
           std::function<void()> check_machine = {}, std::function<World*()> world = {});

  /// Renders rows with the same pipeline_key(). A row that fails does not stop the others. Throws like Job::run(), and
  /// Error if the manifest cannot be written.
  void render(std::span<VideoTask* const> rows, models::Pipeline& pipeline);
  /// Runs `part`, which opens or loads what rows with the same pipeline_key() share. If it fails and the rows name
  /// their own model or device, records their failure and returns false. Rethrows errors of a model or device that the
  /// command line names.
  bool prepare(std::span<VideoTask* const> rows, const std::function<void()>& part);
  /// Records the failure of a row, which may have been invalid from the start.
  void failed(const VideoTask& row) override;
  /// Skips a row because `finished`, a line of a manifest, says that it is done. Readers use the last line of each row.
  /// Therefore the line is written again if it is not the row's last line in `entries`, or if it was written when the
  /// set had more rows than now.
  void skip(const VideoTask& row, const ManifestEntry& finished, const std::vector<ManifestEntry>& entries);
  /// Skips a row whose video exists under another name, and renames the video to the row's name. The row fails if no
  /// video could be written under that name.
  void move(const MovedVideo& moved);

 private:
  void make(std::span<VideoTask* const> rows, models::Pipeline& pipeline);
  models::RunObserver& observer() override { return shown_; }
  void begin(const VideoTask& row) override;
  void warn(const VideoTask& row, const std::string& warning) override;
  void written(const VideoTask& row, const Made& made) override;
  void done(const VideoTask& row) override;
  nlohmann::json line(const VideoTask& row, const char* state) const;
  nlohmann::json line(const VideoTask& row, const ManifestEntry& finished) const;

  ManifestWriter& manifest_;
  Progress& progress_;
  ShownRun shown_{progress_};
  Tally& tally_;
  std::function<void()> check_machine_;
  std::optional<std::chrono::steady_clock::time_point> start_;  // when the first video began
  std::map<std::string, double> seconds_;                       // seconds by stage of the video written last
  Job job_;  // last member: its destructor waits for a video that uses the other members
};

}  // namespace sparsereel::app::sets
