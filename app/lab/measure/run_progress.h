// What every benchmark does besides measuring: progress, Ctrl-C, naming the machine, warnings; and what measuring whole
// videos begins with.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/jobs/progress.h"
#include "app/jobs/report.h"
#include "app/options/settings.h"
#include "models/engine/pipeline.h"
#include "models/request/run.h"

namespace sparsereel::app {

/// Shows how far the run is, and ends it when the user asks for that. As an observer it shows pieces that are encoded,
/// and after each decoded one asks alone whether to end.
class RunProgress : public models::RunObserver {
 public:
  /// `recovery`: how to go on after an interrupted run.
  RunProgress(bool show, RunReport& report, std::string recovery)
      : progress_(show), report_(report), recovery_(std::move(recovery)) {}

  void stage(const std::string& name) override {
    stop_if_interrupted();
    progress_.stage(name);
  }
  /// Before the round after `done` ones.
  void round(int64_t done, int64_t rounds);
  void encoded(const models::Pieces& pieces) override;
  void decoded(const models::Pieces& /*pieces*/) override { stop_if_interrupted(); }
  void clear() { progress_.clear(); }
  /// Throws models::Cancelled.
  void stop_if_interrupted();

 private:
  Progress progress_;
  RunReport& report_;
  std::string recovery_;
  std::chrono::steady_clock::time_point last_;
};

/// How to go on after an interrupted benchmark, and where the `parts` are that were done: "stages".
std::string remedy_of_interruption(const RunReport& report, const std::string& parts);

/// "NVIDIA H200", or the processor's name.
std::string device_name(c10::Device device);

/// Fills machine, and how the run came about: date (UTC), commit of the sources, os and command_line.
void report_run(c10::Device device, RunReport& report);

/// Prints the warnings of a benchmark before it begins, and reports them.
void report_warnings(const std::vector<std::string>& warnings, RunReport& report);

/// Adds those of options that the model leaves without effect, as a plan is made before the model is known, and of
/// steps that take very long. `plan`: of the request.
void add_model_warnings(std::vector<std::string>& warnings, const Settings& settings, const models::Request& request,
                        const models::Plan& plan, const models::Pipeline& pipeline);

/// Throws Error where the pipeline's device or dtype has no sparse attention.
void check_sparse_runs(const models::Pipeline& pipeline);

/// The text and images of each plan, on the CPU. `before` is called with the number of texts done and may throw to end
/// the run.
std::vector<models::Conditioning> encode_texts(models::Pipeline& pipeline, const std::vector<models::Plan>& plans,
                                               PictureFiles& pictures, RunProgress& progress,
                                               const std::function<void(int64_t done)>& before);

/// A stage of its own, unless a transformer is there.
void load_transformer(models::Pipeline& pipeline, RunProgress& progress);

}  // namespace sparsereel::app
