// The code that all benchmarks share: progress, Ctrl-C, the machine's name, warnings, and the first stages of whole
// videos.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/jobs/progress.h"
#include "app/jobs/report.h"
#include "app/options/option_table.h"
#include "models/engine/pipeline.h"
#include "models/request/run.h"

namespace sparsereel::app {

/// Shows progress, and ends the run when the user presses Ctrl-C. As an observer of a pipeline, it shows the progress
/// of encoding; during decoding it only checks for Ctrl-C.
class RunProgress : public models::RunObserver {
 public:
  /// `recovery` is the remedy that an interrupted run prints.
  RunProgress(bool show, RunReport& report, std::string recovery)
      : progress_(show), report_(report), recovery_(std::move(recovery)) {}

  void stage(const std::string& name) override {
    stop_if_interrupted();
    progress_.stage(name);
  }
  /// Shows that `done` of `rounds` rounds are finished. Call it before each round.
  void round(int64_t done, int64_t rounds);
  void encoded(const models::PieceProgress& pieces) override;
  void decoded(const models::PieceProgress& /*pieces*/) override { stop_if_interrupted(); }
  void clear() { progress_.clear(); }
  /// Throws models::Cancelled if the user has interrupted the run.
  void stop_if_interrupted();

 private:
  Progress progress_;
  RunReport& report_;
  std::string recovery_;
  std::chrono::steady_clock::time_point last_;
};

/// Returns the remedy for an interrupted benchmark: to run it again, and where the results of its finished `parts`
/// (such as "stages") are.
std::string remedy_of_interruption(const RunReport& report, const std::string& parts);

/// Returns the name of the GPU, such as "NVIDIA H200", or of the processor.
std::string device_name(c10::Device device);

/// Fills the report's fields about this run: machine, date (UTC), commit of the sources, os and command_line.
void report_run(c10::Device device, RunReport& report);

/// Prints the warnings of a benchmark before it begins, and adds them to the report.
void report_warnings(const std::vector<std::string>& warnings, RunReport& report);

/// Adds warnings about options that have no effect on this model, about its weights, about a size that it was not made
/// for, and about steps that take very long. Benchmarks plan their rows before the model is open, and call this
/// function afterwards. `plan` is the resolved request.
void add_model_warnings(std::vector<std::string>& warnings, const Settings& settings,
                        const std::filesystem::path& model, const models::Request& request, const models::Plan& plan,
                        const models::Pipeline& pipeline);

/// Throws Error if the pipeline's device or dtype has no sparse attention.
void check_sparse_runs(const models::Pipeline& pipeline);

/// Encodes the text and images of each plan, and returns the results on the CPU. Before each text, calls `before` with
/// the number of finished texts; `before` may throw to end the run.
std::vector<models::Conditioning> encode_texts(models::Pipeline& pipeline, const std::vector<models::Plan>& plans,
                                               PictureFiles& pictures, RunProgress& progress,
                                               const std::function<void(int64_t done)>& before);

/// Loads the transformer as a stage of its own, unless it is already loaded. The memory that the plan's video needs
/// decides where the weights stay.
void load_transformer(models::Pipeline& pipeline, const models::Plan& plan, RunProgress& progress);

}  // namespace sparsereel::app
