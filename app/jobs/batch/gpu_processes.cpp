// The queue's process: starts the GPUs' processes, hands out rows and collects the results from their manifests.
#include "app/jobs/batch/gpu_processes.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "app/counted.h"
#include "app/jobs/batch/gpu_line.h"
#include "app/jobs/batch/manifest_reader.h"
#include "app/jobs/batch/row_queue.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/report.h"
#include "app/json_fields.h"
#include "app/options/text_file.h"
#include "app/ranks/asked_ranks.h"
#include "models/files/atomic_file.h"
#include "models/files/temporary.h"
#include "models/parallel/patience.h"
#include "models/parallel/socket_group.h"
#include "models/request/run.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::vector<std::vector<models::Link>> links_of_gpus(size_t count) {
  std::vector<std::vector<models::Link>> links(count + 1, std::vector<models::Link>(count + 1));
  for (size_t i = 1; i <= count; ++i) {
    const auto pair = models::local_links(2);
    links[0][i] = pair[0][1];
    links[i][0] = pair[1][0];
  }
  return links;
}

/// Returns the file descriptor made by keep_standard_input(); -1 if there is none.
int& kept_input() {
  static int descriptor = -1;
  return descriptor;
}

}  // namespace

void keep_standard_input() {
  const std::string text = read_input("-", kMostSetBytes);
  const int kept = memfd_create("standard input", MFD_CLOEXEC);
  if (kept < 0 || models::write_all(kept, text.data(), text.size()) != 0)
    throw run_failure("not enough memory for the prompt set that standard input holds", "give the set as a file");
  lseek(kept, 0, SEEK_SET);
  dup2(kept, STDIN_FILENO);
  kept_input() = kept;
}

GpuProcesses::GpuProcesses(const std::vector<GpusOfAVideo>& gpus, const BatchOptions& options)
    : options_(options), ends_(gpus.size()) {
  const auto links = links_of_gpus(gpus.size());
  std::vector<std::string> devices_from_one = {""};
  for (const GpusOfAVideo& each : gpus) {
    devices_from_one.push_back(each.front());
    names_.push_back(name_of_gpus(each));
  }
  links_.assign(links[0].begin() + 1, links[0].end());
  children_ = std::make_unique<Children>(links, devices_from_one, own_command_line(), kept_input());
  for (size_t i = 1; i < links.size(); ++i) models::close_links(links[i]);
  children_->watch([this](int64_t rank, const std::string& how) {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<size_t>(rank - 1)] = how;
  });
}

GpuProcesses::~GpuProcesses() {
  models::close_links(links_);  // processes that wait for rows then end
  children_.reset();
}

/// The work of one call of render().
class GpuProcesses::Run {
 public:
  Run(GpuProcesses& gpus, const RowGroups& groups, ManifestWriter& manifest, Progress& progress, Tally& tally)
      : processes_(gpus), manifest_(manifest), progress_(progress), tally_(tally), queue_(queued(groups)) {
    for (size_t i = 0; i < processes_.links_.size(); ++i)
      processes_of_run_.push_back(
          {.socket = LineSocket(processes_.links_[i].data),
           .manifest = ManifestReader(manifest_path(processes_.options_.folder, static_cast<int64_t>(i) + 1)),
           .patience = models::Patience(limits_.start)});
    for (const std::vector<VideoTask*>& group : groups)
      for (VideoTask* row : group) rows_[row->index] = row;
  }

  void run() {
    while (!queue_.is_done()) {
      if (living() == 0)
        throw run_failure("no process is left: " + last_end_,
                          "read their messages and those of dmesg, then run the same command again");
      wait();
      end_the_silent();
      if (interrupted()) stop(std::make_exception_ptr(models::Cancelled{}));
      if (fatal_) break;
    }
    if (fatal_) stop(std::make_exception_ptr(Error(*fatal_)));
    for (GpuProcess& gpu : processes_of_run_)
      if (gpu.lives) gpu.socket.send({{"stop", true}});
    tally_.seconds["render"] += std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  struct GpuProcess {
    LineSocket socket;
    ManifestReader manifest;
    models::Patience patience;  // time left until the process must send a message
    bool lives = true, no_effect = false;
    Identities made = {};  // identities of its finished rows, by video file
  };

  static std::vector<QueuedRow> queued(const RowGroups& groups) {
    std::vector<QueuedRow> rows;
    for (size_t i = 0; i < groups.size(); ++i)
      for (const VideoTask* row : groups[i]) rows.push_back({row->index, i});
    return rows;
  }

  int64_t living() const { return std::ranges::count(processes_of_run_, true, &GpuProcess::lives); }

  /// Waits until a process sends a message, at most 200 ms. Then handles all messages and new lines of manifests, and
  /// hands out rows.
  void wait() {
    std::vector<pollfd> sockets;
    for (const GpuProcess& gpu : processes_of_run_)
      sockets.push_back({.fd = gpu.lives ? gpu.socket.number() : -1, .events = POLLIN, .revents = 0});
    poll(sockets.data(), sockets.size(), 200);
    for (size_t i = 0; i < sockets.size(); ++i) {
      try {
        hear_all(i, sockets[i].revents != 0);
      } catch (const Error& error) {  // the process sent bytes that are no message
        processes_.children_->kill(static_cast<int64_t>(i) + 1);
        bury(i, error.what());
      }
      read_manifest(i);
    }
    for (size_t i = 0; i < processes_of_run_.size(); ++i) give_rows(i);
  }

  void hear_all(size_t i, bool is_ready) {
    GpuProcess& gpu = processes_of_run_[i];
    if (is_ready) hear(i, gpu.socket.receive());
    while (gpu.lives) {
      const auto message = gpu.socket.take();
      if (!message) return;
      hear(i, *message);
    }
  }

  void hear(size_t i, const nlohmann::json& message) {
    GpuProcess& gpu = processes_of_run_[i];
    if (message.is_null()) return bury(i);
    gpu.patience = models::Patience(limits_.call);
    if (message.contains("ready")) take_back(i);
    if (const auto failed = message.find("failed"); failed != message.end())
      fatal_ = run_failure(text_of(*failed, "cause"), text_of(*failed, "remedy"));
  }

  /// Called when a process is ready for new rows. Its manifest must have a line for each row that it was given before;
  /// a missing line is fatal.
  void take_back(size_t i) {
    GpuProcess& gpu = processes_of_run_[i];
    gpu.no_effect = true;
    try {
      gpu.manifest.begin();
    } catch (const Error& error) {
      fatal_ = error;
    }
    read_manifest(i);
    if (const std::vector<int64_t> rows = queue_.rows_of(static_cast<int64_t>(i)); !rows.empty() && !fatal_)
      fatal_ = gpu.manifest.changed("lost the line of " + rows_.at(rows.front())->place);
  }

  /// Kills processes that have been silent for too long, because a process that is stopped or hangs in a system call
  /// never ends.
  void end_the_silent() {
    for (size_t i = 0; i < processes_of_run_.size(); ++i) {
      GpuProcess& gpu = processes_of_run_[i];
      if (!gpu.lives || gpu.patience.step().count() > 0) continue;
      processes_.children_->kill(static_cast<int64_t>(i) + 1);
      const auto seconds = std::chrono::duration<double>(gpu.patience.limit()).count();
      bury(i, "did not answer within " + seconds_text(seconds));
    }
  }

  void give_rows(size_t i) {
    GpuProcess& gpu = processes_of_run_[i];
    if (!gpu.lives || !gpu.no_effect || fatal_) return;
    const std::vector<int64_t> rows = queue_.take(static_cast<int64_t>(i), living());
    if (rows.empty()) return;
    gpu.no_effect = false;
    gpu.socket.send({{"rows", rows}});
  }

  /// Gives a dead process's rows to the other processes, except rows that its manifest lists. `why` is the reason; if
  /// it is empty, the reason is the way in which the process ended.
  void bury(size_t i, const std::string& why = {}) {
    GpuProcess& gpu = processes_of_run_[i];
    gpu.lives = false;
    read_manifest(i);
    remove_checkpoints(gpu.made);  // it may have ended between writing the manifest's line and removing these
    std::string how;
    for (int attempt = 0; attempt < 50 && how.empty(); ++attempt) {
      {
        const std::lock_guard lock(processes_.mutex_);
        how = processes_.ends_[i];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    remove_half_written();  // the process is gone and uses no file any more
    if (!why.empty()) how = why;
    last_end_ = processes_.names_[i] + " " + (how.empty() ? "ended" : how);
    tally_.warnings.push_back(last_end_ + ": its rows went to the other processes");
    for (const int64_t row : queue_.lost(static_cast<int64_t>(i))) give_up(*rows_.at(row));
  }

  /// Removes temporary files of dead processes. Files of living ones stay.
  void remove_half_written() const {
    std::vector<fs::path> targets;
    for (const auto& [index, row] : rows_)
      for (const fs::path& file : files_written(row->options)) targets.push_back(file);
    models::remove_leftovers(targets);
  }

  void give_up(VideoTask& row) {
    row.fail(run_failure("two processes ended while they made this row's video; the last one: " + last_end_,
                         "put this row alone into a file and run that with --gpus 1"));
    tally_.failed.push_back(&row);
    manifest_.append({{"row", row.index},
                      {"rows", tally_.rows},
                      {"place", row.place},
                      {"output", name_of(row)},
                      {"state", "failed"},
                      {"identity", row.identity},
                      {"seed", row.options.request.seed},
                      {"finished", utc_now()},
                      {"version", SPARSEREEL_VERSION},
                      {"cause", row.failure->what()},
                      {"remedy", row.failure->remedy()}});
  }

  /// Adds the new lines of process i's manifest to the tally.
  void read_manifest(size_t i) {
    ManifestReader& manifest = processes_of_run_[i].manifest;
    try {
      const std::string text = manifest.new_lines();
      for (const ManifestEntry& entry : parse_manifest(text, manifest.path().string(), tally_.warnings))
        count(i, entry);
    } catch (const Error& error) {
      if (!fatal_) fatal_ = error;
    }
  }

  void count(size_t gpu, const ManifestEntry& entry) {
    const auto found = rows_.find(entry.row);
    if (found == rows_.end()) return;
    VideoTask& row = *found->second;
    queue_.finished(static_cast<int64_t>(gpu), entry.row);
    if (entry.state == "failed") {
      row.failure = run_failure(entry.cause, text_of(entry.line, "remedy"));
      tally_.failed.push_back(&row);
    } else {
      ++tally_.rendered;
      processes_of_run_[gpu].made[row.options.run.output] = row.identity;
      for (const auto& [stage, seconds] : entry.seconds) tally_.seconds[stage] += seconds;
      const auto cache = entry.line.find("cache");
      const bool cached = cache != entry.line.end() && cache->contains("computed_steps");
      tally_.presets.add(row, cached ? cache->at("computed_steps").get<int64_t>() : row.plan.num_inference_steps);
    }
    tell_warnings(row, entry);
    const auto here = tally_.rendered + static_cast<int64_t>(tally_.failed.size());
    progress_.set("set", tally_.skipped + here, tally_.share, here,
                  std::chrono::duration<double>(Clock::now() - start_).count());
    progress_.stage(processes_.names_[gpu]);
  }

  /// Adds the row's warnings to the tally, except those that were printed before the work.
  void tell_warnings(const VideoTask& row, const ManifestEntry& entry) {
    for (const auto& warning : entry.line.value("warnings", nlohmann::json::array()))
      if (warning.is_string() && std::ranges::find(row.told, warning.get<std::string>()) == row.told.end())
        tally_.warnings.push_back(row.place + ": " + warning.get<std::string>());
  }

  /// Asks all processes to stop and waits up to 30 s for their ends. Then reads their manifests and throws `why`.
  [[noreturn]] void stop(const std::exception_ptr& why) {
    for (GpuProcess& gpu : processes_of_run_)
      if (gpu.lives) gpu.socket.send({{"stop", true}});
    const auto end = Clock::now() + std::chrono::seconds(30);
    for (GpuProcess& gpu : processes_of_run_)
      while (gpu.lives && Clock::now() < end) {
        pollfd ready = {.fd = gpu.socket.number(), .events = POLLIN, .revents = 0};
        if (poll(&ready, 1, 200) > 0 && gpu.socket.receive().is_null()) gpu.lives = false;
      }
    for (size_t i = 0; i < processes_of_run_.size(); ++i) read_manifest(i);
    std::rethrow_exception(why);
  }

  static std::string seconds_text(double seconds) {
    std::ostringstream text;
    text << seconds << " s";
    return text.str();
  }

  GpuProcesses& processes_;
  const models::GroupLimits limits_ = find_group_limits(process_environment);
  ManifestWriter& manifest_;
  Progress& progress_;
  Tally& tally_;
  RowQueue queue_;
  std::vector<GpuProcess> processes_of_run_;
  std::map<int64_t, VideoTask*> rows_;
  Clock::time_point start_ = Clock::now();
  std::string last_end_;
  std::optional<Error> fatal_;  // an error that would hit all rows
};

void GpuProcesses::render(const RowGroups& groups, ManifestWriter& manifest, Progress& progress, Tally& tally) {
  Run(*this, groups, manifest, progress, tally).run();
}

}  // namespace sparsereel::app::sets
