// Class names of diffusers' schedulers -> samplers.
#include "models/samplers/sampler.h"

#include <ATen/ATen.h>

#include "hilbert/error.h"
#include "models/checkpoint/config_fields.h"
#include "models/samplers/ddim.h"
#include "models/samplers/dpm_solver.h"
#include "models/samplers/flow_euler.h"
#include "models/samplers/unipc.h"

namespace sparsereel::models {
namespace {

template <typename Kind>
std::unique_ptr<Sampler> make(const SchedulerConfig& config, int64_t num_inference_steps) {
  return std::make_unique<Kind>(config, num_inference_steps);
}

struct SamplerClass {
  const char* name;
  std::unique_ptr<Sampler> (*make)(const SchedulerConfig& config, int64_t num_inference_steps);
};

constexpr SamplerClass kClasses[] = {{"CogVideoXDDIMScheduler", make<DdimSampler>},
                                     {"CogVideoXDPMScheduler", make<DpmSolverSampler>},
                                     {"FlowMatchEulerDiscreteScheduler", make<FlowEulerSampler>},
                                     {"UniPCMultistepScheduler", make<UniPcSampler>}};

void check_steps(const SchedulerConfig& config, int64_t num_inference_steps) {
  const int64_t train_steps = config.num_train_timesteps;
  if (num_inference_steps >= 1 && num_inference_steps <= train_steps) return;
  throw bad_option("steps",
                   "is " + std::to_string(num_inference_steps) +
                       ", but scheduler_config.json has num_train_timesteps " + std::to_string(train_steps),
                   "use 1 to " + std::to_string(train_steps) + " steps");
}

}  // namespace

void Sampler::draw(int64_t, const at::Tensor&, const at::Generator&) {}

void Sampler::restore(const std::map<std::string, at::Tensor>& state) {
  if (state.empty()) return;
  throw bad_input("sampler state \"" + state.begin()->first + "\" does not belong to a sampler without history",
                  "resume with the scheduler that wrote the checkpoint");
}

std::unique_ptr<Sampler> make_sampler(const SchedulerConfig& config, int64_t num_inference_steps) {
  check_steps(config, num_inference_steps);
  std::vector<std::string> names;
  for (const SamplerClass& known : kClasses) {
    if (config.class_name == known.name) return known.make(config, num_inference_steps);
    names.emplace_back(known.name);
  }
  throw bad_input("scheduler_config.json: _class_name \"" + config.class_name + "\" is not supported",
                  "use " + list_of(names));
}

}  // namespace sparsereel::models
