// Renders planned rows one after another; a video is encoded while the next one is denoised.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "app/commands/batch/manifest.h"
#include "app/commands/batch/plan.h"
#include "app/outputs.h"
#include "app/progress.h"

namespace sparsereel::app::sets {

/// What came of a share so far.
struct Tally {
  int64_t rows = 0;      // of the whole set
  int64_t share = 0;     // of this share
  int64_t skipped = 0;   // finished by earlier runs
  int64_t rendered = 0;  // by this one
  std::vector<const PlannedRow*> failed;
  std::vector<std::string> told;          // warnings that were printed before the work
  std::vector<std::string> warnings;      // and those that came of it
  std::map<std::string, double> seconds;  // by stage, summed over the videos of this run
};

class Renderer {
 public:
  Renderer(ManifestWriter& manifest, Progress& progress, Tally& tally);

  /// Renders rows of one pipeline_key(). Embeddings come first, of all rows; then the text encoder makes room. A row
  /// that fails leaves the others alone. Throws models::DiskError where the disk takes no more, Error where the
  /// manifest cannot be written, and models::Cancelled; the video that was being written is then finished.
  void render(const std::vector<PlannedRow*>& rows, models::Pipeline& pipeline);
  /// Opens or loads what rows of one pipeline_key() share. Where it fails and they name a model or device of their own,
  /// they have failed, and it is false; an error of what the command names is thrown on.
  bool prepare(const std::vector<PlannedRow*>& rows, const std::function<void()>& part);
  /// Records a row that failed, or that was bad from the start.
  void fail(const PlannedRow& row);
  /// Passes over a row that `finished` says is done. Where the row has another last line, or the set was another, the
  /// line is written anew: the last word on each row counts.
  void skip(const PlannedRow& row, const ManifestEntry& finished, const std::vector<ManifestEntry>& entries);

 private:
  /// One video on its way to the disk.
  struct Written {
    PlannedRow* row = nullptr;  // its cause says why it could not be written
    std::map<std::string, double> seconds;
    std::vector<std::string> warnings;
  };

  void load(const std::vector<PlannedRow*>& rows, models::Pipeline& pipeline);
  void encode(const std::vector<PlannedRow*>& rows, models::Pipeline& pipeline);
  void render_row(PlannedRow& row, models::Pipeline& pipeline);
  models::GenerateResult generate(PlannedRow& row, models::Pipeline& pipeline, KeptLatents& kept);
  models::GenerateObserver observe(const PlannedRow& row);
  Written write(PlannedRow& row, const models::GenerateResult& result, KeptLatents& kept);
  nlohmann::json write_files(const PlannedRow& row, const models::GenerateResult& result, KeptLatents& kept,
                             Written& written) const;
  void collect();
  void show_progress();
  nlohmann::json line(const PlannedRow& row, const char* state) const;

  ManifestWriter& manifest_;
  Progress& progress_;
  Tally& tally_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<bool> write_failed_ = false;
  std::future<Written> written_;  // last: it is waited for before the rest goes
};

}  // namespace sparsereel::app::sets
