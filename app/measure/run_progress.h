// What every benchmark does besides measuring: progress, Ctrl-C, naming the machine, warnings.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/job/progress.h"
#include "app/job/report.h"

namespace sparsereel::app {

/// Shows how far the run is, and ends it when the user asks for that.
class RunProgress {
 public:
  /// `recovery`: how to go on after an interrupted run.
  RunProgress(bool show, RunReport& report, std::string recovery)
      : progress_(show), report_(report), recovery_(std::move(recovery)) {}

  void stage(const std::string& name) {
    stop_if_interrupted();
    progress_.stage(name);
  }
  /// Before the round after `done` ones.
  void round(int64_t done, int64_t rounds);
  void clear() { progress_.clear(); }
  /// Throws models::Cancelled.
  void stop_if_interrupted();

 private:
  Progress progress_;
  RunReport& report_;
  std::string recovery_;
  std::chrono::steady_clock::time_point last_;
};

/// "NVIDIA H200", or the processor's name.
std::string device_name(c10::Device device);

nlohmann::json machine_report(c10::Device device);

/// Prints the warnings of a benchmark before it begins, and reports them.
void report_warnings(const std::vector<std::string>& warnings, RunReport& report);

}  // namespace sparsereel::app
