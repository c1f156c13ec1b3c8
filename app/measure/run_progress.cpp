// Progress and machine of the benchmarks.
#include "app/measure/run_progress.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "app/job/interrupt.h"
#include "app/job/write.h"
#include "app/machine.h"
#include "models/engine/pipeline.h"

namespace sparsereel::app {

void RunProgress::round(int64_t done, int64_t rounds) {
  stop_if_interrupted();
  const auto now = std::chrono::steady_clock::now();
  progress_.step(done, rounds, done > 0 ? std::chrono::duration<double>(now - last_).count() : 0);
  last_ = now;
}

void RunProgress::stop_if_interrupted() {
  if (!interrupted()) return;
  report_.recovery = recovery_;
  throw models::Cancelled{};
}

std::string device_name(c10::Device device) {
  if (device.is_cpu()) return cpu_model();
  const GpuDriver driver = find_gpu_driver();
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  return index < driver.gpus.size() ? driver.gpus[index] : "unknown GPU";
}

nlohmann::json machine_report(c10::Device device) {
  return {{"device", device.str()},
          {"name", device_name(device)},
          {"cpu", cpu_model()},
          {"threads", at::get_num_threads()},
          {"libtorch", SPARSEREEL_TORCH_VERSION}};
}

void report_warnings(const std::vector<std::string>& warnings, RunReport& report) {
  print_warnings(warnings);
  report.content["warnings"] = warnings;
}

}  // namespace sparsereel::app
