// A GPU's process: takes rows from the queue's process and renders them.
#include "app/jobs/batch/gpu_work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/jobs/batch/gpu_line.h"
#include "app/jobs/batch/gpu_processes.h"
#include "app/jobs/batch/render.h"
#include "app/ranks/asked_ranks.h"
#include "app/ranks/team.h"
#include "models/engine/failure.h"
#include "models/files/atomic_file.h"
#include "models/layers/cpu_threads.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::sets {
namespace {

/// Renders the rows that the queue's process sends over the connection.
class GpuWork {
 public:
  GpuWork(const StartedRank& gpu, LineSocket& line, Team& team, SetPlan& plan, ManifestWriter& manifest, int64_t rows)
      : device_(gpu.device), line_(line), team_(team), plan_(plan), progress_(/*wanted=*/false), manifest_(manifest) {
    tally_.rows = rows;
    tally_.share = rows;
  }

  void run() {
    for (;;) {
      line_.send({{"ready", true}});
      const nlohmann::json message = line_.receive();
      if (message.is_null() || message.contains("stop")) return;
      std::vector<VideoTask*> rows;
      for (const int64_t row : message.at("rows").get<std::vector<int64_t>>())
        rows.push_back(&plan_.rows.at(static_cast<size_t>(row)));
      try {
        render(rows);
      } catch (const models::DiskError& error) {  // the disk is full for every GPU's process
        line_.send({{"failed", {{"cause", error.what()}, {"remedy", error.remedy()}}}});
        throw;
      }
    }
  }

 private:
  void render(std::vector<VideoTask*> rows) {
    for (VideoTask* row : rows) {
      const std::string device = row->settings.text("device", "auto");
      if (device == "auto" || device == "cuda") row->options.request.device = device_;
    }
    Renderer renderer(
        manifest_, progress_, tally_, [this] { return line_.is_ready(); }, [this] { check_gpu(); },
        [this] { return team_.ready(); });
    const std::string key = pipeline_key(*rows.front());
    if (key != key_ || !pipeline_) {
      pipeline_.reset();  // makes room for the next model's weights
      key_.clear();       // forgets the old pipeline, in case the next one cannot be opened
      const bool opened = renderer.prepare(rows, [&] {
        pipeline_ = models::Pipeline::open(open_model(rows.front()->options.run), rows.front()->options.request);
        if (team_.size() > 1) pipeline_->check_weights();  // bad weights would make the other ranks fail, too
        team_.use(rows.front()->options);
      });
      if (!opened) return;
      key_ = key;
    }
    for (VideoTask* row : rows) {
      resolve_row(*row, *pipeline_, files_, team_.size());
      check_ranks(*row);
      if (row->failure) renderer.failed(*row);
    }
    std::erase_if(rows, [](const VideoTask* row) { return row->failure.has_value(); });
    if (!rows.empty()) renderer.render(rows, *pipeline_);
  }

  /// Checks the row before the other ranks begin with it.
  void check_ranks(VideoTask& row) const {
    if (row.failure) return;
    const auto failure = failure_of_part([&] {
      if (team_.size() > 1 && row.options.request.device != device_)
        throw bad_option("device",
                         "of this row is " + row.options.request.device + ", but --gpus chooses the GPUs of its ranks",
                         "leave the row's device out, or make this row without --gpus-per-video");
      pipeline_->check_ranks(row.plan, team_.size());
    });
    if (failure) row.fail(*failure);
  }

  /// Throws if the GPU or another rank is broken. The row that failed is then given to another GPU's process.
  void check_gpu() const {
    team_.after_failure();
    if (pipeline_) models::synchronize(pipeline_->device());
  }

  std::string device_, key_;
  LineSocket& line_;
  Team& team_;
  SetPlan& plan_;
  Progress progress_;
  Tally tally_;
  ManifestWriter& manifest_;
  LoadedFiles files_;
  std::shared_ptr<models::Pipeline> pipeline_;
};

}  // namespace

void render_on_this_gpu(const SetSettings& set, const BatchOptions& options, const std::vector<PromptRow>& rows,
                        const StartedRank& gpu) {
  for (const int link : {gpu.links.front().data, gpu.links.front().control})
    fcntl(link, F_SETFD, FD_CLOEXEC);  // a child that kept the socket would hide the end of this process
  LineSocket line(gpu.links.front().data);
  const Heartbeat heartbeat(line, heartbeat_for(find_group_limits(process_environment).call));
  const std::vector<GpusOfAVideo> gpus = gpus_of_videos(set.merged, options.gpus_per_video);
  models::share_host_memory(std::ssize(gpus));
  if (const auto threads = set.merged.whole("threads"))
    models::set_threads(static_cast<int>(*threads));
  else if (gpu.device == "cpu")
    models::set_threads(threads_of_each(std::ssize(gpus) * options.gpus_per_video));
  Team team(gpus.at(static_cast<size_t>(gpu.rank - 1)), at::get_num_threads(), options.gpus_per_video > 1);
  SetPlan plan = plan_rows(rows, set, options, {});
  ManifestWriter manifest(options.folder, gpu.rank);
  GpuWork(gpu, line, team, plan, manifest, static_cast<int64_t>(rows.size())).run();
  team.finish();
}

}  // namespace sparsereel::app::sets
