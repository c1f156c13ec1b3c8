// Groups the videos of a set by model and size, and describes each group.
#include "app/jobs/batch/dry_run.h"

#include <algorithm>
#include <iostream>

#include "app/called_program.h"
#include "app/commands/dry_run.h"
#include "app/counted.h"
#include "app/jobs/batch/finished.h"
#include "app/jobs/dry_run.h"
#include "app/jobs/write.h"
#include "app/terminal.h"

namespace sparsereel::app::sets {
namespace {

/// Videos of one model that differ only in text and seed.
struct SizeGroup {
  nlohmann::json video;  // expected_video() of the first video, without its output and seed
  nlohmann::json memory;
  int64_t videos = 0, done = 0;
};

/// The videos that one pipeline makes.
struct ModelGroup {
  nlohmann::json model;
  std::vector<SizeGroup> sizes;
};

class Foresight {
 public:
  Foresight(SetPlan& plan, const BatchOptions& options, const Share& share) : options_(options) {
    if (std::filesystem::is_directory(options.folder)) entries_ = read_manifests(options.folder, warnings_);
    FinishedVideos finished(entries_, options.folder);
    std::vector<VideoTask*> left;
    for (const std::vector<VideoTask*>& rows : groups_of(plan.rows)) resolve(rows, finished, left);
    if (share.size == 1)
      for (const MovedVideo& moved : finished.find_moved(left)) done_.insert(moved.row);
    std::erase_if(left, [this](const VideoTask* row) { return done_.contains(row); });
    if (std::filesystem::is_directory(options.folder))
      for (VideoTask* row : left) check_row_outputs(*row);
    for (const std::string& warning : early_warnings(left)) warnings_.push_back(warning);
    for (const auto& [pipeline, rows] : opened_) group(*pipeline, rows);
    for (const VideoTask& row : plan.rows)
      if (row.failure) failed_.push_back(&row);
  }

  const std::vector<ModelGroup>& models() const { return models_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::vector<const VideoTask*>& failed() const { return failed_; }
  int64_t done() const { return std::ssize(done_); }
  const char* state_of(const VideoTask& row) const {
    return row.failure ? "would fail" : done_.contains(&row) ? "done" : "to make";
  }

 private:
  void resolve(const std::vector<VideoTask*>& rows, FinishedVideos& finished, std::vector<VideoTask*>& left) {
    if (std::ranges::all_of(rows, [](const VideoTask* row) { return row->failure.has_value(); })) return;
    std::shared_ptr<models::Pipeline> pipeline;
    try {
      models::start_device(rows.front()->options.request.device);
      pipeline = models::Pipeline::open(open_model(rows.front()->options.run), rows.front()->options.request);
      pipeline->check_weights(
          std::ranges::any_of(rows, [](const VideoTask* row) { return row->options.request.has_images(); }));
    } catch (const Error& error) {
      for (VideoTask* row : rows) row->fail(error);
      return;
    }
    opened_.emplace_back(pipeline, rows);
    for (VideoTask* row : rows) {
      resolve_row(*row, *pipeline, files_, options_.gpus_per_video);
      if (row->failure) continue;
      if (finished.find(*row) != nullptr)
        done_.insert(row);
      else
        left.push_back(row);
    }
  }

  /// Adds each row to the group of its size. Rows that would fail are counted too, if their size is known.
  void group(const models::Pipeline& pipeline, const std::vector<VideoTask*>& rows) {
    ModelGroup& group = models_.emplace_back();
    for (VideoTask* row : rows) {
      if (row->failure && !plan_anyway(*row, pipeline)) continue;
      if (group.model.is_null()) group.model = expected_model(row->options.run, pipeline, row->plan);
      nlohmann::json video = expected_video(*row);
      for (const char* own : {"output", "seed", "resumed_at_step"}) video.erase(own);
      auto same = std::ranges::find(group.sizes, video, &SizeGroup::video);
      if (same == group.sizes.end()) {
        const nlohmann::json memory = expected_memory(row->plan, pipeline, options_.gpus_per_video);
        same = group.sizes.insert(same, {.video = std::move(video), .memory = memory});
      }
      ++same->videos;
      if (done_.contains(row)) ++same->done;
    }
    if (group.sizes.empty()) models_.pop_back();
  }

  static bool plan_anyway(VideoTask& row, const models::Pipeline& pipeline) {
    try {
      row.plan = pipeline.resolve_anywhere(row.options.request);
      return true;
    } catch (const Error&) {  // the row's failure already says why
      return false;
    }
  }

  const BatchOptions& options_;
  std::vector<ManifestEntry> entries_;
  std::vector<std::string> warnings_;
  LoadedFiles files_;
  std::vector<std::pair<std::shared_ptr<models::Pipeline>, std::vector<VideoTask*>>> opened_;
  std::set<const VideoTask*> done_;
  std::vector<const VideoTask*> failed_;
  std::vector<ModelGroup> models_;
};

nlohmann::json report_of(const ModelGroup& group) {
  nlohmann::json report = {{"model", group.model}, {"sizes", nlohmann::json::array()}};
  for (const SizeGroup& size : group.sizes) {
    nlohmann::json row = size.video;
    row.update({{"videos", size.videos}, {"done", size.done}, {"memory", size.memory}});
    report["sizes"].push_back(std::move(row));
  }
  return report;
}

std::string group_text(const ModelGroup& group) {
  std::string text = model_text(group.model);
  for (const SizeGroup& size : group.sizes) {
    text += counted(size.videos, "video") + (size.done > 0 ? " (" + std::to_string(size.done) + " done)" : "") +
            ", each " + video_text(size.video) + "\n";
    if (size.video.contains("choice")) text += "  " + size.video.at("choice").get<std::string>() + "\n";
    text += memory_text(size.memory);
  }
  return text;
}

std::optional<Error> failure_of(const Foresight& foresight) {
  const std::vector<const VideoTask*>& failed = foresight.failed();
  if (failed.empty()) return {};
  if (failed.size() == 1) return *failed.front()->failure;
  for (const VideoTask* row : failed)
    std::cerr << one_line(row->failure->what()) << "\n  remedy: " << indented_lines(as_called(row->failure->remedy()))
              << "\n";
  return bad_input(counted(std::ssize(failed), "row") + " would fail",
                   "correct these rows; a run without --dry-run makes the other rows even if these fail");
}

}  // namespace

void show_set(SetPlan& plan, const BatchOptions& options, const Share& share, int64_t rows, RunReport& report) {
  const Foresight foresight(plan, options, share);
  const int64_t own = std::ssize(plan.rows), failed = std::ssize(foresight.failed());
  const int64_t left = own - foresight.done() - failed;
  nlohmann::json& content = report.content;
  content["dry_run"] = true;
  content["set"] = {{"rows", rows}, {"share", own},         {"rank", share.rank},      {"shares", share.size},
                    {"left", left}, {"would_fail", failed}, {"done", foresight.done()}};
  std::string text = kDryRunHead + options.folder.string() + ": " + counted(own, "row") +
                     (own < rows ? " of " + std::to_string(rows) : "") + ", " + std::to_string(foresight.done()) +
                     " done, " + std::to_string(left) + " to make, " + std::to_string(failed) + " would fail\n";
  for (const ModelGroup& group : foresight.models()) {
    content["models"].push_back(report_of(group));
    text += group_text(group);
  }
  for (const VideoTask& row : plan.rows) {
    content["videos"].push_back({{"place", row.place}, {"output", name_of(row)}, {"state", foresight.state_of(row)}});
    if (row.failure) content["videos"].back()["cause"] = row.failure->what();
  }
  content["warnings"] = foresight.warnings();
  print_warnings(foresight.warnings());
  end_dry_run(text + as_called(kNoTime), failure_of(foresight), report);
}

}  // namespace sparsereel::app::sets
