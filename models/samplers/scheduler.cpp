// Scheduler class names -> samplers.
#include "models/samplers/scheduler.h"

#include <ATen/ATen.h>

#include "hilbert/error.h"
#include "models/samplers/ddim.h"
#include "models/samplers/dpm_solver.h"

namespace sparsereel::models {

void Scheduler::draw(int64_t, const at::Tensor&, const at::Generator&) {}

void Scheduler::restore(const std::map<std::string, at::Tensor>& state) {
  if (state.empty()) return;
  throw bad_input("sampler state \"" + state.begin()->first + "\" does not belong to a sampler without history",
                  "resume with the scheduler that wrote the checkpoint");
}

std::unique_ptr<Scheduler> make_scheduler(const SchedulerConfig& config, int64_t num_inference_steps) {
  if (config.class_name == "CogVideoXDDIMScheduler")
    return std::make_unique<DdimScheduler>(config, num_inference_steps);
  return std::make_unique<DpmSolverScheduler>(config, num_inference_steps);
}

}  // namespace sparsereel::models
