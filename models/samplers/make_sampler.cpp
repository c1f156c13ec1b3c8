// Creates the sampler for a config, with its schedule.
#include "models/samplers/make_sampler.h"

#include <string>

#include "hilbert/error.h"
#include "models/samplers/ddim.h"
#include "models/samplers/dpm_solver.h"
#include "models/samplers/euler_ancestral.h"
#include "models/samplers/flow_euler.h"
#include "models/samplers/flow_lcm.h"
#include "models/samplers/flow_to_data.h"
#include "models/samplers/unipc.h"

namespace sparsereel::models {
namespace {

void check_steps(const SchedulerConfig& config, int64_t num_inference_steps) {
  const int64_t train_steps = config.num_train_timesteps;
  if (num_inference_steps >= 1 && num_inference_steps <= train_steps) return;
  throw bad_option("steps",
                   "is " + std::to_string(num_inference_steps) +
                       ", but scheduler_config.json has num_train_timesteps " + std::to_string(train_steps),
                   "use 1 to " + std::to_string(train_steps) + " steps");
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(const SchedulerConfig& config, int64_t num_inference_steps) {
  check_steps(config, num_inference_steps);
  switch (config.kind) {
    case SamplerKind::ddim:
      return std::make_unique<DdimSampler>(NoiseSchedule(config, num_inference_steps));
    case SamplerKind::dpm_solver:
      return std::make_unique<DpmSolverSampler>(NoiseSchedule(config, num_inference_steps));
    case SamplerKind::euler_ancestral:
      return std::make_unique<EulerAncestralSampler>(noise_levels(config, num_inference_steps), config.prediction_type);
    case SamplerKind::flow_dpm_solver:
      return std::make_unique<UniPcSampler>(dpm_flow_schedule(config, num_inference_steps));
    case SamplerKind::flow_euler:
      return std::make_unique<FlowEulerSampler>(euler_flow_schedule(config, num_inference_steps));
    case SamplerKind::flow_lcm:
      return std::make_unique<FlowLcmSampler>(euler_flow_schedule(config, num_inference_steps));
    case SamplerKind::flow_to_data:
      return std::make_unique<FlowToDataSampler>(data_flow_schedule(config, num_inference_steps));
    case SamplerKind::unipc:
      break;
  }
  return std::make_unique<UniPcSampler>(unipc_flow_schedule(config, num_inference_steps), config.disable_corrector);
}

}  // namespace sparsereel::models
